"""How long nobody processed a task while it changed hands: from the last record on one member to the first on another.

The two times come from two clocks, corrected by :mod:`streams_py.telemetry.clocks`; ``skew_bound_ms`` says how far
the result may be off. A negative gap stays negative: hiding it would hide the bound. On one process the monotonic
clock is used, and the bound is 0. A task that stayed where it was has a gap, too (``kind`` is ``untouched``): from the
last record before the rebalance was over to the first one after.

A pause needs input that waits. ``gap_ms`` is all the time between the two records, ``paused_ms`` the part of it in
which the second one was there already, by its own timestamp: 0 where there was nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams_py.events.model import Envelope, TaskEvent
from streams_py.telemetry.clocks import Clocks

__all__ = ["Downtimes"]

Row = dict[str, Any]


class Downtimes:
    """Last records that wait for a first one, in one group."""

    def __init__(self, waiting: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._waiting: dict[str, dict[str, Any]] = {task: dict(entry) for task, entry in (waiting or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """Tasks that nobody processes, as a checkpoint keeps them."""
        return {task: self._waiting[task] for task in sorted(self._waiting)}

    def last_record(self, envelope: Envelope, event: TaskEvent, clocks: Clocks) -> None:
        """Processing ended somewhere."""
        if event.last_mono_us is None:
            return
        skew_ms, bound_ms = clocks.skew_ms(envelope.process)
        at_ms = envelope.at_ms - (envelope.mono_us - event.last_mono_us) // 1000
        self._waiting[str(event.task)] = {
            "process": envelope.process,
            "run": envelope.run,
            "mono_us": event.last_mono_us,
            "at_ms": at_ms + skew_ms,
            "bound_ms": bound_ms,
        }

    def first_record(
        self, envelope: Envelope, event: TaskEvent, clocks: Clocks, rebalance_id: str | None
    ) -> Row | None:
        """Processing began somewhere, or went on; the gap, if its other end is known."""
        if event.last_mono_us is not None:
            return _untouched(envelope, event, clocks, rebalance_id)
        last = self._waiting.pop(str(event.task), None)
        if last is None:
            return None
        skew_ms, bound_ms = clocks.skew_ms(envelope.process)
        first_ms = envelope.at_ms + skew_ms
        gap_ms, bound_ms = first_ms - last["at_ms"], bound_ms + last["bound_ms"]
        if (last["process"], last["run"]) == (envelope.process, envelope.run):
            gap_ms, bound_ms = (envelope.mono_us - last["mono_us"]) // 1000, 0
        return {
            "rebalance_id": rebalance_id,
            "task": str(event.task),
            "from_process": last["process"],
            "to_process": envelope.process,
            "last_at": last["at_ms"],
            "first_at": first_ms,
            "gap_ms": gap_ms,
            "paused_ms": _paused_ms(gap_ms, event),
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
        "paused_ms": _paused_ms(gap_ms, event),
        "skew_bound_ms": 0,
        "kind": "untouched",
    }


def _paused_ms(gap_ms: int, first: TaskEvent) -> int:
    """All of the gap when it is not known how long the record has waited."""
    return gap_ms if first.waited_ms is None else min(gap_ms, first.waited_ms)
