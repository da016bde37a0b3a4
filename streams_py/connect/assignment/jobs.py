"""Sets of jobs. A job is a connector or a task. Both kinds are balanced separately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from streams_protocol.connect import TaskId


class Jobs(NamedTuple):
    """Connectors by name, and tasks.

    ``|``, ``-`` and ``&`` apply to both sets. Without jobs it is false.
    """

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    @classmethod
    def of(cls, connectors: Iterable[str] = (), tasks: Iterable[TaskId] = ()) -> Jobs:
        """Create from iterables."""
        return cls(frozenset(connectors), frozenset(tasks))

    def __or__(self, other: Jobs) -> Jobs:
        return Jobs(self.connectors | other.connectors, self.tasks | other.tasks)

    def __sub__(self, other: Jobs) -> Jobs:
        return Jobs(self.connectors - other.connectors, self.tasks - other.tasks)

    def __and__(self, other: Jobs) -> Jobs:
        return Jobs(self.connectors & other.connectors, self.tasks & other.tasks)

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)

    def __str__(self) -> str:
        return ", ".join([*sorted(self.connectors), *map(str, sorted(self.tasks))])


NOTHING = Jobs()


def union(parts: Iterable[Jobs]) -> Jobs:
    """Return all jobs of all parts."""
    connectors: set[str] = set()
    tasks: set[TaskId] = set()
    for part in parts:
        connectors |= part.connectors
        tasks |= part.tasks
    return Jobs.of(connectors, tasks)


def configured_jobs(task_counts: Mapping[str, int], inconsistent: Set[str] = frozenset()) -> Jobs:
    """Return every job of a snapshot: task numbers are 0 to count - 1.

    Connectors in ``inconsistent`` have no tasks for now, because their task set is being rewritten.
    """
    tasks = (
        TaskId(name, number)
        for name, count in task_counts.items()
        if name not in inconsistent
        for number in range(count)
    )
    return Jobs.of(task_counts, tasks)
