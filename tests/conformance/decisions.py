"""Compares recorded assignment decisions of Apache Kafka Streams with ours.

A *kind* is the stem of a vector file's name. Decisions of the high-availability, sticky and fallback assignors, and the
helpers of ``TaskAssignmentUtils``, must be equal; what an optimiser finds must be equal in cost or not worse. Numbers
that a case contains in addition to a decision (spread, balance, costs) are recomputed, and its input is checked against
itself, so that a damaged vector is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment import task_assignment_utils as utils
from streams_py.assignment.api import AssignedTask, KafkaStreamsAssignment, TaskAssignment, TaskType
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor, StickyTaskAssignor
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import BuiltInAssignor
from streams_py.system.quiet_logs import quiet_logs
from tests.conformance.case import NotSupportedCaseError
from tests.conformance.decision_cases import (
    Case,
    Places,
    difference,
    ideal_spread,
    inconsistency,
    places_of,
    places_of_entries,
    problem_of,
    spread_of,
    state_of,
)
from tests.conformance.racks import run_optimiser_case, run_rack_case

__all__ = ["NotSupportedCaseError", "decision_kind", "run_decision_case"]


def run_decision_case(kind: str, case: Case) -> str | None:
    """None when the case is equal (or not worse, where that is the rule), else what differs.

    NotSupportedCaseError when this library lacks what the case needs. A damaged case may raise anything.
    """
    check = _CHECKS.get(kind)
    if check is None:
        raise NotSupportedCaseError(f"no comparison for decisions of kind {kind!r}")
    if kind not in _NO_CLIENTS:
        damaged = inconsistency(case)
        if damaged:
            return f"the case contradicts itself: {damaged}"
    with quiet_logs(
        "streams_py.assignment"
    ):  # recorded clusters may be too small, and the warning about it is not needed here
        return check(case)


def decision_kind(file_name: str, first_case: Case) -> str | None:
    """The kind of a file of decisions, by its name or else by its first case; None for any other file."""
    assignor, configs = first_case.get("assignor"), first_case.get("configs")
    if assignor == "threads":
        return "threads"
    if not isinstance(assignor, str) or not isinstance(configs, dict):
        return None
    stem = file_name.rpartition("/")[2].removesuffix(".gz").removesuffix(".jsonl")
    if stem in _CHECKS:
        return stem
    if "phases" in first_case:
        return "convergence"
    result = first_case.get("result")
    if isinstance(result, dict) and "stages" in result:
        return "rack_aware"
    if assignor == "high_availability":
        return "high_availability_tags" if isinstance(result, dict) and "spread" in result else "high_availability"
    if assignor in _UTILS:
        return "utils"
    return {"sticky": "sticky", "legacy_sticky": "legacy_sticky", "fallback": "fallback", "validate": "validation"}.get(
        assignor
    )


# -- built-in assignors --------------------------------------------------------------------------------------


def _built_in(make: Callable[[], BuiltInAssignor]) -> Callable[[Case], str | None]:
    def check(case: Case) -> str | None:
        recorded = case["result"]
        decision = make().decide(problem_of(case))
        return (
            difference("error", None, recorded["error"])
            or difference("assignment", places_of(decision.placements), recorded["assignment"])
            or difference("probing", decision.probing, recorded["probing"])
        )

    return check


def _high_availability() -> HighAvailabilityAssignor:
    return HighAvailabilityAssignor(reference_behaviour=True)  # Kafka's decisions, including dead ends


def _tags(case: Case) -> str | None:
    return _built_in(_high_availability)(case) or _spread(case)


def _spread(case: Case) -> str | None:
    recorded = case["result"]
    spread = spread_of(case, recorded["assignment"])
    return (
        difference("spread", spread, recorded["spread"])
        or difference("spread_total", sum(map(sum, spread.values())), recorded["spread_total"])
        or difference("ideal", ideal_spread(case, recorded["assignment"]), recorded["ideal"])
    )


def _sticky(case: Case) -> str | None:
    recorded = case["result"]
    assignor = StickyTaskAssignor(case["must_preserve_active"], hash_sizing=HashSizing.JDK_18_AND_OLDER)
    entries = assignor.assign(state_of(case)).assignment
    ours = places_of_entries(entries)
    asked = [str(entry.process_id) for entry in entries if entry.followup_rebalance_deadline is not None]
    return (
        difference("error", None, recorded["error"])
        or difference("assignment", ours, recorded["assignment"])
        or difference("followup", asked, recorded["followup"])
        or difference("properties", _sticky_properties(case, ours), recorded["properties"])
    )


def _sticky_properties(case: Case, places: Places) -> dict[str, float]:
    capacity = {client["process_id"]: client["capacity"] for client in case["clients"]}
    actives = [len(roles["active"]) / capacity[client] for client, roles in places.items()]
    loads = [(len(roles["active"]) + len(roles["standby"])) / capacity[client] for client, roles in places.items()]
    stateful = {task["id"] for task in case["tasks"] if task["stateful"]}
    owner = {task: client for client, roles in places.items() for task in roles["active"]}
    owners_before: dict[str, set[str]] = {}
    for client in case["clients"]:
        for task in client["prev_active"]:
            owners_before.setdefault(task, set()).add(client["process_id"])
    moved = [task for task, before in owners_before.items() if task in owner and owner[task] not in before]
    return {
        "active_balance": max(actives) - min(actives),
        "balance": max(loads) - min(loads),
        "actives_moved": len(moved),
        "stateful_moved": sum(task in stateful for task in moved),
        "standbys": sum(len(roles["standby"]) for roles in places.values()),
    }


# -- round after round ---------------------------------------------------------------------------------------


def _convergence(case: Case) -> str | None:
    stateful = {task["id"] for task in case["tasks"] if task["stateful"]}
    clients: dict[str, Case] = {}
    owners: dict[str, str] = {}
    total_rounds = total_moves = 0
    for number, phase in enumerate(case["phases"]):
        for gone in phase["remove"]:
            del clients[gone]
        for new in phase["add"]:
            clients[new["process_id"]] = {**new, "lags": {}}
        for played, recorded in enumerate(phase["rounds"]):
            where = f"phase {number} round {played}"
            ordered = sorted(clients.values(), key=lambda client: ProcessId.parse(client["process_id"]))
            decision = _high_availability().decide(problem_of(case, clients=ordered))
            places = places_of(decision.placements)
            now = {task: c for c, roles in places.items() for task in roles["active"] if task in stateful}
            moves = sum(task in owners and owners[task] != client for task, client in now.items())
            found = (
                difference(f"{where}: assignment", places, recorded["assignment"])
                or difference(f"{where}: probing", decision.probing, recorded["probing"])
                or difference(f"{where}: active_moves", moves, recorded["active_moves"])
                or difference(
                    f"{where}: probing in another round than the last",
                    decision.probing,
                    played + 1 < len(phase["rounds"]),
                )
            )
            if found:
                return found
            total_rounds, total_moves, owners = total_rounds + 1, total_moves + moves, now
            for client, roles in places.items():
                clients[client]["lags"] = _next_lags(case, clients[client]["lags"], roles, stateful)
        if not phase["converged"]:
            return f"phase {number} is recorded as not converged"
    return difference("total_rounds", total_rounds, case["total_rounds"]) or difference(
        "total_active_moves", total_moves, case["total_active_moves"]
    )


def _next_lags(
    case: Case, before: Mapping[str, int], roles: Mapping[str, list[str]], stateful: set[str]
) -> dict[str, int]:
    """Lags that a client reports after it held a placement for one round; unassigned state is dropped."""
    ends = {task["id"]: task.get("end", 0) for task in case["tasks"]}
    lags = {task: -2 for task in roles["active"] if task in stateful}
    for task in roles["standby"]:
        lag = before.get(task, ends[task])
        lags[task] = 0 if case["catch_up"] is None or lag < 0 else max(0, lag - case["catch_up"])
    return lags


# -- helpers of TaskAssignmentUtils --------------------------------------------------------------------------


def _validation(case: Case) -> str | None:
    entries = [
        KafkaStreamsAssignment(
            ProcessId.parse(process_id), [AssignedTask(TaskId.parse(task), TaskType[role]) for task, role in tasks]
        )
        for process_id, tasks in case["assignment"]
    ]
    error = utils.validate_task_assignment(state_of(case), TaskAssignment(entries))
    found = difference("error", error.name, case["expected"])
    if not found and not case["changes"] and case["expected"] != "NONE":
        found = "an error is expected although nothing was changed"
    return found


def _default_standbys(case: Case) -> str | None:
    assignments = _assignments(case)
    utils.default_standby_task_assignment(state_of(case), assignments, reference_behaviour=True)
    found = _same_map(case, assignments)
    if not found and case["configs"]["rack_aware_assignment_tags"]:
        found = _spread(case)
    return found


def _identity(case: Case) -> str | None:
    return _same_map(case, utils.identity_assignment(state_of(case)))


def _same_map(case: Case, assignments: Mapping[ProcessId, KafkaStreamsAssignment]) -> str | None:
    recorded = case["result"]
    return difference("error", None, recorded["error"]) or difference(
        "assignment", places_of_entries(assignments.values()), recorded["assignment"]
    )


def _assignments(case: Case) -> dict[ProcessId, KafkaStreamsAssignment]:
    result = {}
    for text, roles in case["assignments"].items():
        process_id = ProcessId.parse(text)
        tasks = [AssignedTask(TaskId.parse(task), TaskType.ACTIVE) for task in roles["active"]]
        tasks += [AssignedTask(TaskId.parse(task), TaskType.STANDBY) for task in roles["standby"]]
        result[process_id] = KafkaStreamsAssignment(process_id, tasks)
    return result


def _optimise(case: Case) -> str | None:
    return run_optimiser_case(case, state_of(case), _assignments(case))


_UTILS: Mapping[str, Callable[[Case], str | None]] = {
    "default_standby_task_assignment": _default_standbys,
    "identity_assignment": _identity,
    "optimize_rack_aware_active_tasks": _optimise,
    "optimize_rack_aware_standby_tasks": _optimise,
}


def _threads(case: Case) -> str | None:
    from tests.conformance import leader  # belongs to the leader; imported only for its own file

    answer: Any = leader.run_threads_case(case)
    return None if answer is None else str(answer)


_CHECKS: Mapping[str, Callable[[Case], str | None]] = {
    "high_availability": _built_in(_high_availability),
    "high_availability_large": _built_in(_high_availability),
    "high_availability_tags": _tags,
    "legacy_sticky": _built_in(LegacyStickyAssignor),
    "fallback": _built_in(FallbackPriorAssignor),
    "sticky": _sticky,
    "convergence": _convergence,
    "validation": _validation,
    "utils": lambda case: _UTILS[case["assignor"]](case),
    "rack_aware": run_rack_case,
    "threads": _threads,
}
_NO_CLIENTS = ("convergence", "threads")
