"""How long nobody processed a task while it changed hands: from the last record on one member to the first on another.

The two times come from two clocks, corrected by :mod:`streams_py.telemetry.clocks`; ``skew_bound_ms`` says how far
the result may be off. A negative gap stays negative: hiding it would hide the bound. On one process the monotonic
clock is used, and the bound is 0. A task that stayed where it was has a gap, too (``kind`` is ``untouched``): from the
last record before the rebalance was over to the first one after.

The last record may be told of late: a process that was frozen hears that it has lost its tasks when somebody else has
them already. So a first record without an end before it waits for one; and an end that comes behind the beginning of
somebody else is not the end of that one's work.

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

__all__ = ["Downtimes"]

Row = dict[str, Any]


class Downtimes:
    """Last records that wait for a first one, and the last beginnings, by task of one group."""

    def __init__(
        self,
        waiting: Mapping[str, Mapping[str, Any]] | None = None,
        begun: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._waiting: dict[str, dict[str, Any]] = {task: dict(entry) for task, entry in (waiting or {}).items()}
        self._begun: dict[str, dict[str, Any]] = {task: dict(entry) for task, entry in (begun or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """Tasks that nobody processes, as a checkpoint keeps them."""
        return {task: self._waiting[task] for task in sorted(self._waiting)}

    def begun_to_json(self) -> dict[str, Any]:
        """Who has begun to process each task, as a checkpoint keeps it."""
        return {task: self._begun[task] for task in sorted(self._begun)}

    def last_record(self, envelope: Envelope, event: TaskEvent, clocks: Clocks) -> Row | None:
        """Processing ended somewhere; the gap, if it went on elsewhere before this was told."""
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
        if begun is None or _who(begun) == _who(last) or last["at_ms"] > begun["at_ms"] + begun["bound_ms"] + bound_ms:
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
        """Processing began somewhere, or went on; the gap, if its other end is known."""
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


def _who(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["process"], entry["run"]


def _moved(task: str, last: Mapping[str, Any], first: Mapping[str, Any]) -> Row:
    gap_ms, bound_ms = first["at_ms"] - last["at_ms"], first["bound_ms"] + last["bound_ms"]
    if _who(last) == _who(first):
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
    """Return how long the first record can have waited at most, as far as its reader knows; None if unknown."""
    if event.since_idle_us is None:
        return event.waited_ms
    since_idle_ms = event.since_idle_us // 1000
    return since_idle_ms if event.waited_ms is None else min(event.waited_ms, since_idle_ms)


def _paused_ms(gap_ms: int, waited_ms: int | None, idle_ms: int) -> int:
    """Return the part of the gap with input. ``idle_ms``: how long the old owner had no input after its last record."""
    paused_ms = gap_ms if waited_ms is None else min(gap_ms, waited_ms)
    return min(paused_ms, max(0, gap_ms - idle_ms)) if idle_ms else paused_ms
