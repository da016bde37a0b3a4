"""Strategy ``min_traffic``: least traffic, with each client's number of tasks kept (KIP-925).

Kinds are signatures and places are racks, so the network has few nodes for any number of tasks and clients.
"""

from __future__ import annotations

from collections.abc import Sequence

from streams_py.assignment.rack.cost import Costs, Signatures
from streams_py.assignment.rack.transport import TaskKind, count_here, counts_after, moves_between


def min_traffic_moves(
    signatures: Signatures, owners: Sequence[int], homes: Sequence[int], racks: int, costs: Costs
) -> list[tuple[int, int]]:
    """Return (task, new client) for tasks that move.

    ``homes`` has the rack number of each client, below ``racks``.
    """
    places = [homes[owner] for owner in owners]
    here = count_here(signatures.of, places)
    if nothing_to_gain(signatures, here, costs):
        return []
    foreign_here = {(kind, rack): signatures.foreign(kind, rack) for kind, rack in here}
    after = counts_after(signature_kinds(signatures, racks), here, foreign_here, racks, costs)
    return moves_between(here, after, signatures.of, places, owners)


def signature_kinds(signatures: Signatures, racks: int) -> list[TaskKind]:
    """Return the signatures as kinds. A move is useful only to racks with a replica."""
    return [
        TaskKind({rack: total - count for rack, count in local.items()}, total if len(local) < racks else None)
        for total, local in zip(signatures.partitions, signatures.local)
    ]


def nothing_to_gain(signatures: Signatures, here: dict[tuple[int, int], int], costs: Costs) -> bool:
    """Whether no move would pay off even if all racks had free places."""
    best = [max(local.values(), default=0) for local in signatures.local]
    return all(
        costs.traffic * (best[kind] - signatures.local[kind].get(rack, 0)) <= costs.non_overlap for kind, rack in here
    )
