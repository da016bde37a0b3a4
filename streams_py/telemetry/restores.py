"""Restorations of tasks: when they began, what they cost, how they ended.

``done`` when the stores were complete, ``interrupted`` when the task was taken away, ``running`` for those under way at
the end of a day. A task with several stores is restored once. A process that is killed says nothing: its restorations
are interrupted when it starts anew, or when nothing was heard of it for a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from streams_py.events.model import Envelope, TaskEvent

__all__ = ["Restores"]

Row = dict[str, Any]

_ENDS: Final = frozenset({"suspended", "revoked", "closed", "lost", "corrupted", "demoted"})


class Restores:
    """Restorations under way in one group, by task and process."""

    def __init__(self, running: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._running: dict[str, dict[str, Any]] = {key: dict(entry) for key, entry in (running or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """Restorations under way, by process and task, as a checkpoint keeps them."""
        return {key: self._running[key] for key in sorted(self._running)}

    def feed(self, envelope: Envelope, event: TaskEvent) -> Row | None:
        """Take an event in; the row of the restoration that it ends."""
        key = f"{envelope.process} {event.task}"
        match event.event:
            case "restore_started" if not self.has_begun(envelope, event):
                killed = self._running.get(key)
                at = {"started_ms": envelope.at_ms, "mono_us": envelope.mono_us}
                self._running[key] = {"run": envelope.run, **at, "done": None}
                return None if killed is None else _row(key, killed, "interrupted", killed["done"], None)
            case "restore_progress" if key in self._running:
                self._running[key]["done"] = event.records_done
            case "restored" if key in self._running:
                entry = self._running.pop(key)
                took_us = event.took_us if event.took_us is not None else envelope.mono_us - entry["mono_us"]
                return _row(key, entry, "done", event.records, took_us)
            case other if other in _ENDS and key in self._running:
                entry = self._running.pop(key)
                return _row(key, entry, "interrupted", entry["done"], envelope.mono_us - entry["mono_us"])
        return None

    def has_begun(self, envelope: Envelope, event: TaskEvent) -> bool:
        """Whether the task is being restored there: more stores of it are no more restorations."""
        entry = self._running.get(f"{envelope.process} {event.task}")
        return entry is not None and entry["run"] == envelope.run

    def forget(self, is_known: Callable[[str], bool]) -> Iterator[Row]:
        """Drop those of processes that nothing is known of any more: their rows."""
        for key in [key for key in sorted(self._running) if not is_known(key.partition(" ")[0])]:
            entry = self._running.pop(key)
            yield _row(key, entry, "interrupted", entry["done"], None)

    def under_way(self) -> Iterator[Row]:
        """Rows of those that have not ended."""
        for key in sorted(self._running):
            yield _row(key, self._running[key], "running", self._running[key]["done"], None)


def _row(key: str, entry: Mapping[str, Any], outcome: str, records: int | None, took_us: int | None) -> Row:
    process, _, task = key.partition(" ")
    return {
        "task": task,
        "process": process,
        "started": entry["started_ms"],
        "records": records,
        "took_ms": None if took_us is None else took_us // 1000,
        "records_per_s": None if not took_us or records is None else records * 1_000_000 / took_us,
        "outcome": outcome,
    }
