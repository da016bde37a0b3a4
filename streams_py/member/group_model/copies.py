"""How far the state of one client's tasks is, from one rebalance to the next.

Positions are offset sums, as in a subscription: positions in all changelogs of a task, added up. What a client runs it
reports as ``LATEST_OFFSET``, whatever the position; a sum that is not known stays unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import TaskId

__all__ = ["Copies", "restored"]


def restored(position: int, end: int, records: int | None) -> int:
    """Position after so many more records, None: after all of them. A position beyond the end is of a changelog that
    was made anew, and begins again at 0."""
    if UNKNOWN_OFFSET_SUM in (position, end):
        return UNKNOWN_OFFSET_SUM
    return end if records is None else min(end, (0 if position > end else position) + records)


class Copies:
    """The copies on one client's disk."""

    def __init__(self, positions: Mapping[TaskId, int] | None = None) -> None:
        self._positions = dict(positions or {})

    @classmethod
    def reported(cls, sums: Mapping[TaskId, int], ends: Mapping[TaskId, int]) -> Copies:
        """Those of a client that reported ``sums``: what runs is at its end."""
        return cls(
            {
                task: ends.get(task, UNKNOWN_OFFSET_SUM) if offset_sum == LATEST_OFFSET else offset_sum
                for task, offset_sum in sums.items()
            }
        )

    def __contains__(self, task: TaskId) -> bool:
        return task in self._positions

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._positions)

    def __getitem__(self, task: TaskId) -> int:
        """Position of a task; 0 for one that is not there."""
        return self._positions.get(task, 0)

    def open(self, tasks: Iterable[TaskId]) -> None:
        """Make copies of those that are not there, empty as yet."""
        for task in tasks:
            self._positions.setdefault(task, 0)

    def restore(self, tasks: Iterable[TaskId], ends: Mapping[TaskId, int], records: int | None) -> None:
        """Work on these copies, for so many records each; None: until they are complete."""
        for task in tasks:
            self._positions[task] = restored(self[task], ends[task], records)

    def keep(self, tasks: Collection[TaskId]) -> None:
        """Clean up all others."""
        self._positions = {task: position for task, position in self._positions.items() if task in tasks}

    def report(self, tasks: Iterable[TaskId], *, running: Collection[TaskId]) -> dict[TaskId, int]:
        """Offset sums of ``tasks`` as the client reports them, of which some are ``running``."""
        return {task: LATEST_OFFSET if task in running else self[task] for task in tasks}
