"""The sticky assignors: Kafka Streams' internal and its public one.

The internal one is ``LegacyStickyTaskAssignor``, the public one ``StickyTaskAssignor``. Both place tasks with
:mod:`~streams_py.assignment.assignors.sticky_placement`. They differ in three points: how ties of load are broken (the
internal one prefers clients with more threads), the order in which clients are visited, and which code runs the rack
optimisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.assignment.assignment_map import explanations_of, has_changelog, log_notes
from streams_py.assignment.assignors.sticky_placement import StickyClient, StickyPlacement
from streams_py.assignment.explanation import Host, Limits, Rule, TaskExplanation
from streams_py.assignment.java_order import HashSizing, in_hash_order, process_hash, task_hash
from streams_py.assignment.problem import AssignmentProblem, Decision, Placement
from streams_py.assignment.rack_optimisation import (
    RackAwareOptimizationParams,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
    rack_strategy_set,
)

DEFAULT_STICKY_TRAFFIC_COST: Final = 1
DEFAULT_STICKY_NON_OVERLAP_COST: Final = 10

_IMMEDIATELY: Final = datetime.fromtimestamp(0, UTC)


class LegacyStickyAssignor:
    """Keeps active tasks where they were, up to an even share. Requests no probing rebalance."""

    def __init__(self, *, preserve_actives: bool = False) -> None:
        """``preserve_actives`` keeps every active task where it was, even if unbalanced.

        It also disables the rack optimisation.
        """
        self._preserve = preserve_actives

    def decide(self, problem: AssignmentProblem, *, explain: bool = False) -> Decision:
        """Place all tasks. The order of the problem's containers decides ties."""
        placement = StickyPlacement(
            [StickyClient(c.process_id, c.capacity, c.previous_active, c.previous_standby) for c in problem.clients],
            problem.tasks,
            preserve=self._preserve,
            capacity_breaks_ties=True,
            active_order_hashed=False,
            sizing=problem.hash_sizing,
        )
        if explain:
            placement.rules = {}
        racks = None if self._preserve else _LegacyRacks(problem)
        placement.place_actives()
        if racks is not None:
            racks.optimise_actives(placement)
        replicas = problem.configs.num_standby_replicas
        if replicas > 0:
            placement.place_standbys(problem.end_offset_sums, replicas)
            if racks is not None:
                racks.optimise_standbys(placement)
        return Decision(
            _placements(placement),
            notes=tuple(placement.notes),
            explanation=_explanations(placement, problem) if explain else {},
        )


class _LegacyRacks:
    """KIP-925's optimiser between the steps; does nothing without complete rack information."""

    def __init__(self, problem: AssignmentProblem) -> None:
        self._problem = problem
        configs = problem.configs
        traffic, non_overlap = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
        self._traffic = DEFAULT_STICKY_TRAFFIC_COST if traffic is None else traffic
        self._non_overlap = DEFAULT_STICKY_NON_OVERLAP_COST if non_overlap is None else non_overlap
        # The optimiser numbers clients in ascending order, the placement in the order of its input.
        self._order = sorted(range(len(problem.clients)), key=lambda n: problem.clients[n].process_id)
        self._rank = {number: rank for rank, number in enumerate(self._order)}
        self._ids = [problem.clients[number].process_id for number in self._order]

    def optimise_actives(self, placement: StickyPlacement) -> None:
        ends = self._problem.end_offset_sums
        stateless = [task for task in self._problem.tasks if task not in ends]
        for tasks, traffic, non_overlap in ((ends, self._traffic, self._non_overlap), (stateless, 1, 0)):
            ordered = sorted(tasks)
            if self._problem.racks is None or not ordered:
                continue
            new = self._problem.racks.optimise_active(
                ordered,
                self._ids,
                [self._rank[placement.active[task]] for task in ordered],
                traffic_cost=traffic,
                non_overlap_cost=non_overlap,
            )
            placement.replace_actives({task: self._order[rank] for task, rank in zip(ordered, new)})

    def optimise_standbys(self, placement: StickyPlacement) -> None:
        if self._problem.racks is None:
            return
        ordered = sorted(self._problem.end_offset_sums)
        new = self._problem.racks.optimise_standby(
            ordered,
            self._ids,
            [self._rank[placement.active[task]] for task in ordered],
            [[self._rank[host] for host in placement.standby[task]] for task in ordered],
            traffic_cost=self._traffic,
            non_overlap_cost=self._non_overlap,
            tags=None,
        )
        for task, ranks in zip(ordered, new):
            placement.standby[task] = [self._order[rank] for rank in sorted(ranks)]


def _placements(placement: StickyPlacement) -> dict[ProcessId, Placement]:
    result = [Placement([], []) for _ in placement.clients]
    for task in sorted(placement.active):
        result[placement.active[task]].active.append(task)
    for task in sorted(placement.standby):
        for client in placement.standby[task]:
            result[client].standby.append(task)
    return {client.process_id: lists for client, lists in zip(placement.clients, result)}


def _explanations(placement: StickyPlacement, problem: AssignmentProblem) -> dict[TaskId, TaskExplanation]:
    configs, rules = problem.configs, placement.rules or {}
    limits = Limits(configs.acceptable_recovery_lag, configs.max_warmup_replicas, 0, configs.num_standby_replicas)

    def host(task: TaskId, client: int) -> Host:
        given = problem.clients[client]
        lag = problem.lag(given, task) if task in problem.end_offset_sums else None
        rule = rules.get((task, client), Rule.RACKS)  # the only other way in which a task gets to a client
        return Host(given.process_id, rule, lag, len(placement.held[client]) / given.capacity)

    return {
        task: TaskExplanation(
            task,
            host(task, owner),
            problem.clients[owner].process_id,
            limits,
            tuple(host(task, client) for client in sorted(placement.standby.get(task, ()))),
        )
        for task, owner in placement.active.items()
    }


