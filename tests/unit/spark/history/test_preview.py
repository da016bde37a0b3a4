"""A preview without Spark: its processor, with state in dictionaries, and workers that lose their memory."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streams_py import Materialized, StreamsBuilder, Topology, serdes

pytest.importorskip("pyspark")

from pyspark.sql import Row

from streams_py.errors import ProcessingError
from streams_py.history.loading import TopologySource
from streams_py.history.plan import plan_history
from streams_py.history.refuse_preview import preview_findings
from streams_py.history.task import StageOrders
from streams_py.spark.history import preview
from streams_py.spark.history.preview import PreviewProcessor
from streams_py.state.custom.lru import lru_map
from streams_py.topology.declare.windows import EmitStrategy
from tests.support.history.previews import PROGRAMS, TUMBLING, joined, some_records
from tests.support.history.runs import Given, Written, driven

CONFIG: dict[str, Any] = {"application.id": "test", "statestore.cache.max.bytes": 0}


class Value:
    def __init__(self) -> None:
        self.held: Any = None

    def exists(self) -> bool:
        return self.held is not None

    def get(self) -> Any:
        return self.held

    def update(self, value: Any) -> None:
        self.held = value


class Entries:
    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def iterator(self) -> Iterator[Any]:
        return iter(list(self.held.items()))

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802  # Spark's names
        self.held[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        self.held.pop(key, None)


class Handle:
    """The state of one task."""

    def __init__(self) -> None:
        self.value, self.entries = Value(), Entries()

    def getValueState(self, name: str, schema: str) -> Value:  # noqa: N802
        return self.value

    def getMapState(self, name: str, key: str, value: str) -> Entries:  # noqa: N802
        return self.entries


class Query:
    """Micro-batches of a topology. ``forget``: other workers process the next batch."""

    def __init__(self, topology: Callable[[], Topology], partitions: int) -> None:
        source = TopologySource(topology, CONFIG)
        plan = plan_history(source.build(), "test", CONFIG, {"in": partitions})
        self.orders = StageOrders(source, CONFIG, plan.stages[0])
        self.handles = [Handle() for _ in range(partitions)]
        self.rows: list[Row] = []

    def batch(self, records: list[Given]) -> None:
        for number, handle in enumerate(self.handles):
            processor = PreviewProcessor(self.orders)
            processor.init(handle)  # type: ignore[arg-type]  # as much of it as is used
            given = [
                Row(offset=one.offset, timestamp_ms=one.timestamp_ms, key=one.key, value=one.value, headers=None)
                for one in records
                if one.partition == number
            ]
            random.Random(len(given)).shuffle(given)
            self.rows += processor.handleInputRows((number,), iter(given), None)
            processor.close()

    def written(self, task: int) -> list[Written]:
        """Records of the only output topic, in the order of ``seq``."""
        rows = sorted((row for row in self.rows if row[6] == task), key=lambda row: row[7])
        assert [row[7] for row in rows] == list(range(len(rows)))
        return [(*row[:5], None) for row in rows]


def forget() -> None:
    while preview._kept:  # workers keep tasks until they end
        preview._kept.popitem()[1].task.close()  # see above


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    forget()


def built(describe: Callable[[Any], Any]) -> Callable[[], Topology]:
    def make() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        describe(builder.stream("in")).to("out")
        return builder.build()

    return make


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_preview_writes_what_the_live_application_does_however_often_it_is_restarted(
    program: str, restarts: bool
) -> None:
    topology, records = built(PROGRAMS[program]), some_records(2)
    live = driven(topology(), records, 2, CONFIG)["out"]
    query, chance = Query(topology, 2), random.Random(3)
    while records:
        size = chance.randrange(1, 60)
        query.batch(records[:size])
        records = records[size:]
        if restarts:
            forget()
    by_task = {number: query.written(number) for number in (0, 1)}
    if program in ("stateless", "reduce"):  # these keep the key, so the output's partition tells the task
        assert by_task == {number: [row for row in live if row[1] == number] for number in (0, 1)}
    else:
        assert sorted(map(repr, by_task[0] + by_task[1])) == sorted(map(repr, live))
        for rows in by_task.values():
            assert [row for row in live if row in rows] == rows
    assert len(live) > 100


def test_micro_batch_that_is_repeated_counts_once() -> None:
    topology, records = built(PROGRAMS["reduce"]), some_records(1)
    live = driven(topology(), records, 1, CONFIG)["out"]
    query = Query(topology, 1)
    query.batch(records[:100])
    before = query.handles[0].value.held, dict(query.handles[0].entries.held), len(query.rows)
    query.batch(records[100:150])  # its state and rows are lost, the worker lives on
    query.handles[0].value.held, query.handles[0].entries.held = before[0], before[1]
    del query.rows[before[2] :]
    query.batch(records[100:150])
    query.batch(records[120:])  # the source repeats some that are known
    assert query.written(0) == live


def test_expired_windows_leave_the_state() -> None:
    query = Query(built(PROGRAMS["tumbling"]), 1)
    sizes = []
    for number in range(30):
        times = range(number * 1_000_000, number * 1_000_000 + 500, 50)
        records = [Given("in", 0, number * 10 + at, time_ms, b"k", b"v") for at, time_ms in enumerate(times)]
        query.batch(records)
        sizes.append(len(query.handles[0].entries.held))
        if number % 5 == 0:
            forget()
    assert max(sizes[5:]) <= 2 * sizes[0] + 80_000_000 // 1_000_000 * 10 + 10
    assert sizes[-1] < 30 * 10


def test_what_user_code_raises_names_where() -> None:
    query = Query(built(lambda stream: stream.map_values(lambda value: str(1 // (len(value) - 2)))), 1)
    with pytest.raises(ProcessingError, match=r"task 0_0.*in-0 at offset 7"):
        query.batch([Given("in", 0, 7, 5, b"k", b"vv")])


def refused(describe: Callable[[Any, StreamsBuilder], object]) -> list[str]:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    describe(builder.stream("in"), builder)
    return [str(finding) for finding in preview_findings(builder.build(), "app", {})]


def process(record: Any, context: Any) -> Any:
    yield record


@pytest.mark.parametrize(
    ("describe", "rule"),
    [
        (lambda s, _: s.group_by(lambda k, v: v).count(store="c"), "app-c-repartition.*another topic first"),
        (lambda s, b: s.merge(b.stream("more")).to("out"), "reads 2 topics"),
        (lambda s, b: s.join(b.table("names"), joined).to("out"), "reads 2 topics"),
        (lambda s, b: s.process(process).to("out"), "does not support ProcessorOperator"),
        (
            lambda s, b: s.join(b.global_table("g"), joined, on=lambda k, v: k).to("out"),
            "updates of the global table of .* a record has seen is not recorded; run it live, or over its history",
        ),
        (
            lambda s, _: s.group_by_key().reduce(joined, materialized=Materialized("last", supplier=lru_map(3))),
            "store last: it is a custom store, .*; run it live, or over its history",
        ),
        (lambda s, _: s.peek(print).to("out"), "called again"),
        (lambda _, b: b.stream(re.compile("a.*")).to("out"), "pattern"),
        (lambda s, b: s.to_table(store="t"), "does not support TableSource"),
    ],
)
def test_what_a_preview_cannot_is_refused(describe: Callable[[Any, StreamsBuilder], object], rule: str) -> None:
    assert any(re.search(rule, found) for found in refused(describe)), refused(describe)


def test_windows_that_are_emitted_when_they_close_are_refused() -> None:
    def describe(stream: Any, _: StreamsBuilder) -> None:
        windows = stream.group_by_key().windowed_by(TUMBLING, emit=EmitStrategy.ON_WINDOW_CLOSE)
        windows.reduce(joined, store="w")

    assert any("when they close" in found for found in refused(describe)), refused(describe)
    assert refused(lambda s, _: PROGRAMS["tumbling"](s).to("out")) == []
