"""Standby exchange by swaps between pairs of clients (KIP-925).

This is Kafka Streams' ``optimizeStandbyTasks``. A client must not have a task twice, so standbys cannot be placed with
one flow like active tasks. Kafka Streams visits all pairs of clients in different racks, up to four times, and lets
each pair exchange equal numbers of standbys as well as possible. Two clients need no network for this: the cost of a
move is known for every standby. The k cheapest moves of one client are combined with the k cheapest of the other, as
long as the k-th pair of moves reduces the cost.

Most pairs have nothing to exchange. So the lowest cost of a move to each class of clients is stored for every client,
and a pair is examined only if the sum of its two lowest costs is negative. These bounds respect the separation rule.
They are lowered when a swap elsewhere makes a move possible. So no pair is missed: the result is the same
as with the plain loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streams_py.assignment.rack.copies import Copies
from streams_py.assignment.rack.cost import Costs

ROUNDS_MAX: Final = 4  # as in Kafka, where nothing improved after the third round
_CLASSES_MAX: Final = 64  # with more classes, bounds are stored by rack and ignore the separation rule
_NEVER: Final = 1 << 62


def swap_standbys(copies: Copies, costs: Costs, *, pairs_max: int) -> bool:
    """Swap until no pair improves. Returns False if it stopped after ``pairs_max`` pairs."""
    bounds = _Bounds(copies, costs)
    pairs_left = pairs_max
    for _ in range(ROUNDS_MAX):
        bounds.set_all()
        moved = False
        for first in range(len(copies.home)):
            if bounds.hopeless(first):
                continue
            for second in range(first + 1, len(copies.home)):
                if copies.home[first] == copies.home[second] or bounds.pair(first, second) >= 0:
                    continue
                if pairs_left == 0:
                    return False
                pairs_left -= 1
                swapped = _swap(copies, costs, bounds, first, second)
                if swapped:
                    moved = True
                    bounds.update((first, second), swapped)
        if not moved:
            return True
    return True


def _swap(copies: Copies, costs: Costs, bounds: _Bounds, first: int, second: int) -> list[int]:
    """Let two clients exchange standbys; return the tasks that moved."""
    going = _candidates(copies, costs, first, second, -bounds.least(second, first))
    if not going:
        return []
    coming = _candidates(copies, costs, second, first, -going[0][0])
    moved: list[int] = []
    for (cost, task), (other_cost, other) in zip(going, coming):
        if cost + other_cost >= 0:
            break
        copies.move(task, first, second)
        copies.move(other, second, first)
        moved += (task, other)
    return moved


def _candidates(copies: Copies, costs: Costs, source: int, target: int, below: int) -> list[tuple[int, int]]:
    """Return (cost, task) of moves that cost less than ``below``, cheapest first."""
    local, of = copies.signatures.local, copies.signatures.of
    here, there = copies.home[source], copies.home[target]
    classes = copies.class_of[source], copies.class_of[target]
    found = []
    for task in copies.on[source]:
        row = local[of[task]]
        cost = costs.traffic * (row.get(here, 0) - row.get(there, 0)) + costs.non_overlap
        if cost < below and not copies.holds(target, task) and copies.keeps_apart(task, *classes):
            found.append((cost, task))
    found.sort()
    return found


class _Bounds:
    """For each client, the lowest costs of moving one of its standbys.

    There is one cost for each zone, and one for racks in which the move saves no traffic. A zone is a class, or a rack
    if there are too many classes.
    """

    __slots__ = ("_anywhere", "_copies", "_costs", "_exact", "_inbound", "_into", "_zone_of", "_zones_of_rack")

    def __init__(self, copies: Copies, costs: Costs) -> None:
        self._copies = copies
        self._costs = costs
        self._exact = len(copies.class_racks) <= _CLASSES_MAX
        self._zone_of = copies.class_of if self._exact else copies.home
        zone_racks = copies.class_racks if self._exact else range(copies.racks)
        self._zones_of_rack: list[list[int]] = [[] for _ in range(copies.racks)]
        for zone, rack in enumerate(zone_racks):
            self._zones_of_rack[rack].append(zone)
        self._anywhere = [_NEVER] * len(copies.home)
        self._into: list[dict[int, int]] = [{} for _ in copies.home]
        # Lowest cost over all clients, by zone. It may be too low, but never too high.
        self._inbound = [_NEVER] * len(zone_racks)

    def least(self, client: int, other: int) -> int:
        """Return the lowest cost of moving a standby from one client to another."""
        return min(self._anywhere[client], self._into[client].get(self._zone_of[other], _NEVER))

    def pair(self, first: int, second: int) -> int:
        """Return the lowest cost of swapping two standbys."""
        return self.least(first, second) + self.least(second, first)

    def hopeless(self, client: int) -> bool:
        """Whether no partner can make up for the cost of a move from this client."""
        own = min(self._anywhere[client], min(self._into[client].values(), default=_NEVER))
        return own + self._inbound[self._zone_of[client]] >= 0

    def set_all(self) -> None:
        """Compute the costs of every client."""
        self._inbound = [_NEVER] * len(self._inbound)
        for client in range(len(self._into)):
            self._set(client)

    def update(self, clients: Iterable[int], tasks: Iterable[int]) -> None:
        """Update the bounds after a swap.

        The two clients get new bounds. The bounds of other hosts of the ``tasks`` are lowered where a new move became
        possible.
        """
        for client in clients:
            self._set(client)
        if self._exact and self._copies.has_tags:
            for task in tasks:
                for client in self._copies.hosts[task]:
                    self._lower(client, task)

    def _set(self, client: int) -> None:
        self._anywhere[client] = _NEVER
        self._into[client] = {}
        for task in self._copies.on[client]:
            self._lower(client, task)
        anywhere = self._anywhere[client]
        self._inbound = [min(old, anywhere) for old in self._inbound]

    def _lower(self, client: int, task: int) -> None:
        copies, (traffic, non_overlap) = self._copies, self._costs
        row, home, own = copies.signatures.local[copies.signatures.of[task]], copies.home[client], self._into[client]
        here = traffic * row.get(home, 0) + non_overlap
        self._anywhere[client] = min(self._anywhere[client], here)
        for rack, count in row.items():
            if rack == home:
                continue
            cost = here - traffic * count
            for zone in self._zones_of_rack[rack]:
                if cost < own.get(zone, _NEVER) and (
                    not self._exact or copies.keeps_apart(task, copies.class_of[client], zone)
                ):
                    own[zone] = cost
                    self._inbound[zone] = min(self._inbound[zone], cost)
