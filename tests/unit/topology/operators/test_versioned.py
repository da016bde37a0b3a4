"""Tables in versioned stores: late updates become older versions, and streams see rows as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.errors import TopologyError
from streams_py.serdes import INT64, STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.windows import TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.dsl.suppressed import Suppressed
from streams_py.topology.topology import Topology
from tests.support.topology.driver_parts import written_by

HISTORY_MS = 100


def versioned(name: str = "rows", *, persistent: bool = False) -> Materialized[Any, Any]:
    return Materialized(name, history=HISTORY_MS, persistent=persistent)


def run(topology: Topology, *records: tuple[str, str, str | None, int]) -> list[tuple[str, Any, int]]:
    """Return the records in "out" for records (topic, key, value, timestamp)."""
    with TopologyTestDriver(topology) as driver:
        topics = {name: driver.input_topic(name, key=STRING, value=STRING) for name in {name for name, *_ in records}}
        for name, key, value, at in records:
            topics[name].send(key, value, timestamp_ms=at)
        out = driver.output_topic("out", key=STRING, value=STRING)
        return [(str(record.key), record.value, record.timestamp) for record in out.read_all()]


UPDATES = (
    ("rows", "k", "at 10", 10),
    ("rows", "k", "at 30", 30),
    ("rows", "k", "late 20", 20),
    ("rows", "k", None, 40),
)


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_stream_meets_the_row_as_it_was_at_its_own_time(persistent: bool) -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.table("rows", materialized=versioned(persistent=persistent))
    builder.stream("in").left_join(table, lambda value, row: f"{value} {row}").to("out")
    asked = tuple(("in", "k", "v", at) for at in (5, 10, 19, 20, 29, 30, 39, 40, 99))
    rows = [value.removeprefix("v ") for _, value, _ in run(builder.build(), *UPDATES, *asked)]
    assert rows == ["None", "at 10", "at 10", "late 20", "late 20", "at 30", "at 30", "None", "None"]


@pytest.mark.parametrize(
    ("before", "row"), [([], "late 20"), ([("first", 10)], "None"), ([("first", 10), (None, 11)], "late 20")]
)
def test_deletion_at_the_time_of_the_latest_version_is_remembered_only_after_a_value(
    before: list[tuple[str | None, int]], row: str
) -> None:
    """As in Kafka Streams, where the latest version leaves no trace unless an older version has its end time."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.table("rows", materialized=versioned())
    builder.stream("in").left_join(table, lambda value, row: str(row)).to("out")
    updates = [*before, ("at 30", 30), (None, 30), ("late 20", 20)]
    records = [("rows", "k", value, at) for value, at in updates]
    assert run(builder.build(), *records, ("in", "k", "v", 40)) == [("k", row, 40)]


def test_stream_meets_nothing_that_is_older_than_the_history() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.table("rows", materialized=versioned())
    builder.stream("in").join(table, lambda value, row: row).to("out")
    records = [("rows", "k", "at 10", 10), ("rows", "k", "at 30", 30), ("rows", "x", "x", 200), ("in", "k", "v", 15)]
    assert run(builder.build(), *records, ("in", "k", "v", 150)) == [("k", "at 30", 150)]


def test_filters_and_mappings_without_a_store_are_read_as_of_the_record() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.table("rows", materialized=versioned())
    seen = table.filter(lambda key, value: "late" not in value).map_values(str.upper)
    builder.stream("in").left_join(seen, lambda value, row: str(row)).to("out")
    asked = tuple(("in", "k", "v", at) for at in (15, 25, 35))
    assert [value for _, value, _ in run(builder.build(), *UPDATES, *asked)] == ["AT 10", "None", "AT 30"]


def test_late_updates_are_sent_on_but_not_those_older_than_the_history() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.table("rows", materialized=versioned()).map_values(str.upper).to_stream().to("out")
    found = run(builder.build(), *UPDATES, ("rows", "k", "new", 200), ("rows", "k", "too late", 99))
    assert found == [("k", "AT 10", 10), ("k", "AT 30", 30), ("k", "LATE 20", 20), ("k", None, 40), ("k", "NEW", 200)]


def test_aggregates_of_a_table_leave_late_updates_out() -> None:
    def counted(materialized: Materialized[str, str]) -> list[Any]:
        builder = StreamsBuilder(key=STRING, value=STRING)
        grouped = builder.table("rows", materialized=materialized).group_by(lambda key, value: (value, value))
        grouped.count().map_values(str, value=STRING).to_stream().to("out")
        updates = [("rows", "k", "a", 10), ("rows", "k", "b", 30), ("rows", "k", "a", 20)]
        return [(key, value) for key, value, _ in run(builder.build(), *updates)]

    assert counted(versioned()) == [("a", "1"), ("a", "0"), ("b", "1")]
    assert counted(Materialized("rows")) == [("a", "1"), ("a", "0"), ("b", "1"), ("b", "0"), ("a", "1")]


