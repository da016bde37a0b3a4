"""What a placement costs (KIP-925): partitions read from another rack, and tasks that leave their client.

A task on a client in rack r costs ``traffic_cost`` for each of its charged partitions without a replica in r, leader or
follower, in sync or not. A task that is not where it was costs ``non_overlap_cost`` more, wherever it went.

So a task's row of costs depends on the rack alone, and many tasks have the same row. Tasks with equal rows get one
*signature*: how many partitions are charged, and how many of them each rack of clients has a replica of. Racks without
clients are dropped first, as rows that differ only there are equal. With three zones there are a few signatures,
however many tasks there are, and everything that is solved here is solved for signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from streams_protocol.types import TaskId
from streams_py.errors import IllegalStateError

__all__ = ["Costs", "Signatures"]


class Costs(NamedTuple):
    """Cost of one partition read from another rack, and of one task that changes its client. Only the ratio counts."""

    traffic: int
    non_overlap: int


class Signatures:
    """Tasks of one call by their rows of costs.

    ``of[i]`` is the signature of the i-th task; ``partitions[s]`` and ``local[s]`` belong to signature s: its number of
    charged partitions, and for each rack number (ascending, no zeros) how many of them have a replica there.
    """

    __slots__ = ("local", "of", "partitions")

    def __init__(
        self,
        tasks: Sequence[TaskId],
        racks_of: Mapping[TaskId, Sequence[frozenset[str]]],
        rack_numbers: Mapping[str, int],
    ) -> None:
        """``racks_of``: racks of each charged partition of a task; IllegalStateError when they are not known.

        Signatures are numbered as they first occur in ``tasks``, so neither the order of partitions nor that of racks
        within a set shows.
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
        """Number of partitions that a task reads from other racks when it runs in this one."""
        return self.partitions[signature] - self.local[signature].get(rack, 0)

    def foreign_total(self, racks: Iterable[int]) -> int:
        """The same for all tasks, given the rack where each is."""
        partitions, local = self.partitions, self.local
        return sum(partitions[s] - local[s].get(rack, 0) for s, rack in zip(self.of, racks))


def _known(task: TaskId, racks_of: Mapping[TaskId, Sequence[frozenset[str]]]) -> Sequence[frozenset[str]]:
    found = racks_of.get(task)
    if found is None:
        raise _unknown_racks(task)
    return found


def _unknown_racks(task: TaskId) -> IllegalStateError:
    return IllegalStateError(
        f"task {task} has a partition without rack information; make an optimiser only after every charged partition "
        "is known to have a rack",
        task_id=task,
    )


def _row(partitions: Iterable[tuple[int, ...]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for racks in partitions:
        for rack in racks:
            counts[rack] = counts.get(rack, 0) + 1
    return dict(sorted(counts.items()))
