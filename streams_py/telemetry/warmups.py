"""The duration of warm-ups: from the first copy until it has caught up, and from then until the task runs.

Only rebalances show the steps. A warm-up is created in the rebalance that first gives a client the role. It is warm in
the first rebalance that finds its lag within ``acceptable.recovery.lag``. It is promoted in the rebalance in which its
client gets the active task. A warm-up that is dropped before has no ``promoted_at``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.telemetry.facts import Facts
from streams_py.telemetry.ownership import Ownership

Row = dict[str, Any]


class Warmups:
    """The unfinished warm-ups of one group."""

    def __init__(self, open_ones: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._open: dict[str, dict[str, Any]] = {key: dict(value) for key, value in (open_ones or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """Return the unfinished warm-ups, by client and task, for a checkpoint."""
        return {key: self._open[key] for key in sorted(self._open)}

    def advance(self, now: Ownership, facts: Facts, at_ms: int) -> Iterator[Row]:
        """Process a successful rebalance. Yields the rows of the warm-ups that end with it."""
        for key in sorted(self._open):
            entry = self._open[key]
            entry["rebalances"] += 1
            client, task = key.partition(" ")[0], TaskId.parse(key.partition(" ")[2])
            lag = facts.lag(client, task)
            caught_up = lag is not None and (lag == LATEST_OFFSET or lag <= facts.acceptable_lag)
            if entry["warm_ms"] is None and caught_up and client in facts.parts:
                entry["warm_ms"] = at_ms
            promoted = client in facts.parts and task in facts.parts[client].active
            has_copy = task in now.warmups.get(client, ()) or task in now.standbys.get(client, ())
            if promoted or not has_copy:
                del self._open[key]
                yield _row(task, client, entry, at_ms if promoted else None)
        for client in sorted(now.warmups):
            for task in sorted(now.warmups[client]):
                self._open.setdefault(f"{client} {task}", {"created_ms": at_ms, "warm_ms": None, "rebalances": 0})


def _row(task: TaskId, client: str, entry: Mapping[str, Any], promoted_ms: int | None) -> Row:
    created_ms, warm_ms = entry["created_ms"], entry["warm_ms"]
    return {
        "task": str(task),
        "client": client,
        "created": created_ms,
        "warm_at": warm_ms,
        "promoted_at": promoted_ms,
        "created_to_warm_ms": None if warm_ms is None else warm_ms - created_ms,
        "warm_to_promoted_ms": None if warm_ms is None or promoted_ms is None else promoted_ms - warm_ms,
        "rebalances_between": entry["rebalances"],
    }
