"""A second client counts the inputs and compares the counts, for topics on a real broker, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings
from streams_py.adapters.confluent.bulk.plain_count import PlainCount, count_records
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.history.bootstrap import BootstrapPlan, Step
from streams_py.history.recount import Recounted, sample_of
from streams_py.spark.history.fixed_ranges import fixed_options, ranges_of
from streams_py.spark.history.recounted import recount_plan, recount_results
from tests.support.spark.cluster import Cluster
from tests.support.spark.plain import await_decided, plain_records, transactional
from tests.support.spark.source import Options, numbered, produce

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


def transactions(cluster: Cluster, topic: str, partitions: int) -> None:
    """Records that are committed and aborted in turn, by two producers: markers at the end of each partition."""
    producers = [transactional(cluster.bootstrap, f"{topic}-{number}") for number in range(2)]
    for turn in range(8):
        producer = producers[turn % 2]
        producer.begin_transaction()
        for number in range(200):
            producer.produce(topic, b"v", b"k%d" % number, partition=number % partitions, timestamp=1_000 + turn)
        assert producer.flush(60) == 0
        producer.abort_transaction(60) if turn in (3, 7) else producer.commit_transaction(60)
    await_decided(cluster.bootstrap, topic, partitions)


def counted(cluster: Cluster, topic: str, start: int, end: int, **more: Any) -> PlainCount:
    kafka = {"bootstrap.servers": cluster.bootstrap}
    settings = bulk_consumer_settings(kafka, client_id="count", read_committed=more.pop("committed", True))
    given = {"before_ms": None, "patience_ms": 60_000, **more}
    return count_records(settings, TopicPartition(topic, 0), start, end, **given)


def test_plain_count_is_that_of_a_consumer_on_topics_with_gaps(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    transactions(cluster, topic, 1)
    for committed in (True, False):
        records = plain_records(cluster.bootstrap, topic, 1, committed=committed)
        for start, end in ((0, 1608), (0, 1), (150, 451), (600, 803), (1500, 1608), (1607, 1608)):
            inside = [record for record in records if start <= record.offset < end]
            assert counted(cluster, topic, start, end, committed=committed).records == len(inside), (start, end)
            early = [record for record in inside if record.timestamp_ms < 1_004]
            found = counted(cluster, topic, start, end, committed=committed, before_ms=1_004)
            assert found.records == len(early), (start, end)


def test_plain_count_begins_at_what_is_left_and_says_so(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    cluster.delete_before(topic, 0, 4)
    assert counted(cluster, topic, 0, 10) == PlainCount(6, 4)
    with pytest.raises(BrokerUnavailableError, match=r"no record arrived for 500 ms at offset 10, .* ends at 12"):
        counted(cluster, topic, 5, 12, patience_ms=500)
    with pytest.raises(StreamsError, match=r"cannot be counted at offset 50: its log has offsets 4 to 10"):
        counted(cluster, topic, 50, 60)


def planned(cluster: Cluster, options: Options, topic: str, partitions: int) -> tuple[BootstrapPlan, dict[str, int]]:
    fixed = fixed_options(topic, options())
    records = plain_records(cluster.bootstrap, topic, partitions)
    read = [(topic, number, sum(each.partition == number for each in records)) for number in range(partitions)]
    plan = BootstrapPlan("app", "app:topology", "", ranges_of(topic, fixed), [], {}, {}, step=Step.WRITTEN, read=read)
    return plan, {f"{name}-{number}": count for name, number, count in read}


def with_read(plan: BootstrapPlan, *read: tuple[str, int, int]) -> BootstrapPlan:
    from dataclasses import replace

    return replace(plan, read=list(read))


def test_warm_start_that_has_not_read_all_is_refused(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(2)
    transactions(cluster, topic, 2)
    plan, read = planned(cluster, options, topic, 2)
    found = recount_plan(plan, options(), whole=False)
    assert found == Recounted(sum(read.values()), 2, 2)
    assert str(found) == (
        "a second client counted 1,200 records in 2 of 2 input partitions, which matches the records read"
    )
    one, other = plan.read
    for wrong in (600 - 1, 0, 600 + 1):
        with pytest.raises(StreamsError, match=rf"{topic}-1 has 600 records .* to 808, but the run read {wrong}"):
            recount_plan(with_read(plan, one, (topic, 1, wrong)), options(), whole=True)
    with pytest.raises(StreamsError, match=rf"{topic}-0 has 600 records .* but the run read 0"):
        recount_plan(with_read(plan, other), options(), whole=True)


def test_topic_that_shrinks_meanwhile_may_have_fewer_records_but_never_more(cluster: Cluster, options: Options) -> None:
    compacted = cluster.topic(1, cleanup_policy="compact")
    deleted = cluster.topic(1)
    for topic in (compacted, deleted):
        produce(cluster, topic, *numbered(10))
        plan, _ = planned(cluster, options, topic, 1)
        if topic is compacted:
            plan = with_read(plan, (topic, 0, 11))  # one more was there, and is compacted away
        else:
            cluster.delete_before(topic, 0, 3)
        assert recount_plan(plan, options(), whole=True).partitions == 1
        with pytest.raises(StreamsError, match="but the run read"):
            recount_plan(with_read(plan, (topic, 0, 6)), options(), whole=True)


def test_topic_that_was_created_again_is_not_counted_for_the_old_one(cluster: Cluster, options: Options) -> None:
    from dataclasses import replace

    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    plan, _ = planned(cluster, options, topic, 1)
    plan = replace(plan, topic_ids={topic: "another"})
    with pytest.raises(StreamsError, match="another one than was planned to be read"):
        recount_plan(plan, options(), whole=True)


@pytest.mark.parametrize("is_table", [False, True])
def test_backfill_that_has_not_read_all_is_refused(cluster: Cluster, options: Options, is_table: bool) -> None:
    topic = cluster.topic(1)
    transactions(cluster, topic, 1)
    stage = SimpleNamespace(inputs={topic: 1, "archived": 1, "between": 1})
    given = {topic: fixed_options(topic, options()), "archived": "folder"}

    def results(read: int) -> Any:
        plan = SimpleNamespace(stages=[stage])
        place = TopicPartition(topic, 0)
        of_tables = {place: read} if is_table else {}
        return SimpleNamespace(
            plan=plan, inputs=given, read=lambda: {} if is_table else {place: read}, read_of_tables=of_tables
        )

    assert recount_results(results(1_200), "seed", whole=True, until_ms=None) == Recounted(1_200, 1, 1)
    assert recount_results(results(600), "seed", whole=True, until_ms=1_003) == Recounted(600, 1, 1)
    with pytest.raises(StreamsError, match=r"1,200 records from offset 0 to 1,608, but the run read 1,199"):
        recount_results(results(1_199), "seed", whole=False, until_ms=None)
    since = 1_200 if is_table else 400  # a global table is read whole
    assert recount_results(results(since), "seed", whole=True, until_ms=None, since_ms=1_005)[0] == since
    with pytest.raises(StreamsError, match=rf"but the run read {since + 1:,}"):
        recount_results(results(since + 1), "seed", whole=True, until_ms=None, since_ms=1_005)
    del given[topic]
    assert recount_results(results(0), "seed", whole=True, until_ms=None) is None


def test_sample_is_all_of_small_inputs_and_one_partition_of_each_large_topic() -> None:
    small = [("a", 0, 0, 500_000), ("a", 1, 5, 5), ("b", 0, 0, 500_000)]
    assert sample_of(small, "seed", whole=False) == [small[0], small[2]]
    large = [(topic, number, 0, 400_000) for topic in "ab" for number in range(5)]
    assert sample_of(large, "seed", whole=True) == large
    chosen = [sample_of(large, str(seed), whole=False) for seed in range(40)]
    assert all([topic for topic, *_ in sample] == ["a", "b"] for sample in chosen)
    assert {number for sample in chosen for _, number, *_ in sample} == set(range(5)), "any partition may be the one"
    assert sample_of(large, "7", whole=False) == chosen[7]
