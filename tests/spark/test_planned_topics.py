"""A plan covers topics with certain ids, and existing offsets. Called as Spark calls it, without Spark."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import CaseInsensitiveDict, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable

from streams_py.adapters.confluent.bulk import same_topic
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.errors import ConfigError, StreamsError
from streams_py.spark.history.fixed_ranges import fixed_options, newest_ms, ranges_in
from streams_py.spark.history.portions import OfRanges
from streams_py.spark.kafka.source import StreamsKafkaSource
from tests.support.spark.cluster import Cluster
from tests.support.spark.plain import as_plain, await_decided, plain_records, transactional
from tests.support.spark.planned_topics import run_stream
from tests.support.spark.source import Options, ends, micro_batch, numbered, offsets, produce, read, stream

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


def recreate(cluster: Cluster, topic: str, count: int) -> None:
    cluster.delete(topic)
    cluster.topic(1, name=topic)
    produce(cluster, topic, *[(0, b"k%d" % n, b"new") for n in range(count)])


def source(given: dict[str, str]) -> StreamsKafkaSource:
    """The source after ``load``: Spark has requested the schema, and uses copies of the source from then on."""
    loaded = StreamsKafkaSource(CaseInsensitiveDict(given))
    loaded.schema()
    return pickle.loads(pickle.dumps(loaded))


def rows_of(reader: Any, partitions: Any) -> list[Any]:
    return [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]


# -- a topic that is created again ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 300], ids=["as long", "longer"])
def test_batch_gives_out_no_record_of_a_topic_that_was_created_again(
    count: int, cluster: Cluster, options: Options
) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    reader = source(options(topics=topic, split_records=5)).reader(schema=None)
    first, second = reader.partitions()
    assert len(rows_of(reader, [first])) == 5
    recreate(cluster, topic, count)
    with pytest.raises(StreamsError, match=f"topic {topic} is another one than was planned to be read.*created again"):
        next(iter(reader.read(second)))


def test_batch_gives_out_no_record_when_its_topic_is_gone(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    reader = source(options(topics=topic)).reader(schema=None)
    (part,) = reader.partitions()
    batches = reader.read(part)
    cluster.delete(topic)
    with pytest.raises(StreamsError, match=f"{topic}"):
        list(batches)


def test_micro_batch_gives_out_no_record_of_a_topic_that_was_created_again(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    reader = stream(options(topics=topic))
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    recreate(cluster, topic, 10)
    with pytest.raises(StreamsError, match=f"topic {topic} is another one than was planned to be read"):
        next(iter(reader.read(part)))
    reader.stop()


def test_history_is_not_made_of_a_topic_that_was_created_again(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    fixed = fixed_options(topic, options())
    found, planned = ranges_in(topic, fixed, None)
    (of,) = planned.ranges
    reader = OfRanges(topic, (0,), {0: (of.start, of.end)}, found, topic_id=planned.topic_ids[topic])
    row = pa.RecordBatch.from_pydict({"id": [0]})
    assert sum(len(portion.records) for portion in reader([row])) == 10
    recreate(cluster, topic, 20)
    with pytest.raises(StreamsError, match=f"topic {topic} is another one than was planned to be read"):
        list(reader([row]))
    with pytest.raises(StreamsError, match=f"topic {topic} is another one than was planned to be read"):
        ranges_in(topic, fixed, None)  # between planning and running


def test_ranges_carry_the_epochs_of_their_leaders_and_later_records_are_refused(
    cluster: Cluster, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    reader = stream(options(topics=topic))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    batch = source(options(topics=topic)).reader(schema=None)
    (planned,), (micro,) = batch.partitions(), reader.partitions(start, end)
    assert (planned.leader_epoch, micro.leader_epoch) == (0, 0)
    assert ranges_in(topic, fixed_options(topic, options()), None)[1].leader_epochs == {(topic, 0): 0}
    for read_by, part in ((batch, planned), (reader, micro)):
        assert len(rows_of(read_by, [part])) == 10
        part.leader_epoch = -1  # as if the leader of the records had been elected after the plan
        with pytest.raises(StreamsError, match="brokers have lost records"):
            next(iter(read_by.read(part)))
    reader.stop()


def test_topic_without_an_id_is_read_unchecked(cluster: Cluster, options: Options, monkeypatch: Any) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(3))
    monkeypatch.setattr(LogAdmin, "topic_ids", lambda *_: {})
    assert offsets(read(options(topics=topic))) == [(0, 0), (0, 1), (0, 2)]


# -- one plan for a DataFrame ---------------------------------------------------------------------------------------


def test_dataframe_has_one_plan_with_and_without_filters(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(100))
    for given in (options(topics=topic), options(topics=topic, push_filters="true", split_records=30)):
        loaded = source(given)
        produce(cluster, topic, *numbered(10))
        plain = loaded.reader(schema=None)
        filtered = loaded.reader(schema=None)
        if hasattr(filtered, "pushFilters"):
            list(filtered.pushFilters([GreaterThanOrEqual(("offset",), 40)]))
        end = max(part.end for part in plain.partitions())
        assert max(part.end for part in filtered.partitions()) == end
        assert [row["offset"] for row in rows_of(plain, plain.partitions())] == list(range(end))
    assert len(read(options(topics=topic))) == 120, "a new DataFrame has a new plan"


def test_dataframe_of_a_topic_that_was_created_again_is_an_error(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    loaded = source(options(topics=topic))
    reader = loaded.reader(schema=None)
    assert len(rows_of(reader, reader.partitions())) == 10
    recreate(cluster, topic, 30)
    reader = loaded.reader(schema=None)
    with pytest.raises(StreamsError, match="was planned to be read"):
        rows_of(reader, reader.partitions())


# -- open transactions ----------------------------------------------------------------------------------------------


@pytest.fixture
def undecided(cluster: Cluster) -> tuple[str, Producer]:
    """A topic with 10 records, and 10 more in a transaction that is open."""
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    producer = transactional(cluster.bootstrap, topic)
    producer.begin_transaction()
    for _ in range(10):
        producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    return topic, producer


@pytest.mark.parametrize("start", [10, 15, 20])
def test_position_in_an_open_transaction_has_nothing_to_read_yet(
    start: int, undecided: tuple[str, Producer], cluster: Cluster, options: Options
) -> None:
    topic, producer = undecided
    given = options(topics=topic, starting=json.dumps({topic: {"0": start}}))
    assert read(given) == []
    assert ranges_in(topic, fixed_options(topic, given), None)[1].ranges == []
    reader = stream(given)
    begun = reader.initialOffset()
    assert reader.latestOffset(begun, ReadAllAvailable()) == begun
    reader.stop()
    reader = stream(given)  # a restart
    assert micro_batch(reader, begun, begun) == []
    producer.commit_transaction(60)
    await_decided(cluster.bootstrap, topic, 1)
    end = reader.latestOffset(begun, ReadAllAvailable())
    expected = [record for record in plain_records(cluster.bootstrap, topic, 1) if record.offset >= start]
    assert [as_plain(row) for row in micro_batch(reader, begun, end)] == expected
    assert [as_plain(row) for row in read(given)] == expected
    reader.stop()


def test_end_in_an_open_transaction_is_refused_with_the_reason(
    undecided: tuple[str, Producer], cluster: Cluster, options: Options
) -> None:
    topic, producer = undecided
    given = options(topics=topic, ending=json.dumps({topic: {"0": 15}}))
    with pytest.raises(
        ConfigError, match=r"offset 15 of .* is after the last stable offset, 10, because a transaction is open"
    ):
        read(given)
    assert len(read(given | {"isolation": "read_uncommitted"})) == 15
    with pytest.raises(ConfigError, match=r"offset 21 of .* is after the end of the log, 20"):
        read(options(topics=topic, starting=json.dumps({topic: {"0": 21}})))
    producer.abort_transaction(60)
    await_decided(cluster.bootstrap, topic, 1)
    assert len(read(given)) == 10


# -- the newest record ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_open", [False, True], ids=["aborted", "open"])
def test_newest_record_is_one_that_a_reader_sees(is_open: bool, cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(2)
    for n in range(100):
        produce(cluster, topic, (0, b"k", b"v"), timestamp=1_000_000 + n)
    produce(cluster, topic, (1, b"k", b"v"), timestamp=900_000)
    producer = transactional(cluster.bootstrap, topic)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(topic, b"never", partition=partition, timestamp=9_000_000)
    assert producer.flush(60) == 0
    if not is_open:
        producer.abort_transaction(60)
        await_decided(cluster.bootstrap, topic, 2)
    assert newest_ms(topic, options()) == 1_000_099
    assert newest_ms(topic, options(isolation="read_uncommitted")) == 9_000_000
    fixed = fixed_options(topic, options())
    produce(cluster, topic, (1, b"k", b"v"), timestamp=5_000_000)
    assert newest_ms(topic, options(), fixed) == 1_000_099, "what comes after the ends were fixed does not count"
    if is_open:
        producer.abort_transaction(60)
        await_decided(cluster.bootstrap, topic, 2)
    assert newest_ms(topic, options()) == 5_000_000


def test_newest_record_is_unknown_when_only_reading_all_would_tell(
    cluster: Cluster, options: Options, monkeypatch: Any
) -> None:
    monkeypatch.setattr("streams_py.spark.history.fixed_ranges._TAIL", 5)
    topic = cluster.topic(1)
    producer = transactional(cluster.bootstrap, topic)
    producer.begin_transaction()
    producer.produce(topic, b"never", partition=0, timestamp=9_000_000)
    assert producer.flush(60) == 0
    producer.abort_transaction(60)
    await_decided(cluster.bootstrap, topic, 1)
    produce(cluster, topic, *numbered(20), timestamp=1_000_000)
    assert newest_ms(topic, options()) is None


# -- partitions that come later, and offsets that are gone -------------------------------------------------------------


@pytest.mark.parametrize("on_gone", ["skip", "fail"])
def test_partition_that_is_new_to_a_stream_starts_at_its_first_offset(
    on_gone: str, cluster: Cluster, options: Options
) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(5))
    given = options(topics=topic, on_gone=on_gone, rows_per_trigger=3)
    counts: list[int] = []
    found, begun = run_stream(given, 3, stream(given).initialOffset(), counts)
    cluster.add_partitions(topic, 2)
    produce(cluster, topic, *numbered(2_000, 1))
    cluster.delete_before(topic, 1, 1_990)
    more, begun = run_stream(given, 3, begun, counts)
    assert found + more == plain_records(cluster.bootstrap, topic, 2)
    assert counts == [3, 2, 3, 3, 3, 1], "only offsets that are there count as rows"
    assert begun[f"{topic}/1/first"] == "1990"


def test_repeated_micro_batch_of_a_new_partition_misses_what_was_deleted_since(
    cluster: Cluster, options: Options
) -> None:
    topic = cluster.topic(1)
    given = options(topics=topic)
    begun = stream(given).initialOffset()
    cluster.add_partitions(topic, 2)
    produce(cluster, topic, *numbered(20, 1))
    cluster.delete_before(topic, 1, 5)
    end = stream(given).latestOffset(begun, ReadAllAvailable())
    assert len(micro_batch(stream(given), begun, end)) == 15
    cluster.delete_before(topic, 1, 20)
    with pytest.raises(StreamsError, match="OFFSET_GONE: offset 5 of"):
        micro_batch(stream(given), begun, end)


def test_offsets_that_are_deleted_while_a_stream_stands_still_do_not_count_as_rows(
    cluster: Cluster, options: Options
) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(2_010))
    given = options(topics=topic, on_gone="skip", rows_per_trigger=5)
    begun = stream(given).initialOffset()
    cluster.delete_before(topic, 0, 2_000)
    counts: list[int] = []
    found, _ = run_stream(given, 5, begun, counts)
    assert found == plain_records(cluster.bootstrap, topic, 1)
    assert counts == [5, 5]


# -- answers that are not believed -------------------------------------------------------------------------------------


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of topics. Each of the next answers of the cluster leaves out one of them."""
    forgotten: list[str] = []
    whole = LogAdmin._list_topics  # a broker answers so for a moment only

    def list_topics(self: LogAdmin) -> Any:
        topics = dict(whole(self))
        if forgotten:
            topics.pop(forgotten.pop(), None)
        return topics

    monkeypatch.setattr(LogAdmin, "_list_topics", list_topics)  # see above
    return forgotten


