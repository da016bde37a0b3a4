"""A topology over a history equals the same topology live: every record, and the state at the end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from streams_py import Processor, Punctuation, StreamsBuilder, Topology, serdes
from streams_py.errors import StreamsError

pytest.importorskip("pyarrow")

from tests.support.history.programs import (
    ORDERS,
    PASSED_OVER,
    PRICES,
    VERSIONS,
    merged,
    priced,
    some_lines,
    versions,
    word_count,
)
from tests.support.history.runs import Given, buffered, driven, folded, numbered, run_locally


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_word_count_over_a_history_leaves_the_state_of_a_live_run(partitions: int) -> None:
    records = some_lines(300, partitions)
    run = run_locally(word_count, records, partitions)
    live = driven(word_count(), records, partitions)
    assert run.state["test-counts-changelog"] == folded(live["test-counts-changelog"])
    assert sorted(map(repr, run.records("totals"))) == sorted(map(repr, live["totals"]))


def test_order_of_records_without_a_repartition_is_that_of_a_live_run() -> None:
    def totals() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("orders").group_by_key().reduce(lambda a, b: a + b, store="sums").to_stream().to("totals")
        return builder.build()

    chance = random.Random(3)
    records = numbered(
        [("orders", chance.randrange(1_000), b"k%d" % chance.randrange(9), b"v%d" % at) for at in range(200)], 3
    )
    run, live = run_locally(totals, records, 3), driven(totals(), records, 3)
    for partition in range(3):
        ours = [record for record in run.records("totals") if record[1] == partition]
        assert ours == [record for record in live["totals"] if record[1] == partition]
    assert run.state["test-sums-changelog"] == folded(live["test-sums-changelog"])


def test_record_that_cannot_be_read_does_not_put_off_those_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    config = {"deserialization.exception.handler": "log_and_continue"}
    run, live = run_locally(merged, PASSED_OVER, 1, config), buffered(merged, PASSED_OVER, 1, config)
    assert [record[4] for record in live["out"]][-1] == b"1xx23x"
    assert run.records("out") == live["out"]
    said = [record.getMessage() for record in caplog.records if "dropped record number 1" in record.getMessage()]
    assert len(said) == 2
    assert all("input record a-0 at offset 1" in message for message in said)


def test_batches_of_large_records_stay_small() -> None:
    def copies() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.BYTES)
        documents = builder.stream("documents")
        documents.flat_map_values(lambda value: [value] * 4).to("copies")
        documents.group_by_key().reduce(lambda _, new: new, store="last")
        return builder.build()

    record = b"x" * (1 << 20)
    records = [Given("documents", 0, at, at, b"k%d" % at, record) for at in range(48)]
    run = run_locally(copies, records, batch_rows=48)
    assert len(run.records("copies")) == 4 * 48
    assert len(run.state["test-last-changelog"]) == 48
    assert run.largest_batch_bytes < 40 << 20


def test_partition_that_a_topic_is_said_not_to_have_is_named() -> None:
    records = [Given("lines", partition, 0, 5, b"k", b"v") for partition in range(3)]
    with pytest.raises(StreamsError, match=r"lines has records of partition 2, but its partition count is 2; pass"):
        run_locally(word_count, records, 2)


def test_topic_that_a_later_stage_reads_is_an_output_too() -> None:
    def through() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").map_values(str.upper).to("between")
        builder.stream("between").map_values(lambda line: f"{line}!").to("out")
        return builder.build()

    run = run_locally(through, [Given("lines", 0, 0, 5, b"k", b"v")])
    assert dict(run.plan.sinks) == {"between": 1, "out": 1}
    assert [run.records(topic)[0][4] for topic in run.plan.sinks] == [b"V", b"V!"]


def audited() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").to("audit")
    builder.stream("orders").to(lambda key, value, record: value)
    return builder.build()


def test_function_may_choose_a_topic_that_another_stage_writes_by_name() -> None:
    given = [Given("lines", 0, 0, 5, b"k", b"line"), Given("orders", 0, 0, 6, b"k", b"audit")]
    run = run_locally(audited, given, outputs={"audit": 3})
    assert dict(run.plan.sinks) == {"audit": 3}
    assert [record[4] for record in run.records("audit")] == [b"line", b"audit"]


def test_function_may_not_choose_a_topic_that_is_read() -> None:
    """No stage would see the record: the reader of the topic gets only its old records."""
    given = [Given("lines", 0, 0, 5, b"k", b"line"), Given("orders", 0, 0, 6, b"k", b"lines")]
    with pytest.raises(StreamsError, match=r"chose topic lines .* If the topology also reads this topic"):
        run_locally(audited, given, outputs={"lines": 1, "orders": 1, "audit": 1})


class Punctual(Processor[str, str, str, str]):
    batch_safe = True

    def init(self, context: Any) -> None:
        super().init(context)
        self.schedule = context.schedule(10, Punctuation.STREAM_TIME, lambda now_ms: None)

    def process(self, record: Any) -> None:
        if record.value == "stop":
            self.schedule.cancel()


def test_punctuator_is_refused_although_it_is_cancelled_soon() -> None:
    """A live application calls it before it is cancelled."""

    def punctual() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").process(Punctual).to("out")
        return builder.build()

    for value in (b"go", b"stop"):
        with pytest.raises(
            StreamsError, match="task 0_0: a processor has scheduled a punctuator, although its supplier"
        ):
            run_locally(punctual, [Given("lines", 0, 0, 5, b"k", value)])


def test_fold_of_a_versioned_store_is_all_of_its_versions() -> None:
    run = run_locally(versions, VERSIONS)
    kept = sorted((at_ms, key, value) for _, _, at_ms, key, value, _ in run.folded("test-prices-changelog"))
    assert kept == sorted((given.timestamp_ms, given.key, given.value) for given in VERSIONS[:-1])
    assert run.state["test-prices-changelog"][0, b"tea"] == (50_600, b"second", None), "not the last one that came"


def test_global_table_is_for_every_record_what_it_is_at_the_end() -> None:
    run = run_locally(priced, [*ORDERS, *PRICES], 2)
    live = driven(priced(), [*PRICES, *ORDERS], 2)
    assert {record[4] for record in live["out"]} == {b"%s=2" % b",".join([b"tea:2"] * times) for times in range(1, 10)}
    assert sorted(map(repr, run.records("out"))) == sorted(map(repr, live["out"]))
    assert run.state["test-sums-changelog"] == folded(live["test-sums-changelog"])


def test_what_processors_do_to_global_tables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def builds() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.global_table("prices", value=serdes.INT32, store="prices")
        builder.stream("orders").process(raises_price).to("out")
        return builder.build()

    with pytest.raises(StreamsError, match="prices"):
        run_locally(builds, [*ORDERS, *PRICES], 2)
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def raises_price(record: Any, context: Any) -> Any:
    context.get_state_store("prices").put("tea", 9)
    yield record


raises_price.batch_safe = True  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", [1, 2], ids=["one topic", "two topics"])
def test_record_that_an_archive_has_twice_is_taken_once(given: int) -> None:
    def joins() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        orders = builder.stream("orders")
        if given == 2:
            orders = orders.merge(builder.stream("others"))
        orders.group_by_key().count(store="counts")
        return builder.build()

    others = [order._replace(topic="others") for order in ORDERS] if given == 2 else []
    once = run_locally(joins, [*ORDERS, *others], 2)
    twice = run_locally(joins, [*ORDERS, *ORDERS, *others[3:9], *others, ORDERS[4]], 2)
    assert twice.state == once.state
    other = ORDERS[4]._replace(value=b"other")
    with pytest.raises(StreamsError, match=rf"topic orders .* partition {other.partition}, offset {other.offset}: was"):
        run_locally(joins, [*ORDERS, *others, other], 2)
