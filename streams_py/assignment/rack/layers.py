"""Standby exchange by layers: one copy of every task at a time, all tasks together.

Terms:

* *place*: a class of clients, or one client (``by_client``).
* *kind*: a signature, the places of the other copies, and the number of different tags of all copies.

The first standby of every task is exchanged as active tasks are, then the second, and so on. A task may move only to
places that have no other copy of it, and only if the separation rule allows it. So no client can get a task twice, and
a task may use any vacancy of its new place. The network has no hub, because a path through it would circumvent these
rules.

This method is faster than swapping pairs and moves fewer tasks. But it never moves a copy into a class that already has
one, so pairs are swapped afterwards. In small groups every client can be a separate place. Then an exchange finds every
improvement that leaves the other copies unchanged, along chains of any number of clients.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from streams_py.assignment.rack.copies import Copies
from streams_py.assignment.rack.cost import Costs
from streams_py.assignment.rack.transport import TaskKind, count_here, counts_after, moves_between

_ARCS_MAX: Final = 300_000  # above this number of arcs only pairs of clients are swapped


def exchange_layers(copies: Copies, costs: Costs, *, by_client: bool = False) -> bool:
    """Move standbys to cheaper clients, layer by layer; return whether any standby moved."""
    ordered = [sorted(hosts) for hosts in copies.hosts]
    moved = False
    for number in range(max(map(len, ordered), default=0)):
        tasks = [task for task, hosts in enumerate(ordered) if len(hosts) > number]
        layer = _Layer(copies, tasks, [ordered[task][number] for task in tasks], by_client=by_client)
        moved |= layer.exchange(costs)
    return moved


class _Layer:
    """One standby of each of the ``tasks``."""

    def __init__(self, copies: Copies, tasks: Sequence[int], clients: Sequence[int], *, by_client: bool) -> None:
        self._copies = copies
        self._tasks = tasks
        self._clients = clients
        self._place_of: Sequence[int] = range(len(copies.home)) if by_client else copies.class_of
        self._racks = copies.home if by_client else copies.class_racks
        classes: Sequence[int] = copies.class_of if by_client else range(len(copies.class_racks))
        self._tags = [copies.class_tags[number] for number in classes]
        self._own_tags = [copies.class_own_tags[number] for number in classes]
        self._places = [self._place_of[client] for client in clients]

    def exchange(self, costs: Costs) -> bool:
        """Solve the layer's network and carry out its moves; return whether there were any."""
        copies = self._copies
        kinds, of = self._kinds()
        if sum(len(kind.foreign) for kind in kinds) > _ARCS_MAX:
            return False
        here = count_here(of, self._places)
        foreign_here = {
            (kind, place): copies.signatures.foreign(copies.signatures.of[task], self._racks[place])
            for kind, place, task in zip(of, self._places, self._tasks)
        }
        if all(
            costs.traffic * (foreign - min(kinds[kind].foreign.values(), default=foreign)) <= costs.non_overlap
            for (kind, _), foreign in foreign_here.items()
        ):
            return False
        after = counts_after(kinds, here, foreign_here, len(self._racks), costs)
        moves = moves_between(here, after, of, self._places, self._clients)
        for position, target in moves:
            copies.move(self._tasks[position], self._clients[position], target)
        return bool(moves)

    def _kinds(self) -> tuple[list[TaskKind], list[int]]:
        """Return all kinds, and the kind of each task."""
        copies = self._copies
        numbers: dict[tuple[int, frozenset[int], int], int] = {}
        kinds: list[TaskKind] = []
        of: list[int] = []
        for task, client, place in zip(self._tasks, self._clients, self._places):
            others = frozenset(self._place_of[host] for host in copies.all_hosts(task) if host != client)
            apart = len(self._tags_of([*others, place])) + self._own_tags[place]
            key = (copies.signatures.of[task], others, apart)
            number = numbers.setdefault(key, len(kinds))
            if number == len(kinds):
                kinds.append(self._kind(*key))
            of.append(number)
        return kinds, of

    def _kind(self, signature: int, others: frozenset[int], apart: int) -> TaskKind:
        held = self._tags_of(others)
        foreign = {}
        for place, (rack, tags, own) in enumerate(zip(self._racks, self._tags, self._own_tags)):
            if place not in others and len(held.union(tags)) + own >= apart:
                foreign[place] = self._copies.signatures.foreign(signature, rack)
        return TaskKind(foreign, None)

    def _tags_of(self, places: Collection[int]) -> set[int]:
        return {tag for place in places for tag in self._tags[place]}
