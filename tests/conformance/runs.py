"""Compares topologies with recorded runs: every record in every topic, and the stores at the end.

A run is repeated as it was recorded. The whole topology is one task, every topic has one partition, and records in
topics that the topology reads are delivered immediately. The recording leaves two things undefined, and so does this
comparison: the order of outputs *across* topics if two input records had equal timestamps or caches were flushed, and
the order of rows in a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import STRING
from streams_py.system.quiet_logs import quiet_logs
from streams_py.testing.in_process import InProcessTasks
from streams_py.testing.memory_clients import ManualClock, MemoryRecord
from streams_py.topology.declare.stores import StoreKind
from streams_py.topology.topology import Topology
from tests.conformance.programs import APPLICATION_ID, program_of
from tests.conformance.store_rows import rows_of
from tests.support.topology.whole_topology import WholeTopology

Case: TypeAlias = Mapping[str, Any]
_Row: TypeAlias = dict[str, Any]

_FIELDS: Final = {"id", "run", "config", "inputs", "outputs", "changelogs", "stores", "disk_differs", "ties"}
_INPUT_FIELDS: Final = {"topic", "partition", "key", "value", "timestamp", "headers"}
_CACHE_BYTES: Final = 10 * 1024 * 1024
# The meaning of each run number: cache, commit_every, throttle. The clock always starts at the same time.
_RUNS: Final = {0: (0, 1, 0), 1: (0, 1, 1000), 2: (0, 1, 0), 3: (_CACHE_BYTES, 1, 0), 4: (_CACHE_BYTES, 5, 0)}
_LATE_RUN: Final = 2
"""Like run 0, but its records are of our time: the latest timestamp is above the next number."""
_LATE_MS: Final = 1_600_000_000_000
_DISK_DIFFERS: Final = {"outputs", "order", "changelogs", "stores"}
"""What may depend on where stores are: the expiry of windows, the order of closed sessions. Ours are in memory here."""
_START_MS: Final = 1_000_000
_UNLISTED: Final = {StoreKind.SUPPRESSION, StoreKind.JOIN_BUFFER, StoreKind.VERSIONED_KEY_VALUE}
"""Kinds of stores that cannot be asked for all that they hold."""


def run_topology_run(case: Case) -> str | None:
    """None when our run equals the recorded one, else the first difference.

    Raises NotSupportedCaseError for a program that uses what this library does not have.
    """
    program = program_of(case["id"])
    topology = program.make(program.optimization)
    unlike = _unlike_any_recording(case, program.optimization, topology)
    if unlike is not None:
        return unlike
    run = _Run(topology, case["config"])
    with quiet_logs("streams_py.runtime.tasks.record.failures"):
        run.feed(case["inputs"])
    return (
        _numbers_differ("ties", run.ties, case["ties"])
        or _outputs_differ(run.outputs, case)
        or _unknown("changelogs", case["changelogs"], run.changelog_topics)
        or _topics_differ(
            "changelog", run.with_buffers_sorted(run.changelogs), run.with_buffers_sorted(case["changelogs"])
        )
        or _stores_differ(run.store_rows(), case["stores"])
    )


def _unlike_any_recording(case: Case, optimization: str, topology: Topology) -> str | None:
    """Checks what has no influence on the run, or only on programs with windows, so that a change of it is noticed."""
    unknown = set(case) ^ _FIELDS
    if unknown:
        return f"fields missing or unknown: {', '.join(sorted(unknown))}"
    odd = next((value for value in _values(case) if value.__class__ not in (str, int, type(None))), None)
    if odd is not None:  # Python takes True and 1.0 for 1
        return f"{odd!r} is neither a text nor a whole number"
    if case["run"] not in _RUNS:
        return f"unknown run {case['run']}"
    cache, commit_every, throttle = _RUNS[case["run"]]
    config = {
        "topology.optimization": optimization,
        "statestore.cache.max.bytes": cache,
        "commit_every": commit_every,
        "emit_interval_ms": throttle,
        "wall_clock_ms": _START_MS,
    }
    if case["config"] != config:
        return f"config of run {case['run']}: expected {config}, got {case['config']}"
    on_disk = case["disk_differs"]
    if len(_DISK_DIFFERS.intersection(on_disk)) != len(on_disk):
        return f"disk_differs: {on_disk}, of which not all are known, or some are there twice"
    if on_disk and not any(store.windows for store in topology.stores.values()):
        return f"disk_differs: {on_disk}, but only the expiry of windows depends on the medium"
    latest_ms = max((step["timestamp"] for step in case["inputs"] if "timestamp" in step), default=0)
    if (latest_ms >= _LATE_MS) != (case["run"] == _LATE_RUN):
        return f"run {case['run']} has no records as late as {latest_ms}"
    for number, step in enumerate(case["inputs"]):
        fields = set(step) ^ ({"advance_wall_clock_ms"} if "advance_wall_clock_ms" in step else _INPUT_FIELDS)
        if fields or step.get("partition", 0) != 0:
            return f"input {number} is not a step of a recording: {step}"
    return None


class _Run:
    """One topology at work, and everything that came out of it."""

    def __init__(self, topology: Topology, config: Case) -> None:
        self.outputs: list[_Row] = []
        self.changelogs: dict[str, list[_Row]] = {}
        self._topology = topology
        self._commit_every: int = config["commit_every"]
        self._step = 0
        own = {name: topology.changelog_topic(name, APPLICATION_ID) for name, b in topology.stores.items() if b.logging}
        self.changelog_topics = frozenset(own[name] for name in own if topology.stores[name].source_topic is None)
        self._buffers = {own[name] for name in own if topology.stores[name].kind is StoreKind.SUPPRESSION}
        settings = TaskSettings(
            application_id=APPLICATION_ID,
            default_key_serde=STRING,
            default_value_serde=STRING,
            emit_interval_ms=config["emit_interval_ms"],
            reference_behaviour=True,
        )
        self._tasks = InProcessTasks(
            WholeTopology.units_of(topology),
            settings,
            clock=ManualClock(config["wall_clock_ms"]),
            cache_max_bytes=config["statestore.cache.max.bytes"],
            on_sent=self._sent,
        )

    @property
    def ties(self) -> int:
        """How often it was left to us which record to take."""
        return self._tasks.ties

    def _sent(self, record: MemoryRecord) -> None:
        row = {
            "step": self._step,
            "key": _hex(record.key()),
            "value": _hex(record.value()),
            "timestamp": None if record.producers_clock else record.timestamp()[1],
            "headers": [[name, _hex(value)] for name, value in record.headers() or ()],
        }
        topic = record.topic()
        if topic in self.changelog_topics:
            self.changelogs.setdefault(topic, []).append(row)
        else:
            self.outputs.append({**row, "topic": topic})

    def feed(self, inputs: Sequence[Case]) -> None:
        """All input steps, then commits until nothing more comes of them."""
        each = self._commit_every == 1
        for self._step, step in enumerate(inputs):
            if "advance_wall_clock_ms" in step:
                self._tasks.advance(step["advance_wall_clock_ms"])
                if each:
                    self._tasks.commit()
            else:
                self._write(step)
            self._tasks.drain(commit=each)
            if not each and (self._step + 1) % self._commit_every == 0:
                self._tasks.commit()
                self._tasks.drain(commit=False)
        self._step = len(inputs)
        while not each:
            self._tasks.commit()
            if not self._tasks.drain(commit=False):
                break

    def _write(self, step: Case) -> None:
        if not self._tasks.readers_of(step["topic"]):
            raise ValueError(f"the topology does not read topic {step['topic']!r}")
        headers = [(name, _bytes(value)) for name, value in step["headers"]]
        key, value = _bytes(step["key"]), _bytes(step["value"])
        self._tasks.write(step["topic"], key, value, step["timestamp"], headers or None, step["partition"])

    def with_buffers_sorted(self, changelogs: Mapping[str, Sequence[_Row]]) -> dict[str, Sequence[_Row]]:
        """Buffers of suppress are written at a commit, their keys in any order."""

        def ordered(rows: Sequence[_Row]) -> list[_Row]:
            steps = groupby(rows, itemgetter("step"))
            return [row for _, of_step in steps for row in sorted(of_step, key=itemgetter("key"))]

        return {topic: ordered(rows) if topic in self._buffers else rows for topic, rows in changelogs.items()}

    def store_rows(self) -> dict[str, list[list[Any]]]:
        """The content of every store, in serialized form."""
        return {
            name: rows_of(self._tasks.store(name, 0), builder)
            for name, builder in self._topology.stores.items()
            if builder.kind not in _UNLISTED
        }


def _values(content: Any) -> Iterator[Any]:
    """All that is neither list nor object."""
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _values(part)
    else:
        yield content


def _numbers_differ(what: str, ours: int, theirs: int) -> str | None:
    return None if ours == theirs else f"{what}: expected {theirs}, got {ours}"


def _outputs_differ(ours: Sequence[_Row], case: Case) -> str | None:
    theirs = case["outputs"]
    if case["ties"] == 0 and case["config"]["statestore.cache.max.bytes"] == 0:
        return _rows_differ("output", ours, theirs)
    return _topics_differ("output to", _by_topic(ours), _by_topic(theirs))


def _by_topic(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    topics: dict[str, list[_Row]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(row)
    return topics


def _topics_differ(what: str, ours: Mapping[str, Sequence[_Row]], theirs: Mapping[str, Sequence[_Row]]) -> str | None:
    for topic in sorted({*ours, *theirs}):
        difference = _rows_differ(f"{what} {topic}", ours.get(topic, ()), theirs.get(topic, ()))
        if difference is not None:
            return difference
    return None


def _rows_differ(what: str, ours: Sequence[Any], theirs: Sequence[Any]) -> str | None:
    for number, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        if our != their:
            return f"{what}, record {number}: expected {their}, got {our}"
    if len(ours) != len(theirs):
        first = (ours if len(ours) > len(theirs) else theirs)[min(len(ours), len(theirs))]
        return f"{what}: expected {len(theirs)} records, got {len(ours)}; the first one too many or too few is {first}"
    return None


def _unknown(what: str, names: Iterable[str], known: Iterable[str]) -> str | None:
    unknown = sorted(set(names).difference(known))
    return f"{what}: there is no {', '.join(unknown)}" if unknown else None


def _names_differ(what: str, ours: Iterable[str], theirs: Iterable[str]) -> str | None:
    if set(ours) == set(theirs):
        return None
    return f"{what}: expected {', '.join(sorted(theirs)) or 'none'}, got {', '.join(sorted(ours)) or 'none'}"


def _stores_differ(ours: Mapping[str, list[list[Any]]], theirs: Mapping[str, list[list[Any]]]) -> str | None:
    names_differ = _names_differ("stores", ours, theirs)
    if names_differ is not None:
        return names_differ
    for name, rows in sorted(theirs.items()):
        difference = _rows_differ(f"store {name}", sorted(ours[name]), sorted(rows))
        if difference is not None:
            return difference
    return None


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