def join(left: KTable[Any, Any], right: KTable[Any, Any]) -> KTable[Any, str]:
    return left.join(right, lambda one, other: f"{one}+{other}")


def left_join(left: KTable[Any, Any], right: KTable[Any, Any]) -> KTable[Any, str]:
    return left.left_join(right, lambda one, other: f"{one}+{other}")


def outer_join(left: KTable[Any, Any], right: KTable[Any, Any]) -> KTable[Any, str]:
    return left.outer_join(right, lambda one, other: f"{one}+{other}")


def foreign_key_join(left: KTable[Any, Any], right: KTable[Any, Any]) -> KTable[Any, str]:
    return left.join(right, lambda one, other: f"{one}+{other}", on=lambda key, value: key)


@pytest.mark.parametrize("joined", [join, left_join, outer_join, foreign_key_join])
def test_joins_of_tables_leave_late_updates_of_either_side_out(
    joined: Callable[[KTable[Any, Any], KTable[Any, Any]], KTable[Any, str]],
) -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    left = builder.table("left", materialized=versioned("left-rows"))
    right = builder.table("right", materialized=versioned("right-rows"))
    joined(left, right).to_stream().to("out")
    found = run(
        builder.build(),
        ("left", "k", "l", 10),
        ("right", "k", "r", 20),
        ("left", "k", "late", 5),
        ("right", "k", "late", 15),
        ("left", "k", "l2", 30),
    )
    assert [value for _, value, _ in found if "None" not in value] == ["l+r", "l2+r"]


def test_filter_of_a_versioned_table_sends_deletions_of_what_never_passed() -> None:
    def passed(materialized: Materialized[str, str]) -> list[Any]:
        builder = StreamsBuilder(key=STRING, value=STRING)
        rows = builder.table("rows", materialized=materialized)
        rows.filter(lambda key, value: value == "yes").to_stream().to("out")
        return [value for _, value, _ in run(builder.build(), ("rows", "k", "no", 1), ("rows", "k", "yes", 2))]

    assert passed(versioned()) == [None, "yes"]
    assert passed(Materialized("rows")) == ["yes"]


def test_filter_in_a_plain_store_ends_the_versions() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    rows = builder.table("rows", materialized=versioned()).filter(lambda key, value: True, store="kept")
    rows.group_by(lambda key, value: (value, value)).count().map_values(str, value=STRING).to_stream().to("out")
    updates = [("rows", "k", "a", 10), ("rows", "k", "b", 30), ("rows", "k", "c", 20)]
    found = [(key, value) for key, value, _ in run(builder.build(), *updates)]
    assert found[-2:] == [("b", "0"), ("c", "1")]


def test_counts_can_be_kept_in_versions() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    counts = builder.stream("in").group_by_key().count(materialized=versioned("counts"))
    builder.stream("asked").join(counts, lambda value, count: str(count)).to("out")
    records = [("in", "k", "v", 10), ("in", "k", "v", 20), ("in", "k", "v", 15), ("asked", "k", "?", 12)]
    found = run(builder.build(), *records, ("asked", "k", "?", 20))
    assert [value for _, value, _ in found] == ["1", "3"]


def test_changelog_of_a_versioned_table_has_each_version_under_its_own_time() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.table("rows", materialized=versioned())
    topology = builder.build()
    (changelog,) = topology.metadata("app").subtopologies[0].changelogs.values()
    assert changelog.config["min.compaction.lag.ms"] == str(HISTORY_MS + 86_400_000)
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("rows", key=STRING, value=STRING)
        for _, key, value, at in UPDATES:
            source.send(key, value, timestamp_ms=at)
        written = written_by(driver)
        (logged,) = (written[partition] for partition in written if partition.topic.endswith("rows-changelog"))
        assert [(record.value(), record.timestamp()[1]) for record in logged] == [
            (b"at 10", 10),
            (b"at 30", 30),
            (b"late 20", 20),
            (None, 40),
        ]


def test_history_is_refused_where_it_makes_no_sense() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    rows = builder.table("rows", materialized=versioned())
    with pytest.raises(TopologyError, match="needs a name"):
        Materialized(history=1)
    with pytest.raises(TopologyError, match="a global table has no history"):
        builder.global_table("global", materialized=versioned("global-rows"))
    with pytest.raises(TopologyError, match="suppress needs a table without versions"):
        rows.map_values(str.upper).suppress(Suppressed.until_time_limit(10))
    with pytest.raises(TopologyError, match="cannot have both a ttl and a history"):
        builder.table("both", materialized=Materialized("both-rows", history=1, ttl=1))
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10))
    with pytest.raises(TopologyError, match="set a retention, not a history"):
        windowed.count(materialized=Materialized("counts", value=INT64, history=1))
