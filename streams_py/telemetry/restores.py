"""Restorations of tasks: their start, their cost, and how they ended.

The outcome is ``done`` if the stores were complete, ``interrupted`` if the process lost the task, and ``running`` at
the end of a day for unfinished restorations. A task with several stores has one restoration. A killed process sends no
event. Its restorations count as interrupted when it restarts, or when it has sent no event for a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from streams_py.events.model import Envelope, TaskEvent

Row = dict[str, Any]

_ENDS: Final = frozenset({"suspended", "revoked", "closed", "lost", "corrupted", "demoted"})


class Restores:
    """The unfinished restorations of one group, by process and task."""

    def __init__(self, running: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._running: dict[str, dict[str, Any]] = {key: dict(entry) for key, entry in (running or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """Return the unfinished restorations, by process and task, for a checkpoint."""
        return {key: self._running[key] for key in sorted(self._running)}

    def feed(self, envelope: Envelope, event: TaskEvent) -> Row | None:
        """Process an event. Returns the row of the restoration that it ends, if any."""
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
        """Whether the process is already restoring the task. Further stores belong to the same restoration."""
        entry = self._running.get(f"{envelope.process} {event.task}")
        return entry is not None and entry["run"] == envelope.run

    def forget(self, is_known: Callable[[str], bool]) -> Iterator[Row]:
        """Remove the restorations of processes that are no longer known, and yield their rows."""
        for key in [key for key in sorted(self._running) if not is_known(key.partition(" ")[0])]:
            entry = self._running.pop(key)
            yield _row(key, entry, "interrupted", entry["done"], None)

    def under_way(self) -> Iterator[Row]:
        """Yield the rows of unfinished restorations."""
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
