"""A search for standby hosts of a task whose copies differ in every tag, if possible.

A set of clients fits if, for every key, no value occurs twice among the active host and the standbys. If there are
fewer values than copies, a value may occur again once all values are used, as in Kafka Streams' placement one by one
(KIP-708). A client without a tag conflicts with no other client.

The search tries sets of candidates, least loaded first. It gives up a partial set as soon as the set cannot be
completed. The number of partial sets is bounded, for one task and for one assignment. With an unusually large number of
keys and values it could otherwise take very long to prove that no set fits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

PARTIAL_SETS_MAX: Final = 500_000
"""Maximum number of partial sets in all searches of one assignment, about one second."""
_PARTIAL_SETS_OF_TASK_MAX: Final = 5_000


def spread_as_a_whole(
    values: Sequence[Sequence[str | None]],
    distinct: Sequence[int],
    active: int,
    candidates: Sequence[int],
    replicas: int,
    *,
    partial_sets_max: int = PARTIAL_SETS_MAX,
) -> tuple[list[int] | None, int]:
    """Search ``replicas`` candidates that fit together with the active host.

    Returns (the first such set in the order of the candidates or None, the number of partial sets tried). ``values[c]``
    has the client's value of each key, ``distinct`` the number of values of each key in the group.
    """
    search = _Search(values, distinct, candidates, min(partial_sets_max, _PARTIAL_SETS_OF_TASK_MAX))
    search.add(active)
    found = search.complete(0, replicas)
    return (search.chosen[1:] if found else None), search.partial_sets


def fits(values: Sequence[Sequence[str | None]], distinct: Sequence[int], clients: Sequence[int]) -> bool:
    """Whether these clients differ in every key, or have all its values."""
    search = _Search(values, distinct, (), 0)
    for client in clients:
        search.add(client)
    return search.may_fit(0)


def spread_total(
    active: Sequence[int], standby: Sequence[Collection[int]], values: Sequence[Sequence[str | None]]
) -> int:
    """Return how different the copies of all tasks are: the sum of different values of each key.

    ``active[t]`` is a client or -1. ``standby[t]`` are clients.
    """
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
        partial_sets_max: int,
    ) -> None:
        self.chosen: list[int] = []
        self._values = values
        self._distinct = distinct
        self._candidates = candidates
        self._used: list[dict[str, int]] = [{} for _ in distinct]
        self._partial_sets_max = partial_sets_max
        self.partial_sets = 0

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
        """Choose ``missing`` more candidates, from position ``start`` on."""
        if missing == 0:
            return True
        for position in range(start, len(self._candidates) - missing + 1):
            if self.partial_sets >= self._partial_sets_max:
                return False
            self.partial_sets += 1
            self.add(self._candidates[position])
            if self.may_fit(missing - 1) and self.complete(position + 1, missing - 1):
                return True
            self.remove_last()
        return False

    def may_fit(self, missing: int) -> bool:
        """Whether every key has no value twice, or has all its values or can still get them."""
        return all(
            len(used) == sum(used.values()) or len(used) + missing >= distinct
            for used, distinct in zip(self._used, self._distinct)
        )