def test_single_answer_without_the_topic_ends_neither_stream_nor_batch(
    cluster: Cluster, options: Options, forgetful: list[str]
) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(5))
    for given in (options(topics=topic), options(topics_pattern=topic), options(assign=json.dumps({topic: [0]}))):
        reader = stream(given)
        forgetful.append(topic)
        begun = reader.initialOffset()
        forgetful.append(topic)
        end = reader.latestOffset(begun, ReadAllAvailable())
        assert ends(end) == {f"{topic}/0": 5}
        forgetful.append(topic)
        reader.prepareForTriggerAvailableNow()
        assert not forgetful, "the answers were not asked for"
        reader.stop()
        forgetful.append(topic)
        batch = source(given).reader(schema=None)
        assert len(rows_of(batch, batch.partitions())) == 5
        assert not forgetful
    forgetful.append(topic)
    assert fixed_options(topic, options())["ending"] == json.dumps({topic: {"0": 5}})


def test_single_answer_with_another_id_or_an_earlier_end_ends_no_stream(
    cluster: Cluster, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(5))
    reader = stream(options(topics=topic))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for name, lie in (("topic_ids", {topic: "another"}), ("log_ends", None)):
        truth, lies = getattr(LogAdmin, name), [lie]

        def answer(self: LogAdmin, *given: Any, _truth: Any = truth, _lies: list[Any] = lies, **named: Any) -> Any:
            told = _truth(self, *given, **named)
            if not _lies:
                return told
            return _lies.pop() or {at: offset - 1 for at, offset in told.items()}

        with monkeypatch.context() as patched:
            patched.setattr(LogAdmin, name, answer)
            if name == "log_ends":
                lies.append(lie)  # both ends: of committed records and of the log
            assert reader.latestOffset(end, ReadAllAvailable()) == end
            assert not lies
    reader.stop()


def test_refusal_is_believed_after_several_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(same_topic, "time", type("Clock", (), {"sleep": waits.append, "monotonic": time.monotonic}))
    connections: list[int] = []

    class Admin:
        def reconnect(self) -> None:
            connections.append(1)

    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        raise ConfigError("not found", key="topics")

    with pytest.raises(ConfigError, match="not found"):
        same_topic.believed(look, Admin())
    assert len(looks) == len(connections) + 1 == len(waits) + 1 == 4
