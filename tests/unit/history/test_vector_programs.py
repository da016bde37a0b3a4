"""The recorded programs of Apache Kafka Streams over a history: the bytes of the recording, or of tasks with all
records buffered where the recording fed several topics record by record."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from streams_py.history.refuse import findings
from streams_py.serdes import STRING
from streams_py.topology.stores import StoreKind
from streams_py.topology.topology import Topology
from tests.conformance.programs import APPLICATION_ID, program_of
from tests.history_runs import Given, Headers, LocalRun, Written, buffered, folded, run_locally

pytest.importorskip("pyarrow")

_RUNS = Path(__file__).parents[2] / "vectors" / "topology" / "runs.jsonl.gz"
_CONFIG = {"application.id": APPLICATION_ID, "default.key.serde": STRING, "default.value.serde": STRING}
_PLAIN = 0
"""The run without caches, committed after every record, looked at for final results after every record."""


@cache
def recorded() -> Mapping[str, Mapping[str, Any]]:
    with gzip.open(_RUNS, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    return {case["id"]: case for case in cases if case["run"] == _PLAIN}


def topology_of(id: str) -> Topology:
    program = program_of(id)
    return program.make(program.optimization)


def is_allowed(id: str) -> bool:
    return not findings(topology_of(id), APPLICATION_ID, _CONFIG, allow_side_effects=True)


ALLOWED = [id for id in sorted(recorded()) if is_allowed(id)]
_LIVE_ONLY = {"P06", "P08", "P18", "P60", "P61", "P67", "P68", "P69", "P70", "P71", "P72"}


def topics_of(id: str) -> set[str]:
    return {step["topic"] for step in recorded()[id]["inputs"] if "topic" in step}


_OWN_COUNTS = {"P10"}
"""It says how many partitions a topic has; recordings have one of each."""
ONE_TOPIC = [id for id in ALLOWED if len(topics_of(id)) == 1 and id not in _OWN_COUNTS]


def given_of(case: Mapping[str, Any], partitions: int = 1) -> list[Given]:
    ends: Counter[tuple[str, int]] = Counter()
    made = []
    for at, step in enumerate(case["inputs"]):
        if "advance_wall_clock_ms" in step:
            continue
        key = _bytes(step["key"])
        partition = at % partitions
        ends[step["topic"], partition] += 1
        offset = ends[step["topic"], partition] - 1
        headers = [(name, _bytes(value)) for name, value in step["headers"]] or None
        made.append(Given(step["topic"], partition, offset, step["timestamp"], key, _bytes(step["value"]), headers))
    return made


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _written(topic: str, row: Mapping[str, Any]) -> Written:
    headers: Headers = tuple((name, _bytes(value)) for name, value in row["headers"]) or None
    time_ms = -1 if row["timestamp"] is None else row["timestamp"]
    return topic, 0, time_ms, _bytes(row["key"]), _bytes(row["value"]), headers


def alive(id: str, topic: str, written: list[Written]) -> dict[Any, Any]:
    """What is left of a changelog, without windows and sessions that are expired by stream time."""
    left = folded(written)
    builder = next(
        store for store in topology_of(id).stores.values() if topic == f"{APPLICATION_ID}-{store.name}-changelog"
    )
    if builder.windows is None or builder.windows.holds_back or not written:
        return left
    back = 16 if builder.kind is StoreKind.SESSION else 12
    times = {
        key: int.from_bytes(key[len(key) - back : len(key) - back + 8], signed=True)
        for *_, key, _, _ in written
        if key is not None
    }
    latest: Counter[int] = Counter()
    for _, partition, _, key, _, _ in written:
        assert key is not None
        latest[partition] = max(latest[partition], times[key])
    retention_ms = builder.windows.retention_ms
    return {at: found for at, found in left.items() if at[1] and times[at[1]] > latest[at[0]] - retention_ms}


def same_state(id: str, run: LocalRun, written: Mapping[str, list[Written]]) -> bool:
    theirs = {topic: alive(id, topic, written.get(topic, [])) for topic in run.plan.changelogs}
    return {topic: run.state.get(topic, {}) for topic in theirs} == theirs


def test_most_programs_are_allowed() -> None:
    assert len(ALLOWED) > 55
    assert {id for id in recorded() if id not in ALLOWED} <= _LIVE_ONLY


@pytest.mark.parametrize("id", ALLOWED)
def test_program_over_a_history_writes_what_tasks_with_full_buffers_write(id: str) -> None:
    case = recorded()[id]
    records = given_of(case)
    run = run_locally(lambda: topology_of(id), records, 1, _CONFIG)
    live = buffered(lambda: topology_of(id), records, 1, _CONFIG)
    assert same_state(id, run, live)
    topics = {topic for stage in run.plan.stages for topic in stage.outputs}
    for topic in topics:
        by_partition = sorted(run.records(topic), key=lambda written: written[1])
        assert by_partition == sorted(live.get(topic, []), key=lambda written: written[1])


@pytest.mark.parametrize("id", ONE_TOPIC)
def test_program_with_one_input_topic_leaves_the_recorded_state(id: str) -> None:
    case = recorded()[id]
    run = run_locally(lambda: topology_of(id), given_of(case), 1, _CONFIG)
    recording = {topic: [_written(topic, row) for row in rows] for topic, rows in case["changelogs"].items()}
    assert same_state(id, run, recording)
    outputs: dict[str, list[Written]] = {}
    for row in case["outputs"]:
        outputs.setdefault(row["topic"], []).append(_written(row["topic"], row))
    for topic, rows in outputs.items():
        assert Counter(run.records(topic)) == Counter(rows)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [2, 8])
@pytest.mark.parametrize("id", ALLOWED)
def test_program_over_several_partitions_writes_what_tasks_with_full_buffers_write(id: str, partitions: int) -> None:
    records = given_of(recorded()[id], partitions)
    live = buffered(lambda: topology_of(id), records, partitions, _CONFIG)
    run = run_locally(lambda: topology_of(id), records, partitions, _CONFIG)
    for stage in run.plan.stages:
        if not stage.upstream:  # behind several upstream tasks there are several right orders
            for topic in stage.outputs:
                assert Counter(map(_placed, run.records(topic))) == Counter(map(_placed, live.get(topic, [])))
            theirs = {topic: alive(id, topic, live.get(topic, [])) for topic in stage.changelogs}
            assert {topic: run.state.get(topic, {}) for topic in theirs} == theirs


def _placed(written: Written) -> Written:
    """Records without a key may go to any partition."""
    topic, partition, time_ms, key, value, headers = written
    return topic, -1 if key is None else partition, time_ms, key, value, headers