class StickyTaskAssignor(TaskAssignor):
    """The public sticky assignor (KIP-924): stickiness first, then balance.

    The rack optimisation runs if ``rack.aware.assignment.strategy`` is set. With its default costs (traffic 1,
    non-overlap 10) a task moves only if this saves more than ten partitions from being read across racks.
    """

    def __init__(
        self,
        must_preserve_active_task_assignment: bool = False,
        *,
        hash_sizing: HashSizing = HashSizing.JDK_19_AND_NEWER,
    ) -> None:
        """``must_preserve_active_task_assignment`` keeps every active task where it was.

        It also requests an immediate follow-up rebalance from one client.
        """
        self._preserve = must_preserve_active_task_assignment
        self._sizing = hash_sizing

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place all tasks."""
        return TaskAssignment(self._place(application_state, None))

    def explanations(self, application_state: ApplicationState) -> Mapping[TaskId, TaskExplanation]:
        """Return why :meth:`assign` places each task where it does."""
        rules: dict[tuple[TaskId, ProcessId], Rule] = {}
        entries = self._place(application_state, rules)
        return explanations_of(
            application_state, entries, lambda task, client: rules.get((task, client), Rule.RACKS), {}
        )

    def _place(
        self, application_state: ApplicationState, rules: dict[tuple[TaskId, ProcessId], Rule] | None
    ) -> list[KafkaStreamsAssignment]:
        """Return one entry for each client, and store the reasons in ``rules`` if it is given."""
        states = application_state.kafka_streams_states()
        tasks = application_state.all_tasks()
        if not states:
            return []
        placement = StickyPlacement(
            [
                StickyClient(
                    process_id,
                    s.num_processing_threads,
                    sorted(s.previous_active_tasks),
                    sorted(s.previous_standby_tasks),
                )
                for process_id, s in states.items()
            ],
            tasks,
            preserve=self._preserve,
            capacity_breaks_ties=False,
            active_order_hashed=True,
            sizing=self._sizing,
        )
        if rules is not None:
            placement.rules = {}
        placement.place_actives()
        replicas = application_state.assignment_configs().num_standby_replicas
        assignments = {process_id: KafkaStreamsAssignment(process_id) for process_id in states}
        _write(placement.active, TaskType.ACTIVE, placement, assignments)
        if not self._preserve:
            self._optimise_actives(application_state, assignments, placement)
        if replicas > 0:
            # Kafka iterates these by object identity, which is random. The hash order of the ids is similar but fixed.
            logged = [task for task, info in tasks.items() if has_changelog(info)]
            placement.place_standbys(in_hash_order(logged, task_hash), replicas)
            for task, hosts in placement.standby.items():
                for host in hosts:
                    assigned = AssignedTask(task, TaskType.STANDBY)
                    assignments[placement.clients[host].process_id].assign_task(assigned)
            if not self._preserve and rack_strategy_set(application_state):
                optimize_rack_aware_standby_tasks(self._params(application_state), assignments)
        if rules is None:
            log_notes(placement.notes)
        else:
            rules |= {(t, placement.clients[n].process_id): rule for (t, n), rule in (placement.rules or {}).items()}
        if self._preserve:
            first = in_hash_order(assignments, process_hash)[0]
            assignments[first] = assignments[first].with_followup_rebalance(_IMMEDIATELY)
        return list(assignments.values())

    def _optimise_actives(
        self,
        application_state: ApplicationState,
        assignments: dict[ProcessId, KafkaStreamsAssignment],
        placement: StickyPlacement,
    ) -> None:
        if not rack_strategy_set(application_state):
            return
        tasks = application_state.all_tasks()
        stateful = [task for task, info in tasks.items() if has_changelog(info)]
        stateless = RackAwareOptimizationParams(
            application_state=application_state, tasks=tasks.keys() - stateful, traffic_cost=1, non_overlap_cost=0
        )
        optimize_rack_aware_active_tasks(self._params(application_state, stateful), assignments)
        optimize_rack_aware_active_tasks(stateless, assignments)
        number = {client.process_id: position for position, client in enumerate(placement.clients)}
        moved = {
            task: number[process_id]
            for process_id, assignment in assignments.items()
            for task in assignment.tasks
            if placement.active[task] != number[process_id]
        }
        placement.replace_actives(moved)

    def _params(
        self, application_state: ApplicationState, tasks: Iterable[TaskId] | None = None
    ) -> RackAwareOptimizationParams:
        configs = application_state.assignment_configs()
        traffic, non_overlap = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
        return RackAwareOptimizationParams(
            application_state=application_state,
            tasks=tasks,
            traffic_cost=DEFAULT_STICKY_TRAFFIC_COST if traffic is None else traffic,
            non_overlap_cost=DEFAULT_STICKY_NON_OVERLAP_COST if non_overlap is None else non_overlap,
        )


def _write(
    owners: Mapping[TaskId, int],
    role: TaskType,
    placement: StickyPlacement,
    assignments: Mapping[ProcessId, KafkaStreamsAssignment],
) -> None:
    for task, client in owners.items():
        assignments[placement.clients[client].process_id].assign_task(AssignedTask(task, role))
