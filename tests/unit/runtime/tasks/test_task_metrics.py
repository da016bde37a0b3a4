"""Measurements of a task's records. Measuring must not change the processing, and only happens if it is enabled."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py import serdes
from streams_py.errors import BrokerUnavailableError
from streams_py.runtime.client.metrics import At, task_metrics
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.support.runtime.task_kit import Kit, record

NODES = "stream-processor-node-metrics"
TASK = "stream-task-metrics{thread-id=t,task-id=0_0}"


class Passing(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "slow":
            raise BrokerUnavailableError("the broker is away")
        self.context.forward(record)


def topology(*topics: str) -> Topology:
    made = Topology().add_source("source", topics or ("in",)).add_processor("last", Passing, "source")
    return made.add_sink("sink", "out", "source")


def metrics(kit: Kit, *, seconds: float = 2.0) -> dict[str, dict[str, float | str]]:
    kit.stores.cache_metrics = list  # type: ignore[attr-defined]
    return task_metrics("t", [kit.task], At(kit.clock.now_ms(), seconds, kit.settings.is_measured))


def node(kit: Kit, name: str) -> dict[str, float | str]:
    return metrics(kit).get(f"{NODES}{{thread-id=t,task-id=0_0,processor-node-id={name}}}", {})


def topic(kit: Kit, name: str, topic: str) -> dict[str, float | str]:
    tags = f"thread-id=t,task-id=0_0,processor-node-id={name},topic={topic}"
    return metrics(kit).get(f"stream-topic-metrics{{{tags}}}", {})


@pytest.mark.parametrize("is_measured", [False, True])
def test_source_says_how_old_the_first_record_of_a_batch_is_when_it_is_asked_to_look(is_measured: bool) -> None:
    kit = Kit(topology(), is_measured=is_measured)
    now_ms = kit.clock.now_ms()
    for offset, age_ms in enumerate((500, 400, 300, 1, 0)):
        kit.add(record("v", at=now_ms - age_ms, offset=offset))
    assert "record-e2e-latency-avg" not in node(kit, "source")
    for count, looks in ((2, False), (1, False), (1, True), (1, False)):
        if looks:
            kit.task.records.samples_next = True
        assert kit.task.process(count) == count
    assert kit.task.process(1) == 0
    found = node(kit, "source")
    names = ("record-e2e-latency-avg", "record-e2e-latency-min", "record-e2e-latency-max")
    assert [found[name] for name in names] == [250.5, 1, 500]
    kit.clock.advance(60_001)
    assert "record-e2e-latency-max" not in node(kit, "source")


def test_source_measures_no_record_that_is_not_taken_or_has_no_time() -> None:
    kit = Kit(topology())
    kit.add(record("slow", at=5))
    assert kit.task.process(1) == 0
    assert node(kit, "source") == {}
    several = Kit(topology("a", "b"), inputs=("a", "b"), max_task_idle_ms=100)
    several.positions.lags[several.partitions[1]] = 1
    several.add(record("x", topic="a"))
    assert several.task.process(1) == 0
    assert node(several, "source") == {}


def test_nodes_after_which_nothing_comes_are_measured_at_their_end_with_debug_only() -> None:
    kit, quiet = Kit(topology(), is_measured=True), Kit(topology())
    for each in (kit, quiet):
        each.add(record("a", at=each.clock.now_ms() - 20), record("b", at=each.clock.now_ms() - 10, offset=1))
        assert each.task.process(5) == 2
    for name in ("last", "sink"):
        found = node(kit, name)
        assert (found["record-e2e-latency-min"], found["record-e2e-latency-max"]) == (10, 20)
        assert (found["process-total"], found["process-rate"]) == (2, 1)
        assert node(quiet, name) == {}
    assert set(node(quiet, "source")) == {f"record-e2e-latency-{of}" for of in ("avg", "min", "max")}
    assert node(kit, "source")["process-total"] == 2


def test_lateness_is_the_distance_to_stream_time() -> None:
    kit = Kit(topology(), is_measured=True)
    for offset, at in enumerate((100, 70, 110, 109)):
        kit.add(record("v", at=at, offset=offset))
    assert "record-lateness-max" not in metrics(kit)[TASK]
    kit.task.process(10)
    assert (metrics(kit)[TASK]["record-lateness-avg"], metrics(kit)[TASK]["record-lateness-max"]) == (31 / 4, 30)
    quiet = Kit(topology())
    quiet.add(record("v", at=1))
    quiet.task.process(1)
    assert "record-lateness-avg" not in metrics(quiet)[TASK]


@pytest.mark.parametrize("extracts", [False, True])
def test_records_taken_while_a_partition_is_empty_are_enforced(extracts: bool) -> None:
    options = {"timestamp_extractor": lambda key, value, time_ms, partition_ms: time_ms} if extracts else {}
    several = Topology().add_source("source", ("a", "b"), **options).add_processor("last", Passing, "source")
    kit = Kit(several, inputs=("a", "b"), max_task_idle_ms=0, is_measured=True)
    a, b = kit.partitions
    kit.positions.lags.update({a: 0, b: 0})
    kit.add(record("1", topic="a"), record("2", topic="b"), record("3", topic="a", offset=1, at=3))
    kit.add(record("4", topic="a", offset=2, at=4), record("slow", topic="a", offset=3, at=5))
    kit.task.process(10)
    found = metrics(kit)[TASK]
    assert found["enforced-processing-total"] == 2  # not the failed record, nor those before b was empty
    assert found["enforced-processing-rate"] == 1


def test_nothing_is_enforced_when_the_task_never_waits() -> None:
    kit = Kit(topology("a", "b"), inputs=("a", "b"), max_task_idle_ms=-1, is_measured=True)
    kit.add(record("1", topic="a"), record("2", topic="a", offset=1))
    assert kit.task.process(10) == 2
    assert metrics(kit)[TASK]["enforced-processing-total"] == 0


def test_topics_say_bytes_as_kafka_streams_counts_them_with_debug_only() -> None:
    headers = [("h", b"12"), ("none", None)]
    kit = Kit(topology(), is_measured=True)
    kit.add(record("abc", key="k", at=7, headers=headers), record(None, key=None, offset=1, at=8))
    assert kit.task.process(5) == 2
    fixed = 8 + 8 + 4  # timestamp, offset, partition
    assert topic(kit, "source", "in") == {
        "records-consumed-total": 2,
        "bytes-consumed-total": 2 * (fixed + len("in")) + len("k") + len("abc") + len("h12none"),
    }
    assert topic(kit, "sink", "out") == {
        "records-produced-total": 2,
        "bytes-produced-total": 2 * (fixed + len("out")) + len("k") + len("abc") + len("h12none"),
    }
    quiet = Kit(topology())
    quiet.add(record("abc", at=7))
    quiet.task.process(1)
    assert topic(quiet, "source", "in") == {"records-consumed-total": 1}
    assert topic(quiet, "sink", "out") == {}


def test_every_kind_of_sink_counts_what_it_sends() -> None:
    window = serdes.time_windowed(serdes.STRING, 10)
    made = Topology().add_source("source", ("in",), key=window)
    made.add_sink("windowed", "w", "source", key=window)
    made.add_sink("chosen", lambda key, value, context: "c", "source", key=window)
    made.add_sink("parted", "p", "source", key=window, partitioner=lambda topic, key, value, count: (0, 0))
    kit = Kit(made, is_measured=True)
    raw = window.serializer("in", is_key=True)(serdes.Windowed("k", 0, 10))
    kit.task.add_records(kit.partitions[0], [MemoryRecord("in", 0, 0, raw, b"v")])
    assert kit.task.process(1) == 1
    sent = {name: topic(kit, name, to)["records-produced-total"] for name, to in (("windowed", "w"), ("chosen", "c"))}
    assert sent == {"windowed": 1, "chosen": 1}
    assert topic(kit, "parted", "p")["records-produced-total"] == 2


def test_records_below_a_measured_chain_arrive_unchanged() -> None:
    kit, quiet = Kit(topology(), is_measured=True), Kit(topology())
    for each in (kit, quiet):
        each.add(record("a", at=3, headers=[("h", b"1")]))
        each.task.process(1)
    assert kit.sent("out") == quiet.sent("out") == [(b"k", b"a", 3)]
