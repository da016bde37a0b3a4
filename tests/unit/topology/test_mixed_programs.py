"""Programs that mix operators: described as by Kafka Streams, and the same records out, in changelogs and in stores.

Recorded with Kafka Streams' TopologyTestDriver: random input with null keys and values, headers, late records and jumps
of time, once without and once with a record cache.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streams_py.runtime.tasks.task_settings import TaskSettings
from streams_py.serdes import STRING
from streams_py.testing.in_process import InProcessTasks, WholeTopology
from streams_py.testing.memory_clients import ManualClock, MemoryRecord
from streams_py.topology.stores import StoreKind
from streams_py.topology.topology import Topology
from tests.conformance.programs.user_code import show

from . import chained_programs, edge_programs, mixed_programs

BUILD = {
    id: programs.build for programs in (mixed_programs, edge_programs, chained_programs) for id in programs.PROGRAMS
}
RUNS: dict[str, dict[str, Any]] = {
    f"{run['id']}-cache-{run['cache']}-{number}": run
    for path in sorted(Path(__file__).with_name("recorded").glob("*.jsonl.gz"))
    for number, run in enumerate(map(json.loads, gzip.decompress(path.read_bytes()).splitlines()))
}
Rows = Iterable[list[Any]]


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_program_does_what_kafka_streams_does(run: dict[str, Any]) -> None:
    topology = BUILD[run["id"]](run["id"])
    assert in_one_order(topology.describe()) == in_one_order(run["describe"])
    rows, stores = feed(topology, run)
    ours, theirs = by_topic(rows), by_topic(run["rows"])
    assert ours.keys() == theirs.keys()
    for topic in theirs:
        assert ours[topic] == theirs[topic], topic
    assert {name: sorted(stores[name]) for name in run["stores"]} == {
        name: sorted(rows) for name, rows in run["stores"].items()
    }


def test_every_program_is_recorded() -> None:
    assert {run["id"] for run in RUNS.values()} == set(BUILD)


def feed(topology: Topology, run: dict[str, Any]) -> tuple[Rows, dict[str, list[str]]]:
    rows: list[list[Any]] = []
    step = 0

    def sent(record: MemoryRecord) -> None:
        timestamp = None if record.producers_clock else record.timestamp()[1]
        headers = [[name, as_hex(value)] for name, value in record.headers() or ()]
        rows.append([step, record.topic(), as_hex(record.key()), as_hex(record.value()), timestamp, headers])

    tasks = InProcessTasks(
        WholeTopology.units_of(topology),
        TaskSettings(application_id="app", default_key_serde=STRING, default_value_serde=STRING, emit_interval_ms=0),
        clock=ManualClock(1_000_000),
        cache_max_bytes=run["cache"],
        on_sent=sent,
    )
    for step, given in enumerate(run["inputs"]):  # noqa: B007  # `sent` reads it
        if "advance" in given:
            tasks.advance(given["advance"])
            tasks.commit()
        else:
            headers = [(name, as_bytes(value)) for name, value in given["headers"]]
            key, value = as_bytes(given["key"]), as_bytes(given["value"])
            tasks.write(given["topic"], key, value, given["timestamp"], headers or None, 0)
        tasks.drain(commit=True)
    stores = {name: contents(tasks.store(name, 0), builder.kind) for name, builder in topology.stores.items()}
    return rows, stores


def contents(store: Any, kind: StoreKind) -> list[str]:
    match kind:
        case StoreKind.TIMESTAMPED_KEY_VALUE:
            return [f"{show(key)}|{show(pair.value)}|{pair.timestamp}" for key, pair in store.all()]
        case StoreKind.TIMESTAMPED_WINDOW:
            return [f"{show(key.key)}|{key.start}|{show(pair.value)}|{pair.timestamp}" for key, pair in store.all()]
        case _:
            return []


def by_topic(rows: Rows) -> dict[str, list[list[Any]]]:
    """A buffer writes the changes of one commit in any order: its records alone have no timestamp."""
    topics: defaultdict[str, list[list[Any]]] = defaultdict(list)
    for row in rows:
        topics[row[1]].append(row)
    return {
        topic: sorted(rows, key=lambda row: (row[0], row[2])) if all(row[4] is None for row in rows) else rows
        for topic, rows in topics.items()
    }


def in_one_order(description: str) -> list[str]:
    def sort(found: re.Match[str]) -> str:
        return f"{found[1]}{', '.join(sorted(found[2].split(', ')))}{found[3]}"

    text = re.sub(r"extractor class: .*\)", "extractor class)", description)
    lines = (re.sub(r"(--> |<-- )(.*)()$", sort, line.rstrip()) for line in text.splitlines())
    return [re.sub(r"(\(stores: \[)(.*)(\]\))", sort, line) for line in lines]


def as_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
