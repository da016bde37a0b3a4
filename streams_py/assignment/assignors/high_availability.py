"""The high-availability assignor (KIP-441), the default as in Kafka Streams.

The steps are:

1. Stateful tasks are distributed round robin over the clients and balanced over threads.
2. Standbys are placed and balanced. The result is the *desired* placement, which ignores where tasks were before.
3. Movements avoid interruptions: clients that are not caught up warm up, while a caught-up client runs the task
   (:mod:`~streams_py.assignment.assignors.movements`).
4. Stateless tasks go to the least loaded clients.

If all racks are known, KIP-925's optimiser exchanges tasks after each placement step.

The decisions equal those of Kafka Streams' ``HighAvailabilityTaskAssignor``, but computed without its tables of tasks
times clients: the work grows with the number of task copies.

There are two intended deviations:

* If a rack strategy is configured, all clients have racks, and no tags are configured, standbys are spread over the
  racks as if the rack were a tag. Kafka documents this for ``client.rack``, but does not pass the racks on.
* Placing the standbys of a task one after the other over tags can reach a dead end. Then we also search for a set of
  hosts that fit together (:mod:`~streams_py.assignment.standby.tag_aware`). The result is used if it spreads the copies
  over more tag values.

Otherwise the decision is Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.balance import balance_active, balance_standby
from streams_py.assignment.assignors.cluster import Cluster, reported_lags
from streams_py.assignment.assignors.high_availability_explanation import HighAvailabilityExplanation
from streams_py.assignment.assignors.movements import LagTable, MovementPlan
from streams_py.assignment.configs import STRATEGY_NONE, AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput, Decision, Note, NoteKind, Placement, Tags
from streams_py.assignment.standby.default import assign_default_standbys
from streams_py.assignment.standby.ideal_spread import spread_total
from streams_py.assignment.standby.tag_aware import TagAwareStandbys

_TRAFFIC_COST: Final = 10
_NON_OVERLAP_COST: Final = 1


class HighAvailabilityAssignor:
    """Decides one rebalance. The module describes the steps."""

    def __init__(self, *, reference_behaviour: bool = False) -> None:
        """``reference_behaviour=True`` disables the deviations."""
        self._reference_behaviour = reference_behaviour

    def decide(self, problem: AssignmentProblem, *, explain: bool = False) -> Decision:
        """Place all tasks. The order of clients and tasks in the problem does not matter."""
        clients = sorted(problem.clients, key=lambda client: client.process_id)
        if not clients:
            return Decision({})
        ends = problem.end_offset_sums
        stateful = sorted(ends)
        stateless = sorted(task for task in problem.tasks if task not in ends)
        cluster = Cluster([c.process_id for c in clients], [c.capacity for c in clients], stateful)
        lags = LagTable(
            reported_lags(problem, clients, {task: number for number, task in enumerate(stateful)}),
            [ends[task] for task in stateful],
            clients=len(clients),
            acceptable=problem.configs.acceptable_recovery_lag,
        )
        place_actives(cluster)
        explanation = HighAvailabilityExplanation(cluster, problem.configs) if explain else None
        optimise_actives(problem, cluster, stateful)
        keys, tags = self._tags(problem.configs, clients)
        notes = self._place_standbys(problem, cluster, lags, keys, tags)
        if explanation is not None:
            explanation.desired_placement_done(notes, by_tags=bool(keys))
        plan = MovementPlan(cluster, lags, max_warmup_replicas=problem.configs.max_warmup_replicas, record=explain)
        movements = plan.run()
        owners = place_stateless(cluster, stateless)
        if problem.racks is not None and stateless:
            owners = list(
                problem.racks.optimise_active(
                    stateless, cluster.process_ids, owners, traffic_cost=1, non_overlap_cost=0
                )
            )
        return Decision(
            placements(cluster, stateless, owners),
            probing=movements > 0,
            warmups=tuple((stateful[task], clients[client].process_id) for task, client in plan.warmups),
            notes=tuple(notes),
            explanation=explanation.tell(lags, plan.movements, stateless, owners) if explanation is not None else {},
        )

    def _tags(
        self, configs: AssignmentConfigs, clients: Sequence[ClientInput]
    ) -> tuple[Sequence[str], Sequence[Mapping[str, str]]]:
        """Return (keys over which standbys are spread, all tags of each client)."""
        racks = [client.rack for client in clients]
        strategy = STRATEGY_NONE if self._reference_behaviour else configs.rack_aware_assignment_strategy
        if strategy != STRATEGY_NONE and not configs.rack_aware_assignment_tags and all(racks):
            return ("rack",), [{"rack": rack or ""} for rack in racks]
        return configs.rack_aware_assignment_tags, [client.tags for client in clients]

    def _place_standbys(
        self,
        problem: AssignmentProblem,
        cluster: Cluster,
        lags: LagTable,
        keys: Sequence[str],
        tags: Sequence[Mapping[str, str]],
    ) -> list[Note]:
        replicas = problem.configs.num_standby_replicas
        if replicas == 0:
            return []
        if keys:
            return self._spread_standbys(problem, cluster, lags, keys, tags)
        notes = assign_default_standbys(cluster, range(len(cluster.tasks)), replicas)
        balance_standby(cluster, None)
        optimise_standbys(problem, cluster, None)
        return notes

    def _spread_standbys(
        self,
        problem: AssignmentProblem,
        cluster: Cluster,
        lags: LagTable,
        keys: Sequence[str],
        tags: Sequence[Mapping[str, str]],
    ) -> list[Note]:
        """Return Kafka's placement or, after a dead end, the searched one if its copies differ more.

        The two are compared before any task moves. The later steps depend on lags. If the choice depended on lags, too,
        the decision of a group could change in every round and never become stable.
        """
        values = [[own.get(key) for key in keys] for own in tags]
        before = cluster.count[:]

        def place(*, one_by_one: bool) -> list[Note]:
            cluster.count[:], cluster.standby[:] = before, [()] * len(cluster.tasks)
            placing = TagAwareStandbys(cluster, tags, keys, one_by_one=one_by_one, with_state=lags.with_state)
            notes = placing.assign(range(len(cluster.tasks)), problem.configs.num_standby_replicas)
            balance_standby(cluster, placing.may_move)
            optimise_standbys(problem, cluster, placing.pairs)
            return notes

        def quality(notes: list[Note]) -> tuple[int, int]:
            return spread_total(cluster.active, cluster.standby, values), -_relaxed(notes)

        notes = place(one_by_one=True)
        if self._reference_behaviour or not (_relaxed(notes) or any(None in row for row in values)):
            return notes
        kept, quality_of_kept = (cluster.count[:], cluster.standby[:]), quality(notes)
        searched = place(one_by_one=False)
        if quality(searched) > quality_of_kept:
            return searched
        cluster.count[:], cluster.standby[:] = kept
        return notes


def _relaxed(notes: list[Note]) -> int:
    """Return the number of tasks with standbys for which tags were ignored."""
    return sum(note.kind is NoteKind.TAGS_RELAXED for note in notes)


def place_actives(cluster: Cluster) -> None:
    """Assign task number i to client i mod N, then balance clients with different capacities."""
    size = len(cluster)
    cluster.active[:] = [task % size for task in range(len(cluster.tasks))]
    share, rest = divmod(len(cluster.tasks), size)
    cluster.count[:] = [share + (client < rest) for client in range(size)]
    if not cluster.uniform:  # with equal capacities the counts differ by at most one, so no task can move
        balance_active(cluster)


def optimise_actives(problem: AssignmentProblem, cluster: Cluster, tasks: Sequence[TaskId]) -> None:
    """Apply KIP-925 to the stateful active tasks."""
    if problem.racks is None or not tasks:
        return
    traffic, non_overlap = _costs(problem)
    new = problem.racks.optimise_active(
        tasks, cluster.process_ids, cluster.active, traffic_cost=traffic, non_overlap_cost=non_overlap
    )
    cluster.active[:] = new


def optimise_standbys(problem: AssignmentProblem, cluster: Cluster, tags: Sequence[Tags] | None) -> None:
    """Apply KIP-925 to the standbys."""
    if problem.racks is None:
        return
    traffic, non_overlap = _costs(problem)
    new = problem.racks.optimise_standby(
        cluster.tasks,
        cluster.process_ids,
        cluster.active,
        cluster.standby,
        traffic_cost=traffic,
        non_overlap_cost=non_overlap,
        tags=tags,
    )
    cluster.standby[:] = [tuple(hosts) for hosts in new]


def _costs(problem: AssignmentProblem) -> tuple[int, int]:
    configs = problem.configs
    traffic, non_overlap = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
    return (_TRAFFIC_COST if traffic is None else traffic, _NON_OVERLAP_COST if non_overlap is None else non_overlap)


def place_stateless(cluster: Cluster, tasks: Sequence[TaskId]) -> list[int]:
    """Return the client of each stateless task: fewest active tasks per thread, then lowest id."""
    if not tasks:
        return []
    actives = [0] * len(cluster)
    for client in cluster.active:
        actives[client] += 1
    heap = [(count / capacity, client) for client, (count, capacity) in enumerate(zip(actives, cluster.capacity))]
    heapify(heap)
    owners = []
    for _ in tasks:
        client = heap[0][1]
        owners.append(client)
        actives[client] += 1
        heapreplace(heap, (actives[client] / cluster.capacity[client], client))
    return owners


def placements(cluster: Cluster, stateless: Sequence[TaskId], owners: Sequence[int]) -> dict[ProcessId, Placement]:
    """Return the task ids of each client; tasks are added in ascending order."""
    result = [Placement([], []) for _ in range(len(cluster))]
    for task, client, hosts in zip(cluster.tasks, cluster.active, cluster.standby):
        result[client].active.append(task)
        for host in hosts:
            result[host].standby.append(task)
    for task, client in zip(stateless, owners):
        result[client].active.append(task)
    if stateless:
        for placement in result:
            placement.active.sort()
    return dict(zip(cluster.process_ids, result))
