"""Strategy ``balance_subtopology``: least traffic with balanced sub-topologies (KIP-925).

A client with n of all T tasks may have at most ceil(n * v / T) of the v tasks of a sub-topology. This cap depends on
the client and the sub-topology, so the network needs nodes for sub-topologies times clients (but not tasks times
clients):

* *type*: tasks of one sub-topology and signature. Its stay arcs lead directly to *slots*.
* *slot*: one sub-topology on one client. The capacity of its arc to the *client* is the cap.
* *arrival*: one sub-topology in one rack. Move arcs end here, and arcs of cost 0 lead on to the slots of the rack.
* *hub*: one sub-topology, any rack; see :mod:`~streams_py.assignment.rack.transport`.

The clients of a rack cannot be merged into one node: staying is cheaper than moving, and that depends on the client.

The caps can always be met: n * v / T tasks of every sub-topology on every client is a fractional solution. Kafka
Streams rounds the cap up in floating point, which gives one task too many for some numbers. The cap is exact here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streams_py.assignment.rack.cost import Costs, Signatures
from streams_py.assignment.rack.flow import Arc, min_cost_flow
from streams_py.assignment.rack.min_traffic import nothing_to_gain
from streams_py.assignment.rack.transport import ARCS_MAX, NetworkTooLargeError, count_here, deal


def cap(tasks_of_client: int, tasks_of_group: int, all_tasks: int) -> int:
    """Return the maximum number of a sub-topology's tasks that a client may have."""
    return -(-tasks_of_client * tasks_of_group // all_tasks)


def balance_subtopology_moves(
    signatures: Signatures, groups: Sequence[int], owners: Sequence[int], homes: Sequence[int], racks: int, costs: Costs
) -> list[tuple[int, int]]:
    """Return (task, new client) for tasks that move. ``groups``: sub-topology of each task."""
    network = _Network(signatures, groups, owners, homes, racks, costs)
    if network.caps_kept() and nothing_to_gain(
        signatures, count_here(signatures.of, [homes[owner] for owner in owners]), costs
    ):
        return []
    return network.solve()


@dataclass(slots=True)
class _Arrivals:
    """Tasks that arrive at one sub-topology in one rack: their types, and their new clients."""

    types: list[tuple[int, int]]
    clients: list[int]


class _Network:
    """The network. Nodes: types, slots, arrivals, hubs, clients with tasks, in this order."""

    def __init__(
        self,
        signatures: Signatures,
        groups: Sequence[int],
        owners: Sequence[int],
        homes: Sequence[int],
        racks: int,
        costs: Costs,
    ) -> None:
        self._signatures, self._owners, self._racks, self._costs = signatures, owners, racks, costs
        numbers: dict[tuple[int, int], int] = {}
        self._type_of = [numbers.setdefault(key, len(numbers)) for key in zip(groups, signatures.of)]
        self._types = list(numbers)
        self._group_sizes = list(count_here(groups, groups).values())
        held: dict[int, int] = {}
        for owner in owners:
            held[owner] = held.get(owner, 0) + 1
        self._clients = sorted(held)
        self._held = [held[client] for client in self._clients]
        self._homes = [homes[client] for client in self._clients]
        position = {client: number for number, client in enumerate(self._clients)}
        self._places = [position[owner] for owner in owners]
        self._in_group = count_here(groups, self._places)
        self._here = count_here(self._type_of, self._places)
        self._arcs: list[Arc] = []
        self._slots = len(self._types)
        self._arrivals = self._slots + len(self._group_sizes) * len(self._clients)
        self._hubs = self._arrivals + len(self._group_sizes) * racks
        self._sinks = self._hubs + len(self._group_sizes)

    def caps_kept(self) -> bool:
        """Whether no client has too many tasks of a sub-topology now."""
        return all(count <= self._cap(group, client) for (group, client), count in self._in_group.items())

    def solve(self) -> list[tuple[int, int]]:
        """Return (task, new client) for tasks that move."""
        supply = [0] * self._slots + [0] * (self._sinks - self._slots) + [-count for count in self._held]
        for (kind, _), count in self._here.items():
            supply[kind] += count
        self._add_stays()
        moves = self._add_moves(supply)
        spreads = self._add_spreads()
        flow = min_cost_flow(supply, self._arcs)
        stays = dict(zip(self._here, flow))
        arrivals = self._read_arrivals(moves, spreads, flow)
        return self._match(stays, arrivals)

    def _cap(self, group: int, client: int) -> int:
        return cap(self._held[client], self._group_sizes[group], len(self._owners))

    def _slot(self, group: int, client: int) -> int:
        return self._slots + group * len(self._clients) + client

    def _scale(self) -> int:
        return len(self._owners) + 1

    def _add_stays(self) -> None:
        scale, traffic = self._scale(), self._costs.traffic
        for (kind, client), count in self._here.items():
            group, signature = self._types[kind]
            foreign = self._signatures.foreign(signature, self._homes[client])
            self._arcs.append(Arc(kind, self._slot(group, client), traffic * foreign * scale, count))

    def _add_moves(self, supply: Sequence[int]) -> list[tuple[int, int]]:
        """Add arcs to arrivals and hubs; return (type, rack) of each arc, with rack -1 for a hub."""
        scale, (traffic, non_overlap) = self._scale(), self._costs
        ends: list[tuple[int, int]] = []
        for kind, (group, signature) in enumerate(self._types):
            total, local = self._signatures.partitions[signature], self._signatures.local[signature]
            for rack, count in local.items():
                cost = (traffic * (total - count) + non_overlap) * scale + 1
                self._arcs.append(Arc(kind, self._arrivals + group * self._racks + rack, cost, supply[kind]))
                ends.append((kind, rack))
            if len(local) < self._racks:
                cost = (traffic * total + non_overlap) * scale + 1
                self._arcs.append(Arc(kind, self._hubs + group, cost, supply[kind]))
                ends.append((kind, -1))
        if len(self._arcs) + 2 * (self._sinks - self._slots) > ARCS_MAX:
            raise NetworkTooLargeError
        return ends

    def _add_spreads(self) -> list[tuple[int, int, int]]:
        """Add the arcs of cost 0, then the arcs with the caps.

        Returns (group, rack, -1) for each arc from a hub to a rack, and (group, rack, client) for each arc from a rack
        to a slot.
        """
        ends: list[tuple[int, int, int]] = []
        for group, size in enumerate(self._group_sizes):
            for rack in range(self._racks):
                self._arcs.append(Arc(self._hubs + group, self._arrivals + group * self._racks + rack, 0, size))
                ends.append((group, rack, -1))
            for client, rack in enumerate(self._homes):
                room = self._cap(group, client)
                slot = self._slot(group, client)
                self._arcs.append(Arc(self._arrivals + group * self._racks + rack, slot, 0, room))
                ends.append((group, rack, client))
        for group in range(len(self._group_sizes)):
            for client in range(len(self._clients)):
                self._arcs.append(Arc(self._slot(group, client), self._sinks + client, 0, self._cap(group, client)))
        return ends

    def _read_arrivals(
        self, moves: Sequence[tuple[int, int]], spreads: Sequence[tuple[int, int, int]], flow: Sequence[int]
    ) -> dict[tuple[int, int], _Arrivals]:
        """Return the arriving tasks and their new clients, by (group, rack)."""
        found: dict[tuple[int, int], _Arrivals] = {}
        stock: dict[int, list[tuple[int, int]]] = {}
        first = len(self._here)
        for (group, rack, client), units in zip(spreads, flow[first + len(moves) :]):
            if not units:
                continue
            if client < 0:
                stock.setdefault(group, []).append((rack, units))
            else:
                found.setdefault((group, rack), _Arrivals([], [])).clients.extend([client] * units)
        for (kind, rack), units in zip(moves, flow[first:]):
            group = self._types[kind][0]
            for target, share in ((rack, units),) if rack >= 0 else deal(stock.get(group, []), units):
                if share:
                    found[group, target].types.append((kind, share))
        return found

    def _match(
        self, stays: dict[tuple[int, int], int], arrivals: dict[tuple[int, int], _Arrivals]
    ) -> list[tuple[int, int]]:
        """Match leaving tasks with vacancies, both ascending. The lowest tasks of a type stay."""
        leavers: list[list[int]] = [[] for _ in self._types]
        for task, key in enumerate(zip(self._type_of, self._places)):
            if stays[key]:
                stays[key] -= 1
            else:
                leavers[key[0]].append(task)
        for tasks in leavers:
            tasks.reverse()
        moves: list[tuple[int, int]] = []
        for _, arrived in sorted(arrivals.items(), key=lambda item: item[0]):
            coming = [leavers[kind].pop() for kind, units in sorted(arrived.types) for _ in range(units)]
            moves += zip(coming, (self._clients[client] for client in arrived.clients), strict=True)
        return moves
