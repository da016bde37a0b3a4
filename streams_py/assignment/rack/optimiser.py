"""KIP-925's optimiser, as the built-in assignors and ``TaskAssignmentUtils`` call it.

Active tasks are exchanged with one minimum-cost flow (:mod:`~streams_py.assignment.rack.min_traffic`,
:mod:`~streams_py.assignment.rack.balance_subtopology`), so the result is optimal. Standbys are exchanged with a local
search (:mod:`~streams_py.assignment.rack.standbys`) for the least traffic, whatever the strategy is.

No call changes a client's number of tasks, and no call increases the costs.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.configs import STRATEGY_BALANCE_SUBTOPOLOGY, STRATEGY_MIN_TRAFFIC
from streams_py.assignment.problem import Tags
from streams_py.assignment.rack.balance_subtopology import balance_subtopology_moves
from streams_py.assignment.rack.copies import Copies
from streams_py.assignment.rack.cost import Costs, Signatures
from streams_py.assignment.rack.min_traffic import min_traffic_moves
from streams_py.assignment.rack.standbys import exchange_standbys, moved_standbys
from streams_py.assignment.rack.transport import NetworkTooLargeError
from streams_py.errors import IllegalStateError

_log = logging.getLogger("streams_py.assignment")


def optimiser_for(
    *,
    active_racks: Mapping[TaskId, Sequence[frozenset[str]]],
    standby_racks: Mapping[TaskId, Sequence[frozenset[str]]],
    client_racks: Mapping[ProcessId, str],
    strategy: str,
) -> NetworkOptimiser:
    """Create an optimiser for one rebalance.

    Args:
        active_racks: racks of each partition that counts for a task as active.
        standby_racks: racks of each partition that counts for a task as standby.
        client_racks: rack of each client.

    Raises:
        ValueError: the strategy does not optimise.
    """
    return NetworkOptimiser(active_racks, standby_racks, client_racks, strategy)


class NetworkOptimiser:
    """Implements :class:`~streams_py.assignment.problem.RackOptimiser`."""

    def __init__(
        self,
        active_racks: Mapping[TaskId, Sequence[frozenset[str]]],
        standby_racks: Mapping[TaskId, Sequence[frozenset[str]]],
        client_racks: Mapping[ProcessId, str],
        strategy: str,
    ) -> None:
        if strategy not in (STRATEGY_MIN_TRAFFIC, STRATEGY_BALANCE_SUBTOPOLOGY):
            raise ValueError(f"rack-aware assignment is switched off by strategy {strategy!r}")
        self._strategy = strategy
        self._active_racks = active_racks
        self._standby_racks = standby_racks
        self._client_racks = client_racks
        self._numbers = {rack: number for number, rack in enumerate(sorted(set(client_racks.values())))}

    def optimise_active(
        self,
        tasks: Sequence[TaskId],
        clients: Sequence[ProcessId],
        owners: Sequence[int],
        *,
        traffic_cost: int,
        non_overlap_cost: int,
    ) -> Sequence[int]:
        """Return the new owner of each task: of the cheapest placements, one with the fewest moves."""
        costs = Costs(traffic_cost, non_overlap_cost)
        homes = self._homes(clients)
        signatures = Signatures(tasks, self._active_racks, self._numbers)
        new = list(owners)
        try:
            moves = self._active_moves(tasks, signatures, owners, homes, costs)
        except NetworkTooLargeError:
            _log.warning(
                "rack optimisation of active tasks skipped: the racks of the %d tasks differ too much (%d signatures)",
                len(tasks),
                len(signatures.local),
            )
            return new
        for task, client in moves:
            new[task] = client
        _log.info(
            "rack optimisation of active tasks: tasks %d, signatures %d, racks %d, traffic_before %d, "
            "traffic_after %d, moved %d",
            len(tasks),
            len(signatures.local),
            len(self._numbers),
            traffic_cost * signatures.foreign_total(homes[client] for client in owners),
            traffic_cost * signatures.foreign_total(homes[client] for client in new),
            len(moves),
        )
        return new

    def _active_moves(
        self, tasks: Sequence[TaskId], signatures: Signatures, owners: Sequence[int], homes: Sequence[int], costs: Costs
    ) -> list[tuple[int, int]]:
        if self._strategy == STRATEGY_MIN_TRAFFIC:
            return min_traffic_moves(signatures, owners, homes, len(self._numbers), costs)
        numbers: dict[tuple[str, int], int] = {}
        groups = [numbers.setdefault((task.name, task.subtopology), len(numbers)) for task in tasks]
        return balance_subtopology_moves(signatures, groups, owners, homes, len(self._numbers), costs)

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
        """Return the new standby hosts of each task; ``standbys`` itself is not changed."""
        costs = Costs(traffic_cost, non_overlap_cost)
        homes = self._homes(clients)
        signatures = Signatures(tasks, self._standby_racks, self._numbers)

        def start() -> Copies:
            return Copies(signatures, actives, standbys, homes, len(self._numbers), tags)

        copies = exchange_standbys(start, costs)
        _log.info(
            "rack optimisation of standbys: copies %d of %d tasks, racks %d, traffic_before %d, traffic_after %d, "
            "moved %d",
            sum(map(len, standbys)),
            len(tasks),
            len(self._numbers),
            traffic_cost * start().foreign_total(),
            traffic_cost * copies.foreign_total(),
            moved_standbys(standbys, copies),
        )
        return copies.hosts

    def _homes(self, clients: Sequence[ProcessId]) -> list[int]:
        """Return the rack number of each client."""
        for client in clients:
            if client not in self._client_racks:
                raise IllegalStateError(f"client {client} has no rack; optimise only when every client has client.rack")
        return [self._numbers[self._client_racks[client]] for client in clients]
