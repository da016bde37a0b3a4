"""The cost of a placement (KIP-925): partitions read from other racks, and tasks that move.

A task on a client in rack r costs ``traffic_cost`` for each of its counted partitions that has no replica in r (leader
or follower, in sync or not). A task that changes its client costs an additional ``non_overlap_cost``, wherever it goes.

So the costs of a task depend only on the rack, and many tasks have the same costs in all racks. Such tasks share a
*signature*: the number of counted partitions, and how many of them have a replica in each rack. Racks without clients
are ignored, because they make no difference. With three zones there are only a few signatures, however many tasks there
are. So all problems of this package are solved for signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from streams_protocol.types import TaskId
from streams_py.errors import IllegalStateError


class Costs(NamedTuple):
    """Cost of a partition read from another rack, and of a moved task. Only the ratio matters."""

    traffic: int
    non_overlap: int


class Signatures:
    """The signatures of the tasks of one call.

    ``of[i]`` is the signature of the i-th task. ``partitions[s]`` is the number of counted partitions of signature s.
    ``local[s]`` has, for each rack number (ascending, no zeros), how many of them have a replica there.
    """

    __slots__ = ("local", "of", "partitions")

    def __init__(
        self,
        tasks: Sequence[TaskId],
        racks_of: Mapping[TaskId, Sequence[frozenset[str]]],
        rack_numbers: Mapping[str, int],
    ) -> None:
        """``racks_of`` has the racks of each counted partition of a task.

        Signatures are numbered by their first occurrence in ``tasks``. So the order of partitions and the order of
        racks within a set do not matter.

        Raises:
            IllegalStateError: racks of a partition are unknown.
        """
        self.of: list[int] = []
        self.partitions: list[int] = []
        self.local: list[dict[int, int]] = []
        sets: dict[frozenset[str], int] = {}
        numbers: list[tuple[int, ...]] = []
        seen: dict[tuple[int, ...], int] = {}
        canonical: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        for task in tasks:
            key = []
            for racks in _known(task, racks_of):
                number = sets.get(racks)
                if number is None:
                    if not racks:
                        raise _unknown_racks(task)
                    number = sets[racks] = len(numbers)
                    numbers.append(tuple(rack_numbers[rack] for rack in racks if rack in rack_numbers))
                key.append(number)
            if len(key) > 1:
                key.sort()
            found = tuple(key)
            signature = seen.get(found)
            if signature is None:
                row = _row(numbers[number] for number in found)
                signature = canonical.setdefault((len(found), tuple(row.items())), len(self.local))
                if signature == len(self.local):
                    self.local.append(row)
                    self.partitions.append(len(found))
                seen[found] = signature
            self.of.append(signature)

    def foreign(self, signature: int, rack: int) -> int:
        """Return the number of partitions that a task in this rack reads from other racks."""
        return self.partitions[signature] - self.local[signature].get(rack, 0)

    def foreign_total(self, racks: Iterable[int]) -> int:
        """Return this number for all tasks, given the rack of each task."""
        partitions, local = self.partitions, self.local
        return sum(partitions[s] - local[s].get(rack, 0) for s, rack in zip(self.of, racks))


def _known(task: TaskId, racks_of: Mapping[TaskId, Sequence[frozenset[str]]]) -> Sequence[frozenset[str]]:
    found = racks_of.get(task)
    if found is None:
        raise _unknown_racks(task)
    return found


def _unknown_racks(task: TaskId) -> IllegalStateError:
    return IllegalStateError(
        f"task {task} has a partition without rack information; create an optimiser only after the racks of all "
        "counted partitions are known",
        task_id=task,
    )


def _row(partitions: Iterable[tuple[int, ...]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for racks in partitions:
        for rack in racks:
            counts[rack] = counts.get(rack, 0) + 1
    return dict(sorted(counts.items()))
