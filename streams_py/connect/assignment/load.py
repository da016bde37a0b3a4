"""The jobs of every member during a round, and the two steps of balancing.

The steps are to take surplus jobs away, and to distribute jobs.

One object has one kind of job, connectors or tasks, because both kinds are balanced separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Generic, Protocol, Self, TypeVar


class _Ordered(Protocol):
    def __lt__(self, other: Self, /) -> bool: ...
    def __hash__(self) -> int: ...


J = TypeVar("J", bound=_Ordered)


class KindLoad(Generic[J]):
    """The jobs of one kind, by member. Members are processed in ascending order."""

    def __init__(self, held: Mapping[str, Set[J]]) -> None:
        self.held: dict[str, set[J]] = {member: set(held[member]) for member in sorted(held)}

    def spread(self, jobs: Iterable[J]) -> None:
        """Give each job to a member with the fewest jobs. The order of ``jobs`` matters."""
        items = list(jobs)
        order = sorted(self.held, key=lambda member: (len(self.held[member]), member))
        if not order:
            return
        counts = [len(self.held[member]) for member in order]
        level, up_to, position = counts[0], 0, 0
        while position < len(items):
            while up_to < len(order) and counts[up_to] <= level:
                up_to += 1
            for member in order[:up_to]:
                if position == len(items):
                    return
                self.held[member].add(items[position])
                position += 1
            level += 1

    def excess(self, total: int) -> dict[str, list[J]]:
        """Return the jobs above each member's fair share of ``total`` jobs.

        ``total`` includes jobs that do not run.
        """
        if not self.held:
            return {}
        low, extra = divmod(total, len(self.held))
        counts = [len(jobs) for jobs in self.held.values()]
        if counts.count(low + 1) == extra and counts.count(low) == len(counts) - extra:
            return {}
        surplus: dict[str, list[J]] = {}
        for member, jobs in self.held.items():
            count, cap = len(jobs), low
            if count <= low:
                continue
            if extra:
                extra -= 1
                cap = low + 1
            if count > cap:
                surplus[member] = sorted(jobs)[: count - cap]
        return surplus
