"""Standbys, second way: one copy of every task at a time, all of them at once.

The first standby of every task is exchanged as actives are, then the second, and so on. A *kind* is here a signature,
the classes that hold the other copies, and how far apart the copies are; a *place* is a class of clients. A task may
only move into classes without another copy of it, where the rule about copies allows it: then no client can get a task
twice, and any vacancy of the class will do. There is no hub, as it would lead around that.

This is faster than swapping pairs and moves fewer tasks, but never moves anything into a class that holds a copy. So
pairs are swapped afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streams_py.assignment.rack.copies import Copies
from streams_py.assignment.rack.cost import Costs
from streams_py.assignment.rack.transport import TaskKind, count_here, counts_after, moves_between

__all__ = ["exchange_layers"]

_ARCS_MAX: Final = 300_000  # pairs of clients do the work alone where tasks have that many different situations


def exchange_layers(copies: Copies, costs: Costs) -> None:
    """Move standbys to where they cost less, layer by layer."""
    ordered = [sorted(hosts) for hosts in copies.hosts]
    for number in range(max(map(len, ordered), default=0)):
        tasks = [task for task, hosts in enumerate(ordered) if len(hosts) > number]
        _Layer(copies, tasks, [ordered[task][number] for task in tasks]).exchange(costs)


class _Layer:
    """One standby of each of the ``tasks``."""

    def __init__(self, copies: Copies, tasks: Sequence[int], clients: Sequence[int]) -> None:
        self._copies = copies
        self._tasks = tasks
        self._clients = clients
        self._places = [copies.class_of[client] for client in clients]

    def exchange(self, costs: Costs) -> None:
        """Solve the layer's network and carry out its moves."""
        copies = self._copies
        kinds, of = self._kinds()
        if sum(len(kind.foreign) for kind in kinds) > _ARCS_MAX:
            return
        here = count_here(of, self._places)
        foreign_here = {
            (kind, place): copies.signatures.foreign(copies.signatures.of[task], copies.class_racks[place])
            for kind, place, task in zip(of, self._places, self._tasks)
        }
        if all(
            costs.traffic * (foreign - min(kinds[kind].foreign.values(), default=foreign)) <= costs.non_overlap
            for (kind, _), foreign in foreign_here.items()
        ):
            return
        after = counts_after(kinds, here, foreign_here, len(copies.class_racks), costs)
        for position, target in moves_between(here, after, of, self._places, self._clients):
            copies.move(self._tasks[position], self._clients[position], target)

    def _kinds(self) -> tuple[list[TaskKind], list[int]]:
        """All kinds, and the kind of each task."""
        copies = self._copies
        numbers: dict[tuple[int, frozenset[int], int], int] = {}
        kinds: list[TaskKind] = []
        of: list[int] = []
        for task, client, place in zip(self._tasks, self._clients, self._places):
            others = frozenset(copies.class_of[host] for host in copies.all_hosts(task) if host != client)
            key = (copies.signatures.of[task], others, len(self._tags([*others, place])))
            number = numbers.setdefault(key, len(kinds))
            if number == len(kinds):
                kinds.append(self._kind(*key))
            of.append(number)
        return kinds, of

    def _kind(self, signature: int, others: frozenset[int], apart: int) -> TaskKind:
        copies = self._copies
        held = self._tags(others)
        foreign = {}
        for place, (rack, tags) in enumerate(zip(copies.class_racks, copies.class_tags)):
            if place not in others and len(held.union(tags)) >= apart:
                foreign[place] = copies.signatures.foreign(signature, rack)
        return TaskKind(foreign, None)

    def _tags(self, classes: Sequence[int] | frozenset[int]) -> set[int]:
        return {tag for number in classes for tag in self._copies.class_tags[number]}
