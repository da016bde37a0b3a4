"""Kafka Streams' own rack optimiser, step by step: slow, and the yardstick for ours.

It solves networks of every task times every client by cancelling negative cycles, so which of several equally good
placements comes out depends on the order in which edges are looked at. Everything that decides this is kept: ascending
nodes and edges, the number of Bellman-Ford passes, where the walk along a cycle starts, which edge is read back. So a
recorded run of Kafka Streams can be repeated exactly. Kafka Streams' ``Graph``, ``MinTrafficGraphConstructor``,
``BalanceSubtopologyGraphConstructor`` and ``RackAwareTaskAssignor``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.problem import Tags

_SOURCE: Final = -1
_ROUNDS_MAX: Final = 4


@dataclass(slots=True)
class _Edge:
    """One direction of an edge of the residual network: ``room`` is what can still be sent."""

    tail: int
    head: int
    cost: int
    room: int
    back: _Edge | None = None


class _Graph:
    def __init__(self) -> None:
        self._edges: dict[int, dict[int, _Edge]] = {}

    def add(self, tail: int, head: int, capacity: int, cost: int, flow: int) -> None:
        there, back = _Edge(tail, head, cost, capacity - flow), _Edge(head, tail, -cost, flow)
        there.back, back.back = back, there
        self._edges.setdefault(tail, {})[head] = there
        self._edges.setdefault(head, {})[tail] = back

    def flow(self, tail: int, head: int) -> int:
        back = self._edges[tail][head].back
        assert back is not None
        return back.room

    def fill(self, sink: int) -> None:
        """Any maximum flow from the source: shortest augmenting paths."""
        while True:
            into: dict[int, _Edge] = {}
            queue = [_SOURCE]
            for node in queue:
                for head, edge in sorted(self._edges[node].items()):
                    if edge.room and head not in into and head != _SOURCE:
                        into[head] = edge
                        queue.append(head)
            if sink not in into:
                return
            path = [into[sink]]
            while path[-1].tail != _SOURCE:
                path.append(into[path[-1].tail])
            self._send(path)

    def cancel_negative_cycles(self) -> None:
        """Make the flow as cheap as possible."""
        ordered = [edge for _, heads in sorted(self._edges.items()) for _, edge in sorted(heads.items())]
        while cycle := self._negative_cycle(ordered):
            self._send(cycle)

    def _negative_cycle(self, ordered: Sequence[_Edge]) -> list[_Edge]:
        # All distances start at 0, as from an extra node with an edge to everyone. That node counts for the passes.
        distance = dict.fromkeys(self._edges, 0)
        into: dict[int, _Edge] = {}
        node: int | None = None
        for rounds_left in range(len(self._edges), -1, -1):
            changed = False
            for edge in ordered:
                if edge.room and distance[edge.head] > distance[edge.tail] + edge.cost:
                    into[edge.head] = edge
                    if rounds_left == 0:
                        node = edge.head
                        break
                    distance[edge.head] = distance[edge.tail] + edge.cost
                    changed = True
            if not changed:  # Kafka continues, without effect
                break
        if node is None:
            return []
        seen: set[int] = set()
        while node not in seen:
            seen.add(node)
            node = into[node].tail
        cycle = [into[node]]
        while cycle[-1].tail != node:
            cycle.append(into[cycle[-1].tail])
        return cycle

    @staticmethod
    def _send(path: Sequence[_Edge]) -> None:
        units = min(edge.room for edge in path)
        for edge in path:
            assert edge.back is not None
            edge.room -= units
            edge.back.room += units


def kafka_optimiser_for(
    *,
    active_racks: Mapping[TaskId, Sequence[frozenset[str]]],
    standby_racks: Mapping[TaskId, Sequence[frozenset[str]]],
    client_racks: Mapping[ProcessId, str],
    strategy: str,
) -> KafkaOptimiser:
    """As :func:`streams_py.assignment.rack.optimiser_for`."""
    return KafkaOptimiser(active_racks, standby_racks, client_racks, strategy)


class KafkaOptimiser:
    """Implements :class:`~streams_py.assignment.problem.RackOptimiser`."""

    def __init__(
        self,
        active_racks: Mapping[TaskId, Sequence[frozenset[str]]],
        standby_racks: Mapping[TaskId, Sequence[frozenset[str]]],
        client_racks: Mapping[ProcessId, str],
        strategy: str,
    ) -> None:
        self._active_racks = active_racks
        self._standby_racks = standby_racks
        self._client_racks = client_racks
        self._balance = strategy == "balance_subtopology"

    def optimise_active(
        self,
        tasks: Sequence[TaskId],
        clients: Sequence[ProcessId],
        owners: Sequence[int],
        *,
        traffic_cost: int,
        non_overlap_cost: int,
    ) -> Sequence[int]:
        """New owner of each task."""
        costs = [
            [
                traffic_cost * self._foreign(self._active_racks[task], client) + non_overlap_cost * (number != owner)
                for number, client in enumerate(clients)
            ]
            for task, owner in zip(tasks, owners)
        ]
        if self._balance:
            return _balance_subtopology([(task.name, task.subtopology) for task in tasks], owners, costs)
        return _min_traffic(owners, costs)

    def optimise_standby(
        self,
        tasks: Sequence[TaskId],
        clients: Sequence[ProcessId],
        actives: Sequence[int],
        standbys: Sequence[Collection[int]],
        *,
        traffic_cost: int,
        non_overlap_cost: int,
        tags: Sequence[Tags] | None,
    ) -> Sequence[Collection[int]]:
        """New standby hosts of each task, by pairwise exchange."""
        hosts = [set(found) for found in standbys]

        def may_move(task: int, source: int, target: int) -> bool:
            if target in hosts[task] or actives[task] == target:
                return False
            if tags is None:
                return True
            others: set[tuple[str, str]] = set()
            for host in (*hosts[task], actives[task]):
                if host >= 0 and host != source:
                    others |= tags[host]
            return len(others | tags[target]) >= len(others | tags[source])

        moved, rounds = True, 0
        while moved and rounds < _ROUNDS_MAX:
            moved, rounds = False, rounds + 1
            for first in range(len(clients)):
                for second in range(first + 1, len(clients)):
                    if self._client_racks[clients[first]] == self._client_racks[clients[second]]:
                        continue
                    pair = (first, second)
                    owners = {
                        task: source
                        for source, target in (pair, pair[::-1])
                        for task in range(len(tasks))
                        if source in hosts[task] and may_move(task, source, target)
                    }
                    if len(set(owners.values())) < len(pair):
                        continue
                    ordered = sorted(owners)
                    before = [pair.index(owners[task]) for task in ordered]
                    costs = [
                        [
                            traffic_cost * self._foreign(self._standby_racks[tasks[task]], clients[client])
                            + non_overlap_cost * (client != owners[task])
                            for client in pair
                        ]
                        for task in ordered
                    ]
                    for task, old, new in zip(ordered, before, _min_traffic(before, costs)):
                        if old != new:
                            moved = True
                            hosts[task] ^= {*pair}
        return hosts

    def _foreign(self, partitions: Sequence[frozenset[str]], client: ProcessId) -> int:
        rack = self._client_racks[client]
        return sum(rack not in racks for racks in partitions)


def _min_traffic(owners: Sequence[int], costs: Sequence[Sequence[int]]) -> list[int]:
    clients, sink = range(len(costs[0])), len(owners) + len(costs[0])
    graph = _Graph()
    for task, owner in enumerate(owners):
        graph.add(_SOURCE, task, 1, 0, 1)
        for client in clients:
            graph.add(task, len(owners) + client, 1, costs[task][client], int(client == owner))
    for client in clients:
        count = sum(owner == client for owner in owners)
        graph.add(len(owners) + client, sink, count, 0, count)
    graph.cancel_negative_cycles()
    return [next(c for c in clients if graph.flow(task, len(owners) + c)) for task in range(len(owners))]


def _balance_subtopology(
    groups: Sequence[tuple[str, int]], owners: Sequence[int], costs: Sequence[Sequence[int]]
) -> list[int]:
    total, clients, names = len(owners), range(len(costs[0])), sorted(set(groups))
    graph = _Graph()
    second = total + len(clients) * len(names)
    sink = second + len(clients)
    for number, name in enumerate(names):
        first = total + len(clients) * number
        members = [task for task in range(total) if groups[task] == name]
        for task in members:
            graph.add(_SOURCE, task, 1, 0, 0)
            for client in clients:
                graph.add(task, first + client, 1, costs[task][client], 0)
        for client in clients:
            count = sum(owner == client for owner in owners)
            graph.add(first + client, second + client, ceil(count * 1.0 / total * len(members)), 0, 0)
    for client in clients:
        graph.add(second + client, sink, sum(owner == client for owner in owners), 0, 0)
    graph.fill(sink)
    graph.cancel_negative_cycles()
    slots = [total + len(clients) * names.index(name) for name in groups]
    return [next(c for c in clients if graph.flow(task, slots[task] + c)) for task in range(total)]
