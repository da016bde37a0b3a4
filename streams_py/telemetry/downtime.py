"""Measures gaps in the processing of tasks, from the last record on one member to the first on another.

The two times come from two clocks, corrected by :mod:`streams_py.telemetry.clocks`. ``skew_bound_ms`` is the largest
possible error. A negative gap stays negative, because a corrected value would hide the error. Within one process the
monotonic clock is used, and the bound is 0. A task that stays also has a gap (``kind`` is ``untouched``): from the last
record before the end of the rebalance to the first record after it.

The event about a last record may be late: a process that was frozen notices that it has lost its tasks when another
process already runs them. So a first record without a known last record waits for one. A last record that is reported
after another process has started belongs to the earlier owner.

A pause needs input that waits. ``gap_ms`` is all the time between the two records. ``paused_ms`` is the part of it in
which the task had input, and 0 if it had none. The second record arrived after its own timestamp, and after the last
time at which the old or the new owner knew that the task had no input. The latest of these times counts: a record of a
repartition topic has the timestamp of its origin, which is older than the pause of the task that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams_py.events.model import Envelope, TaskEvent
from streams_py.telemetry.clocks import Clocks

Row = dict[str, Any]


class Downtimes:
    """The last records that wait for a first record, and the last starts of processing, by task of one group."""

    def __init__(
        self,
        waiting: Mapping[str, Mapping[str, Any]] | None = None,
        begun: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._waiting: dict[str, dict[str, Any]] = {task: dict(entry) for task, entry in (waiting or {}).items()}
        self._begun: dict[str, dict[str, Any]] = {task: dict(entry) for task, entry in (begun or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """Return the tasks that no process runs, for a checkpoint."""
        return {task: self._waiting[task] for task in sorted(self._waiting)}

    def begun_to_json(self) -> dict[str, Any]:
        """Return the process that has started to process each task, for a checkpoint."""
        return {task: self._begun[task] for task in sorted(self._begun)}

    def last_record(self, envelope: Envelope, event: TaskEvent, clocks: Clocks) -> Row | None:
        """Process the event about a last record. Returns the gap if another process has already started."""
        if event.last_mono_us is None:
            return None
        skew_ms, bound_ms = clocks.skew_ms(envelope.process)
        at_ms = envelope.at_ms - (envelope.mono_us - event.last_mono_us) // 1000
        last = {
            "process": envelope.process,
            "run": envelope.run,
            "mono_us": event.last_mono_us,
            "at_ms": at_ms + skew_ms,
            "bound_ms": bound_ms,
            "idle_ms": (event.idle_us or 0) // 1000,
        }
        task = str(event.task)
        begun = self._begun.get(task)
        if (
            begun is None
            or _process_run(begun) == _process_run(last)
            or last["at_ms"] > begun["at_ms"] + begun["bound_ms"] + bound_ms
        ):
            self._begun.pop(task, None)
            self._waiting[task] = last
            return None
        if begun["has_gap"]:
            return None
        begun["has_gap"] = True
        return _moved(task, last, begun)

    def first_record(
        self, envelope: Envelope, event: TaskEvent, clocks: Clocks, rebalance_id: str | None
    ) -> Row | None:
        """Process the event about a first record. Returns the gap if the last record is known."""
        if event.last_mono_us is not None:
            return _untouched(envelope, event, clocks, rebalance_id)
        task = str(event.task)
        last = self._waiting.pop(task, None)
        skew_ms, bound_ms = clocks.skew_ms(envelope.process)
        first = {
            "process": envelope.process,
            "run": envelope.run,
            "mono_us": envelope.mono_us,
            "at_ms": envelope.at_ms + skew_ms,
            "bound_ms": bound_ms,
            "rebalance_id": rebalance_id,
            "waited_ms": _waited_ms(event),
            "has_gap": last is not None,
        }
        self._begun[task] = first
        return None if last is None else _moved(task, last, first)


def _process_run(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["process"], entry["run"]


def _moved(task: str, last: Mapping[str, Any], first: Mapping[str, Any]) -> Row:
    gap_ms, bound_ms = first["at_ms"] - last["at_ms"], first["bound_ms"] + last["bound_ms"]
    if _process_run(last) == _process_run(first):
        gap_ms, bound_ms = (first["mono_us"] - last["mono_us"]) // 1000, 0
    return {
        "rebalance_id": first["rebalance_id"],
        "task": task,
        "from_process": last["process"],
        "to_process": first["process"],
        "last_at": last["at_ms"],
        "first_at": first["at_ms"],
        "gap_ms": gap_ms,
        "paused_ms": _paused_ms(gap_ms, first["waited_ms"], last.get("idle_ms", 0)),
        "skew_bound_ms": bound_ms,
        "kind": "moved",
    }


def _untouched(envelope: Envelope, event: TaskEvent, clocks: Clocks, rebalance_id: str | None) -> Row:
    assert event.last_mono_us is not None
    skew_ms, _ = clocks.skew_ms(envelope.process)
    first_ms = envelope.at_ms + skew_ms
    gap_ms = (envelope.mono_us - event.last_mono_us) // 1000
    return {
        "rebalance_id": rebalance_id,
        "task": str(event.task),
        "from_process": envelope.process,
        "to_process": envelope.process,
        "last_at": first_ms - gap_ms,
        "first_at": first_ms,
        "gap_ms": gap_ms,
        "paused_ms": _paused_ms(gap_ms, _waited_ms(event), 0),
        "skew_bound_ms": 0,
        "kind": "untouched",
    }


def _waited_ms(event: TaskEvent) -> int | None:
    """Return the longest time that the first record can have waited, as its reader knows it; None if unknown."""
    if event.since_idle_us is None:
        return event.waited_ms
    since_idle_ms = event.since_idle_us // 1000
    return since_idle_ms if event.waited_ms is None else min(event.waited_ms, since_idle_ms)


def _paused_ms(gap_ms: int, waited_ms: int | None, idle_ms: int) -> int:
    """Return the part of the gap with input. ``idle_ms``: how long the old owner had no input after its last record."""
    paused_ms = gap_ms if waited_ms is None else min(gap_ms, waited_ms)
    return min(paused_ms, max(0, gap_ms - idle_ms)) if idle_ms else paused_ms
