"""Hosts for all standbys of a task at once, so that its copies differ in every tag as far as that is possible at all.

A set of clients fits if, for every key, no value occurs twice among the active and the standbys; where there are fewer
values than copies a value may occur again once all of them are taken, as in Kafka Streams' placement one by one
(KIP-708). A client without a tag clashes with nobody.

The search goes through sets of candidates, least loaded first, and gives up a beginning as soon as it cannot be
completed. The number of beginnings is bounded, for one task and for one assignment: with more keys and values than
anybody configures it could take very long to be certain that nothing fits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

__all__ = ["BEGINNINGS_MAX", "fits", "spread_as_a_whole", "spread_total"]

BEGINNINGS_MAX: Final = 500_000
"""For all searches of one assignment: about a second."""
_BEGINNINGS_OF_TASK_MAX: Final = 5_000


def spread_as_a_whole(
    values: Sequence[Sequence[str | None]],
    distinct: Sequence[int],
    active: int,
    candidates: Sequence[int],
    replicas: int,
    *,
    beginnings_max: int = BEGINNINGS_MAX,
) -> tuple[list[int] | None, int]:
    """(So many candidates that fit together with the active host, or None; the number of beginnings that were tried).

    ``values[c]``: the client's value of each key; ``distinct``: number of values of each key in the group. The first
    set in the order of the candidates is taken.
    """
    search = _Search(values, distinct, candidates, min(beginnings_max, _BEGINNINGS_OF_TASK_MAX))
    search.add(active)
    found = search.complete(0, replicas)
    return (search.chosen[1:] if found else None), search.beginnings


def fits(values: Sequence[Sequence[str | None]], distinct: Sequence[int], clients: Sequence[int]) -> bool:
    """Whether these clients differ in every key, or have all its values."""
    search = _Search(values, distinct, (), 0)
    for client in clients:
        search.add(client)
    return search.may_fit(0)


def spread_total(
    active: Sequence[int], standby: Sequence[Collection[int]], values: Sequence[Sequence[str | None]]
) -> int:
    """How far the copies of all tasks are spread: different values of each key, added up. ``active[t]`` is a client,
    or -1; ``standby[t]`` are clients."""
    total = 0
    for owner, others in zip(active, standby):
        hosts = others if owner < 0 else (owner, *others)
        total += len({pair for host in hosts for pair in enumerate(values[host]) if pair[1] is not None})
    return total


class _Search:
    def __init__(
        self,
        values: Sequence[Sequence[str | None]],
        distinct: Sequence[int],
        candidates: Sequence[int],
        beginnings_max: int,
    ) -> None:
        self.chosen: list[int] = []
        self._values = values
        self._distinct = distinct
        self._candidates = candidates
        self._used: list[dict[str, int]] = [{} for _ in distinct]
        self._beginnings_max = beginnings_max
        self.beginnings = 0

    def add(self, client: int) -> None:
        self.chosen.append(client)
        for used, value in zip(self._used, self._values[client]):
            if value is not None:
                used[value] = used.get(value, 0) + 1

    def remove_last(self) -> None:
        for used, value in zip(self._used, self._values[self.chosen.pop()]):
            if value is not None:
                used[value] -= 1
                if not used[value]:
                    del used[value]

    def complete(self, start: int, missing: int) -> bool:
        """Choose so many more from the candidates from ``start`` on."""
        if missing == 0:
            return True
        for position in range(start, len(self._candidates) - missing + 1):
            if self.beginnings >= self._beginnings_max:
                return False
            self.beginnings += 1
            self.add(self._candidates[position])
            if self.may_fit(missing - 1) and self.complete(position + 1, missing - 1):
                return True
            self.remove_last()
        return False

    def may_fit(self, missing: int) -> bool:
        """Whether every key either has no value twice, or has all its values or may still get them."""
        return all(
            len(used) == sum(used.values()) or len(used) + missing >= distinct
            for used, distinct in zip(self._used, self._distinct)
        )
