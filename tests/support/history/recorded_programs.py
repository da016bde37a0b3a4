"""The recorded programs of Apache Kafka Streams as runs over a history: their inputs and expected results."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from streams_py.history.refuse import Allowances, findings
from streams_py.serdes import STRING
from streams_py.topology.declare.stores import StoreKind
from streams_py.topology.topology import Topology
from tests.conformance.programs import APPLICATION_ID, program_of
from tests.support.history.runs import Given, Headers, Written, folded

_RUNS: Final = Path(__file__).parents[2] / "vectors" / "topology" / "runs.jsonl.gz"
CONFIG: Final = {"application.id": APPLICATION_ID, "default.key.serde": STRING, "default.value.serde": STRING}
_PLAIN: Final = 0
"""The run without caches, with a commit and a check for final results after every record."""


@cache
def recorded() -> Mapping[str, Mapping[str, Any]]:
    """Return program -> its plain run."""
    with gzip.open(_RUNS, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    return {case["id"]: case for case in cases if case["run"] == _PLAIN}


def topology_of(id: str) -> Topology:
    """Return the topology of a program."""
    program = program_of(id)
    return program.make(program.optimization)


@cache
def allowed() -> tuple[str, ...]:
    """Return the programs that may run over a history."""
    return tuple(
        id
        for id in sorted(recorded())
        if not findings(topology_of(id), APPLICATION_ID, CONFIG, Allowances(side_effects=True))
    )


def topics_of(id: str) -> set[str]:
    """Return the topics that have records."""
    return {step["topic"] for step in recorded()[id]["inputs"] if "topic" in step}


def given_of(id: str, partitions: int = 1) -> list[Given]:
    """Return the input records of the run, distributed to partitions."""
    ends: Counter[tuple[str, int]] = Counter()
    made = []
    for at, step in enumerate(recorded()[id]["inputs"]):
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


def written_of(topic: str, row: Mapping[str, Any]) -> Written:
    """Return a recorded output."""
    headers: Headers = tuple((name, _bytes(value)) for name, value in row["headers"]) or None
    time_ms = -1 if row["timestamp"] is None else row["timestamp"]
    return topic, 0, time_ms, _bytes(row["key"]), _bytes(row["value"]), headers


def alive(id: str, topic: str, written: list[Written]) -> dict[Any, Any]:
    """Return the compacted changelog, without windows and sessions that have expired in stream time."""
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
    kept_ms = builder.windows.kept_ms
    return {at: found for at, found in left.items() if at[1] and times[at[1]] > latest[at[0]] - kept_ms}
