"""Compares recorded rack optimisation (KIP-925) with this library's.

Two properties are checked separately. First, the assignor must call the optimiser as Kafka does. The recorded results
are replayed to our assignor as the optimiser's answers; every call and the final decision must be equal. Second, the
optimiser must find an equally good placement. Each recorded input is optimised alone, and costs are compared, because
many placements have the same cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil

from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment import task_assignment_utils as utils
from streams_py.assignment.api import ApplicationState, KafkaStreamsAssignment
from streams_py.assignment.assignment_map import has_changelog
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.problem import RackOptimiser, Tags
from streams_py.assignment.rack import optimiser_for
from tests.conformance.decision_cases import (
    Case,
    client_racks,
    difference,
    moved,
    partitions_of,
    places_of,
    places_of_entries,
    problem_of,
    traffic,
)


class _DifferentError(Exception):
    """The assignor called the optimiser otherwise than recorded."""


def _roles(places: Mapping[str, Mapping[str, list[str]]], role: str) -> dict[str, list[str]]:
    return {client: roles[role] for client, roles in places.items()}


# -- assignors -----------------------------------------------------------------------------------------------


def run_rack_case(case: Case) -> str | None:
    """One assignor's run with rack optimisation."""
    recorded = case["result"]
    found = difference("error", None, recorded["error"]) or _check_numbers(case)
    if found:
        return found
    playback = _Playback(case) if recorded["stages"] else None
    make = LegacyStickyAssignor if case["assignor"] == "legacy_sticky" else _high_availability
    try:
        decision = make().decide(problem_of(case, racks=playback))
    except _DifferentError as different:
        return str(different)
    found = (
        difference("assignment", places_of(decision.placements), recorded["assignment"])
        or difference("probing", decision.probing, recorded["probing"])
        or (difference("stages", playback.played, len(recorded["stages"])) if playback else None)
    )
    if found or not recorded["stages"]:
        return found
    for number, stage in enumerate(recorded["stages"]):
        found = _check_active_stage(case, stage) if stage["stage"] == "active" else _check_standby_stage(case, stage)
        if found:
            return f"stage {number}: {found}"
    return None


def _high_availability() -> HighAvailabilityAssignor:
    return HighAvailabilityAssignor(reference_behaviour=True)  # as Kafka, whose decisions these are


def _check_numbers(case: Case) -> str | None:
    """Costs and traffic that follow from the recorded placements."""
    recorded, racks = case["result"], client_racks(case)
    inputs, changelogs = partitions_of(case, "inputs"), partitions_of(case, "changelogs")
    for number, stage in enumerate(recorded["stages"]):
        before, after, partitions = stage["before"], stage["after"], inputs
        price = stage["traffic_cost"]
        fee = 0
        if stage["stage"] == "standby":
            if _roles(before, "active") != _roles(after, "active"):
                return f"stage {number}: actives changed"
            before, after, partitions = _roles(before, "standby"), _roles(after, "standby"), changelogs
        else:
            fee = stage["non_overlap_cost"] * moved(before, after)
            if sorted(task for tasks in after.values() for task in tasks) != sorted(stage["tasks"]):
                return f"stage {number}: other tasks than those to optimise"
        if {client: len(tasks) for client, tasks in before.items()} != {c: len(tasks) for c, tasks in after.items()}:
            return f"stage {number}: clients do not keep their number of tasks"
        foreign = traffic(partitions, after, racks)
        found = (
            difference("cost_before", price * traffic(partitions, before, racks), stage["cost_before"])
            or difference("traffic_after", foreign, stage["traffic_after"])
            or difference("cost", price * foreign + fee, stage["cost"])
            or _check_cap(case, stage)
        )
        if found:
            return f"stage {number}: {found}"
    if any(rack is None for rack in racks.values()):
        return None
    places = recorded["assignment"]
    return difference(
        "active_traffic", traffic(inputs, _roles(places, "active"), racks), recorded["active_traffic"]
    ) or difference(
        "standby_traffic", traffic(changelogs, _roles(places, "standby"), racks), recorded["standby_traffic"]
    )


