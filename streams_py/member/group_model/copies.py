"""Progress of the state of one client's tasks, from one rebalance to the next.

A position is an offset sum, as in a subscription: the positions in all changelogs of a task, added up. A client reports
a running task as ``LATEST_OFFSET``, whatever its position is. An unknown sum stays unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import TaskId


def restored(position: int, end: int, records: int | None) -> int:
    """Return the position after restoring ``records`` more records; None restores all.

    A position beyond the end belongs to a changelog that was deleted and recreated. Restoring then starts at 0.
    """
    if UNKNOWN_OFFSET_SUM in (position, end):
        return UNKNOWN_OFFSET_SUM
    return end if records is None else min(end, (0 if position > end else position) + records)


class Copies:
    """The copies of task state on one client's disk, with their positions."""

    def __init__(self, positions: Mapping[TaskId, int] | None = None) -> None:
        self._positions = dict(positions or {})

    @classmethod
    def reported(cls, sums: Mapping[TaskId, int], ends: Mapping[TaskId, int]) -> Copies:
        """Return the copies of a client that reported ``sums``. A running task is at its end."""
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
        """Return the position of a task; 0 without a copy."""
        return self._positions.get(task, 0)

    def open(self, tasks: Iterable[TaskId]) -> None:
        """Create an empty copy of each task that has none."""
        for task in tasks:
            self._positions.setdefault(task, 0)

    def restore(self, tasks: Iterable[TaskId], ends: Mapping[TaskId, int], records: int | None) -> None:
        """Restore up to ``records`` records into each of these copies; None restores all."""
        for task in tasks:
            self._positions[task] = restored(self[task], ends[task], records)

    def keep(self, tasks: Collection[TaskId]) -> None:
        """Delete the copies of all other tasks."""
        self._positions = {task: position for task, position in self._positions.items() if task in tasks}

    def report(self, tasks: Iterable[TaskId], *, running: Collection[TaskId]) -> dict[TaskId, int]:
        """Return the offset sums of ``tasks`` as the client reports them to the leader.

        ``running`` are its running active tasks.
        """
        return {task: LATEST_OFFSET if task in running else self[task] for task in tasks}
