"""Minimum-cost flow in whole numbers: ship all supplies over arcs with capacities and costs.

The method is primal-dual. Every node has a potential. The *reduced* cost of an arc is its cost plus the difference of
the potentials of its ends; it is never negative where capacity is left. One phase has three steps:

1. Find the distances from all nodes with supply left, up to the nearest node with demand left (Dijkstra, stopped
   there).
2. Shift the potentials so that these shortest paths have a reduced cost of zero.
3. Ship as much as possible along arcs of reduced cost zero (breadth-first levels, then depth-first paths: Dinic's
   maximum flow).

Later phases cannot improve these shipments. So the flow is optimal when no supply is left.

The number of phases is at most the number of different path lengths. The networks of the rack-aware assignment have
few, so plain Python is fast enough. Kafka Streams' ``Graph`` instead cancels negative cycles, with one run of
Bellman-Ford for each, on a network of tasks times clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple


class Arc(NamedTuple):
    """An arc with a ``cost`` of at least 0 per unit and a ``capacity`` in units.

    Parallel arcs are allowed.
    """

    tail: int
    head: int
    cost: int
    capacity: int


def min_cost_flow(supply: Sequence[int], arcs: Sequence[Arc]) -> list[int]:
    """Return the flow on each arc that ships every node's ``supply`` at the lowest total cost.

    A negative supply is a demand. Nodes are 0 to ``len(supply) - 1``. The choice among equally cheap flows does not
    depend on the order of ``arcs``.

    Raises:
        ValueError: a cost or capacity is negative, or the supplies do not add up to 0 or cannot be shipped.
    """
    if sum(supply) != 0:
        raise ValueError(f"supplies add up to {sum(supply)}, not to 0")
    for arc in arcs:
        if arc.capacity < 0 or arc.cost < 0:
            raise ValueError(f"{arc} has a negative capacity or cost")
    order = sorted(range(len(arcs)), key=arcs.__getitem__)
    network = _Network(supply, [arcs[number] for number in order])
    while network.find_nearest():
        while network.set_levels():
            network.push()
    flow = [0] * len(arcs)
    for position, number in enumerate(order):
        flow[number] = network.room[2 * position + 1]
    return flow


class _Network:
    """The residual network: arc i became edge 2i, and edge 2i + 1 takes its flow back."""

    __slots__ = ("active", "cost", "edges", "excess", "head", "level", "potential", "room")

    def __init__(self, supply: Sequence[int], arcs: Sequence[Arc]) -> None:
        self.excess = list(supply)
        self.potential = [0] * len(supply)
        self.edges: list[list[int]] = [[] for _ in supply]
        self.head: list[int] = []
        self.cost: list[int] = []
        self.room: list[int] = []
        self.level: dict[int, int] = {}
        for edge, arc in enumerate(arcs):
            self.edges[arc.tail].append(2 * edge)
            self.edges[arc.head].append(2 * edge + 1)
            self.head += (arc.head, arc.tail)
            self.cost += (arc.cost, -arc.cost)
            self.room += (arc.capacity, 0)
        self.active = [node for node, units in enumerate(supply) if units > 0]

    def find_nearest(self) -> bool:
        """Shift potentials so that the paths to the nearest demands cost nothing.

        Returns False when everything is shipped.
        """
        self.active = [node for node in self.active if self.excess[node] > 0]
        if not self.active:
            return False
        distance, done, limit = self._distances()
        if limit:
            for node in done:
                self.potential[node] += distance[node] - limit
        return True

    def _distances(self) -> tuple[dict[int, int], set[int], int]:
        """Return (distances from the active nodes, nodes with final distances, nearest demand).

        The last value is the distance of the nearest demand.
        """
        edges, head, cost, room = self.edges, self.head, self.cost, self.room
        excess, potential = self.excess, self.potential
        distance = dict.fromkeys(self.active, 0)
        done: set[int] = set()
        limit: int | None = None
        heap = [(0, node) for node in self.active]
        while heap:
            reached, node = heappop(heap)
            if limit is not None and reached > limit:
                break
            if node in done:
                continue
            done.add(node)
            if limit is None and excess[node] < 0:
                limit = reached
            base = reached + potential[node]
            for edge in edges[node]:
                if room[edge]:
                    other = head[edge]
                    new = base + cost[edge] - potential[other]
                    if (
                        other not in done
                        and (limit is None or new <= limit)
                        and (other not in distance or new < distance[other])
                    ):
                        distance[other] = new
                        heappush(heap, (new, other))
        if limit is None:
            raise ValueError("the supplies cannot be shipped")
        return distance, done, limit

    def set_levels(self) -> bool:
        """Set the number of free edges from the nearest active node to each node.

        Returns False when no demand can be reached.
        """
        edges, head, cost, room, potential = self.edges, self.head, self.cost, self.room, self.potential
        queue = [node for node in self.active if self.excess[node] > 0]
        level = self.level = dict.fromkeys(queue, 0)
        reached = False
        for node in queue:  # the loop appends to it
            reached = reached or self.excess[node] < 0
            following, own = level[node] + 1, potential[node]
            for edge in edges[node]:
                if room[edge]:
                    other = head[edge]
                    if other not in level and own + cost[edge] == potential[other]:
                        level[other] = following
                        queue.append(other)
        return reached

    def push(self) -> None:
        """Ship along free edges from level to level until every such path is blocked."""
        excess, room = self.excess, self.room
        cursor: dict[int, int] = {}
        for source in self.active:
            while excess[source] > 0:
                path = self._path(source, cursor)
                if not path:
                    break
                sink = self.head[path[-1]]
                units = min(excess[source], -excess[sink])
                for edge in path:
                    units = min(units, room[edge])
                for edge in path:
                    room[edge] -= units
                    room[edge ^ 1] += units
                excess[source] -= units
                excess[sink] += units

    def _path(self, source: int, cursor: dict[int, int]) -> list[int]:
        """Return the edges from the source to a demand, empty without a path.

        ``cursor`` has the number of edges of each node that are known to be blocked.
        """
        edges, head, cost, room = self.edges, self.head, self.cost, self.room
        excess, potential, level = self.excess, self.potential, self.level
        path: list[int] = []
        node = source
        while excess[node] >= 0:
            own, following, base = edges[node], level[node] + 1, potential[node]
            position, end = cursor.get(node, 0), len(own)
            while position < end:
                edge = own[position]
                if room[edge]:
                    other = head[edge]
                    if level.get(other) == following and base + cost[edge] == potential[other]:
                        break
                position += 1
            cursor[node] = position
            if position < end:
                path.append(edge)
                node = other
            elif path:
                node = head[path.pop() ^ 1]
                cursor[node] += 1
            else:
                break
        return path