def _check_cap(case: Case, stage: Case) -> str | None:
    """``cap_differs``: Kafka rounds the cap of balance_subtopology up in floating point, one too high for some."""
    if "cap_differs" not in stage:
        return None
    total = len(stage["tasks"])
    sizes: dict[tuple[str, int], int] = {}
    for task in map(TaskId.parse, stage["tasks"]):
        sizes[task.name, task.subtopology] = sizes.get((task.name, task.subtopology), 0) + 1
    counts = {len(tasks) for tasks in stage["before"].values()}
    balanced = case["configs"]["rack_aware_strategy"] == "balance_subtopology"
    differs = balanced and any(
        ceil(n * 1.0 / total * size) > -(-n * size // total) for n in counts for size in sizes.values()
    )
    return difference("cap_differs", differs, stage["cap_differs"])


class _Playback:
    """A RackOptimiser that answers what was recorded, and insists on being asked what was recorded."""

    def __init__(self, case: Case) -> None:
        self._stages = case["result"]["stages"]
        self.played = 0

    def optimise_active(
        self,
        tasks: Sequence[TaskId],
        clients: Sequence[ProcessId],
        owners: Sequence[int],
        *,
        traffic_cost: int,
        non_overlap_cost: int,
    ) -> Sequence[int]:
        stage = self._next("active", traffic_cost, non_overlap_cost, skip_empty=True)
        before: dict[str, list[str]] = {str(client): [] for client in clients}
        for task, owner in zip(tasks, owners):
            before[str(clients[owner])].append(str(task))
        self._same("tasks", [str(task) for task in tasks], stage["tasks"])
        self._same("before", before, stage["before"])
        number = {str(client): position for position, client in enumerate(clients)}
        after = {task: number[client] for client, placed in stage["after"].items() for task in placed}
        self._skip_empty()
        return [after[str(task)] for task in tasks]

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
        del tags
        stage = self._next("standby", traffic_cost, non_overlap_cost, skip_empty=True)
        before: dict[str, list[str]] = {str(client): [] for client in clients}
        for task, hosts in zip(tasks, standbys):
            for host in hosts:
                before[str(clients[host])].append(str(task))
        self._same("before", before, _roles(stage["before"], "standby"))
        stateful = {str(task) for task in tasks}
        owners = {str(task): str(clients[owner]) for task, owner in zip(tasks, actives)}
        recorded = {t: c for c, roles in stage["before"].items() for t in roles["active"] if t in stateful}
        self._same("actives", owners, recorded)
        number = {str(client): position for position, client in enumerate(clients)}
        after: dict[str, set[int]] = {}
        for client, placed in _roles(stage["after"], "standby").items():
            for name in placed:
                after.setdefault(name, set()).add(number[client])
        self._skip_empty()
        return [after.get(str(task), set()) for task in tasks]

    def _next(self, kind: str, traffic_cost: int, non_overlap_cost: int, *, skip_empty: bool) -> Case:
        if skip_empty:
            self._skip_empty()
        if self.played >= len(self._stages):
            raise _DifferentError(f"stages: ours asks for {kind} once more than recorded")
        stage: Case = self._stages[self.played]
        self.played += 1
        self._same("kind", kind, stage["stage"])
        self._same("costs", [traffic_cost, non_overlap_cost], [stage["traffic_cost"], stage["non_overlap_cost"]])
        return stage

    def _skip_empty(self) -> None:
        """Kafka also calls the optimiser without tasks, which does nothing; we do not."""
        while self.played < len(self._stages) and self._stages[self.played].get("tasks") == []:
            self.played += 1

    def _same(self, name: str, ours: object, recorded: object) -> None:
        found = difference(f"stage {self.played - 1}: {name}", ours, recorded)
        if found:
            raise _DifferentError(found)


# -- the optimiser alone -------------------------------------------------------------------------------------


def _optimiser(case: Case) -> RackOptimiser:
    return optimiser_for(
        active_racks={task: [racks for _, racks in tps] for task, tps in partitions_of(case, "inputs").items()},
        standby_racks={task: [racks for _, racks in tps] for task, tps in partitions_of(case, "changelogs").items()},
        client_racks={ProcessId.parse(client): rack for client, rack in client_racks(case).items() if rack},
        strategy=case["configs"]["rack_aware_strategy"],
    )


def _check_active_stage(case: Case, stage: Case) -> str | None:
    tasks = [TaskId.parse(task) for task in stage["tasks"]]
    if not tasks:
        return None
    clients = sorted(map(ProcessId.parse, stage["before"]))
    number = {str(client): position for position, client in enumerate(clients)}
    owner = {task: number[client] for client, placed in stage["before"].items() for task in placed}
    new = _optimiser(case).optimise_active(
        tasks,
        clients,
        [owner[str(task)] for task in tasks],
        traffic_cost=stage["traffic_cost"],
        non_overlap_cost=stage["non_overlap_cost"],
    )
    after: dict[str, list[str]] = {str(client): [] for client in clients}
    for task, client in zip(tasks, new):
        after[str(clients[client])].append(str(task))
    counts = {client: len(placed) for client, placed in stage["before"].items()}
    foreign = traffic(partitions_of(case, "inputs"), after, client_racks(case))
    cost = stage["traffic_cost"] * foreign + stage["non_overlap_cost"] * moved(stage["before"], after)
    found = difference("number of tasks", {client: len(placed) for client, placed in after.items()}, counts)
    if found or cost == stage["cost"]:
        return found
    if stage.get("cap_differs") and cost > stage["cost"]:
        return None  # Kafka's cap is looser than the exact one there
    return difference("cost", cost, stage["cost"])


def _check_standby_stage(case: Case, stage: Case) -> str | None:
    clients = sorted(map(ProcessId.parse, stage["before"]))
    number = {str(client): position for position, client in enumerate(clients)}
    tasks = sorted(TaskId.parse(task["id"]) for task in case["tasks"] if task["stateful"])
    position = {str(task): n for n, task in enumerate(tasks)}
    actives, standbys = [-1] * len(tasks), [set[int]() for _ in tasks]
    for client, roles in stage["before"].items():
        for task in roles["active"]:
            if task in position:
                actives[position[task]] = number[client]
        for task in roles["standby"]:
            standbys[position[task]].add(number[client])
    new = _optimiser(case).optimise_standby(
        tasks,
        clients,
        actives,
        standbys,
        traffic_cost=stage["traffic_cost"],
        non_overlap_cost=stage["non_overlap_cost"],
        tags=_tags(case, clients),
    )
    after: dict[str, list[str]] = {str(client): [] for client in clients}
    for task_id, active, hosts in zip(tasks, actives, new):
        if active in hosts:
            return f"{task_id} is active and standby on one client"
        for host in hosts:
            after[str(clients[host])].append(str(task_id))
    counts = {client: len(roles["standby"]) for client, roles in stage["before"].items()}
    found = difference("number of standbys", {client: len(placed) for client, placed in after.items()}, counts)
    cost = stage["traffic_cost"] * traffic(partitions_of(case, "changelogs"), after, client_racks(case))
    if not found and cost > stage["cost"]:
        found = f"cost: ours {cost}, recorded {stage['cost']}"
    return found


def _tags(case: Case, clients: Sequence[ProcessId]) -> Sequence[Tags] | None:
    """Tags for which the recorded assignor separated clients: only the default assignor, with tags configured."""
    if not case["configs"]["rack_aware_assignment_tags"] or case["assignor"] != "high_availability":
        return None
    own = {client["process_id"]: frozenset(client.get("client_tags", {}).items()) for client in case["clients"]}
    return [own[str(client)] for client in clients]


# -- TaskAssignmentUtils -------------------------------------------------------------------------------------


def run_optimiser_case(
    case: Case, state: ApplicationState, assignments: dict[ProcessId, KafkaStreamsAssignment]
) -> str | None:
    """One call of a public optimiser. Actives must cost what they cost in Kafka, standbys not more."""
    recorded, standby = case["result"], case["assignor"] == "optimize_rack_aware_standby_tasks"
    role = "standby" if standby else "active"
    racks, partitions = client_racks(case), partitions_of(case, "changelogs")
    if not standby:
        inputs = partitions_of(case, "inputs")
        # a source topic that is also the changelog counts once
        partitions = {task: list(dict([*inputs[task], *tps]).items()) for task, tps in partitions.items()}
    before = _roles(case["assignments"], role)
    params = _params(case, state)
    found = _check_recorded_map(case, role)
    if found:
        return found
    if recorded["error"] is None:
        found = _check_optimiser_numbers(
            case, params, before, _roles(recorded["assignment"], role), partitions, standby=standby
        )
    elif not standby:
        found = f"error: {recorded['error']} is recorded"
    if found:
        return found
    if standby:
        utils.optimize_rack_aware_standby_tasks(params, assignments)
    else:
        utils.optimize_rack_aware_active_tasks(params, assignments)
    after = _roles(places_of_entries(assignments.values()), role)
    sizes = {client: len(tasks) for client, tasks in before.items()}
    found = difference("number of tasks", {c: len(tasks) for c, tasks in after.items() if c in sizes or tasks}, sizes)
    if found:
        return found
    price, fee = _prices(case, params)
    ours = traffic(partitions, after, racks)
    if recorded["error"] is not None or price is None or fee is None:  # we continue where Kafka gives up
        worse = ours > traffic(partitions, before, racks)
        return "ours made the placement worse" if worse else None
    cost = price * ours + (0 if standby else fee * moved(before, after))
    if cost == recorded["cost"] or (standby and (cost < recorded["cost"] or _may_cost_more(case, cost))):
        return None
    if not standby and _cap_may_differ(case) and cost > recorded["cost"]:
        return None
    return difference("cost", cost, recorded["cost"])


def _check_recorded_map(case: Case, role: str) -> str | None:
    """The recorded map goes with the given one: an optimiser moves tasks of one role, and nothing else."""
    given, recorded = case["assignments"], case["result"]["assignment"]
    if (recorded is None) != (case["result"]["error"] is not None):
        return "assignment: recorded together with an error, or neither"
    if recorded is None:
        return None
    other = "active" if role == "standby" else "standby"

    def held(places: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
        return {client: sorted(tasks) for client, tasks in _roles(places, other).items() if tasks}

    def all_tasks(places: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
        return sorted(task for tasks in _roles(places, role).values() for task in tasks)

    return difference(f"tasks of role {other}", held(given), held(recorded)) or difference(
        f"tasks of role {role}", all_tasks(given), all_tasks(recorded)
    )


def _check_optimiser_numbers(
    case: Case,
    params: utils.RackAwareOptimizationParams,
    before: Mapping[str, list[str]],
    after: Mapping[str, list[str]],
    partitions: Mapping[TaskId, Sequence[tuple[TopicPartition, frozenset[str]]]],
    *,
    standby: bool,
) -> str | None:
    """Traffic and costs that follow from the recorded placements."""
    recorded, racks = case["result"], client_racks(case)
    foreign, moves = traffic(partitions, after, racks), moved(before, after)
    found = (
        difference("traffic_before", traffic(partitions, before, racks), recorded["traffic_before"])
        or difference("traffic", foreign, recorded["traffic"])
        or difference("moved", moves, recorded["moved"])
    )
    price, fee = _prices(case, params)
    known = price is not None and fee is not None
    if found or known != ("cost" in recorded):
        return found or f"cost: {'missing' if known else 'recorded although a cost is not set'}"
    if price is None or fee is None:
        return None
    return difference("cost_before", price * recorded["traffic_before"], recorded["cost_before"]) or difference(
        "cost", price * foreign + (0 if standby else fee * moves), recorded["cost"]
    )


def _prices(case: Case, params: utils.RackAwareOptimizationParams) -> tuple[int | None, int | None]:
    """Traffic and non-overlap cost in force: override, else configured."""
    configs = case["configs"]
    price, fee = params.traffic_cost, params.non_overlap_cost
    return configs["traffic_cost"] if price is None else price, configs["non_overlap_cost"] if fee is None else fee


def _may_cost_more(case: Case, cost: int) -> bool:
    """Ours honours client tags, and a restriction to some tasks, which Kafka's standby optimiser does not."""
    restricted = case["params"]["tasks"] != "all" or bool(case["configs"]["rack_aware_assignment_tags"])
    return restricted and bool(cost <= case["result"]["cost_before"])


def _cap_may_differ(case: Case) -> bool:
    return bool(case["configs"]["rack_aware_strategy"] == "balance_subtopology")


def _params(case: Case, state: ApplicationState) -> utils.RackAwareOptimizationParams:
    given, tasks = case["params"], None
    if given["tasks"] in ("stateful", "stateless"):
        stateful = given["tasks"] == "stateful"
        tasks = [task for task, info in state.all_tasks().items() if has_changelog(info) is stateful]
    elif given["tasks"] != "all":
        tasks = [TaskId.parse(task) for task in given["tasks"]]
    return utils.RackAwareOptimizationParams(
        application_state=state,
        tasks=tasks,
        traffic_cost=given["traffic_cost_override"],
        non_overlap_cost=given["non_overlap_cost_override"],
    )
