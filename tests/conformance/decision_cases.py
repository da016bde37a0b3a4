"""Reading recorded assignment decisions: JSON cases to the assignors' input, and what can be recomputed from a case.

A case is one line of a file of decision vectors. Tasks and clients in it are ascending; a client's ``lags`` are sparse
(a stateful task it leaves out lags by its whole ``end``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.api import KafkaStreamsAssignment, TaskType
from streams_py.assignment.application_state import ProblemState, RackLookup, TaskDescription
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import AssignmentProblem, ClientInput, Placement, RackOptimiser

Case: TypeAlias = dict[str, Any]
Places: TypeAlias = dict[str, dict[str, list[str]]]  # {process_id: {"active": [...], "standby": [...]}} as in the files

_RECORDED_ON = HashSizing.JDK_18_AND_OLDER
_IDEAL_CLIENTS_MAX = 9
_LAGS_BELOW_ZERO = (-2, -3)


def configs_of(case: Case) -> AssignmentConfigs:
    """The eight settings."""
    given = case["configs"]
    return AssignmentConfigs(
        acceptable_recovery_lag=given["acceptable_recovery_lag"],
        max_warmup_replicas=given["max_warmup_replicas"],
        num_standby_replicas=given["num_standby_replicas"],
        probing_rebalance_interval_ms=given["probing_rebalance_interval_ms"],
        rack_aware_assignment_tags=tuple(given["rack_aware_assignment_tags"]),
        rack_aware_traffic_cost=given["traffic_cost"],
        rack_aware_non_overlap_cost=given["non_overlap_cost"],
        rack_aware_assignment_strategy=given["rack_aware_strategy"],
    )


def end_offset_sums(case: Case) -> dict[TaskId, int]:
    """End-offset sum of each stateful task."""
    return {TaskId.parse(task["id"]): task["end"] for task in case["tasks"] if task["stateful"]}


def _client(given: Case) -> ClientInput:
    return ClientInput(
        process_id=ProcessId.parse(given["process_id"]),
        capacity=given["capacity"],
        tags=given.get("client_tags", {}),
        rack=given.get("rack"),
        previous_active=[TaskId.parse(task) for task in given.get("prev_active", ())],
        previous_standby=[TaskId.parse(task) for task in given.get("prev_standby", ())],
        lags={TaskId.parse(task): lag for task, lag in given.get("lags", {}).items()},
    )


def problem_of(
    case: Case, *, clients: Iterable[Case] | None = None, racks: RackOptimiser | None = None
) -> AssignmentProblem:
    """The input of a built-in assignor."""
    return AssignmentProblem(
        clients=[_client(given) for given in (case["clients"] if clients is None else clients)],
        tasks=[TaskId.parse(task["id"]) for task in case["tasks"]],
        end_offset_sums=end_offset_sums(case),
        configs=configs_of(case),
        racks=racks,
        hash_sizing=_RECORDED_ON,
    )


def state_of(case: Case) -> ProblemState:
    """The input of a public assignor; racks as recorded, if they are."""
    inputs, changelogs = partitions_of(case, "inputs"), partitions_of(case, "changelogs")
    lookup = RackLookup(
        lambda: {tp: racks for found in (inputs, changelogs) for tps in found.values() for tp, racks in tps}
    )
    descriptions = []
    for given in case["tasks"]:
        task = TaskId.parse(given["id"])
        logged = [tp for tp, _ in changelogs[task]] or [TopicPartition(f"log-{task.subtopology}", task.partition)]
        descriptions.append(
            TaskDescription.of(
                task,
                stores=("store",) if given["stateful"] else (),
                sources=[tp for tp, _ in inputs[task]],
                changelogs=logged if given["stateful"] else (),
                racks=lookup,
            )
        )
    return ProblemState(problem_of(case), lambda: descriptions)


def partitions_of(case: Case, kind: str) -> dict[TaskId, list[tuple[TopicPartition, frozenset[str]]]]:
    """Partitions with racks of each task; ``kind`` is "inputs" or "changelogs"."""
    return {
        TaskId.parse(task["id"]): [(TopicPartition(t, p), frozenset(racks)) for t, p, racks in task.get(kind, ())]
        for task in case["tasks"]
    }


def client_racks(case: Case) -> dict[str, str | None]:
    """Rack of each client."""
    return {client["process_id"]: client.get("rack") for client in case["clients"]}


def places_of(placements: Mapping[ProcessId, Placement]) -> Places:
    """A decision in the form of the files."""
    return {
        str(process_id): {"active": [str(t) for t in place.active], "standby": [str(t) for t in place.standby]}
        for process_id, place in placements.items()
    }


def places_of_entries(entries: Iterable[KafkaStreamsAssignment]) -> Places:
    """Convert the result of a public assignor or helper to the format of the files."""
    result: Places = {}
    for entry in entries:
        roles: dict[str, list[str]] = {"active": [], "standby": []}
        for task in sorted(entry.tasks):
            roles["active" if entry.tasks[task].type is TaskType.ACTIVE else "standby"].append(str(task))
        result[str(entry.process_id)] = roles
    return result


def difference(name: str, ours: object, recorded: object) -> str | None:
    """None when equal, else the first thing that differs, shortened."""
    if ours == recorded:
        return None
    if isinstance(ours, dict) and isinstance(recorded, dict):
        for key in [*recorded, *(key for key in ours if key not in recorded)]:
            if key not in ours:
                return f"{name}: {key} is missing in ours"
            if key not in recorded:
                return f"{name}: {key} is only in ours"
            found = difference(f"{name} of {key}", ours[key], recorded[key])
            if found:
                return found
    return f"{name}: ours {ours!r:.300}, recorded {recorded!r:.300}"


# -- what a case says about itself ---------------------------------------------------------------------------


def inconsistency(case: Case) -> str | None:
    """The first thing in a case's input that no recorded case has: a sign of damage."""
    tasks = [TaskId.parse(task["id"]) for task in case["tasks"]]
    if tasks != sorted(set(tasks)):
        return "tasks are not ascending"
    ids = [ProcessId.parse(client["process_id"]) for client in case["clients"]]
    if ids != sorted(set(ids)):
        return "clients are not ascending"
    ends = end_offset_sums(case)
    if any(end < 0 for end in ends.values()):
        return "an end-offset sum is negative"
    for given in case["clients"]:
        found = _client_inconsistency(_client(given), ends)
        if found:
            return f"client {given['process_id']}: {found}"
    return None


def _client_inconsistency(client: ClientInput, ends: Mapping[TaskId, int]) -> str | None:
    active, standby = list(client.previous_active), list(client.previous_standby)
    if active != sorted(set(active)) or standby != sorted(set(standby)):
        return "previous tasks are not ascending"
    if set(active) & set(standby):
        return "a task was active and standby"
    if any(task not in ends for task in standby):
        return "a previous standby is not a stateful task"
    for task, lag in client.lags.items():
        if task not in ends or (task not in active and task not in standby):
            return f"a lag of {task}, which it did not have"
        if lag < 0 and lag not in _LAGS_BELOW_ZERO:
            return f"lag {lag} of {task} means nothing"
        if lag == _LAGS_BELOW_ZERO[0] and task not in active:
            return f"{task} is said to run here as active but was not"
    return None


# -- additional numbers of a decision -------------------------------------------------------------------------


def _tags(case: Case) -> dict[str, dict[str, str]]:
    return {client["process_id"]: client.get("client_tags", {}) for client in case["clients"]}


def _distinct(hosts: Iterable[str], keys: Sequence[str], tags: Mapping[str, Mapping[str, str]]) -> list[int]:
    hosts = list(hosts)
    return [len({tags[host][key] for host in hosts if key in tags[host]}) for key in keys]


def _hosts(places: Places) -> dict[str, tuple[str | None, list[str]]]:
    active = {task: client for client, roles in places.items() for task in roles["active"]}
    standby: dict[str, list[str]] = {}
    for client, roles in places.items():
        for task in roles["standby"]:
            standby.setdefault(task, []).append(client)
    return {task: (active.get(task), standby.get(task, [])) for task in {*active, *standby}}


def spread_of(case: Case, places: Places) -> dict[str, list[int]]:
    """Distinct values of each configured tag key over the copies of each stateful task."""
    keys, tags, hosts = case["configs"]["rack_aware_assignment_tags"], _tags(case), _hosts(places)
    result = {}
    for task in case["tasks"]:
        if task["stateful"]:
            active, standby = hosts.get(task["id"], (None, []))
            result[task["id"]] = _distinct([*([active] if active else []), *standby], keys, tags)
    return result


def ideal_spread(case: Case, places: Places) -> dict[str, int | None] | None:
    """Return the largest sum over the keys that the configured standbys of each active task could reach.

    It is computed by brute force. None if there are too many clients for that in the files.
    """
    keys, tags, hosts = case["configs"]["rack_aware_assignment_tags"], _tags(case), _hosts(places)
    clients, replicas = list(tags), case["configs"]["num_standby_replicas"]
    if len(clients) > _IDEAL_CLIENTS_MAX:
        return None
    best: dict[str, int] = {}

    def reach(active: str) -> int:
        if active not in best:
            others = [client for client in clients if client != active]
            best[active] = max(
                sum(_distinct([active, *chosen], keys, tags))
                for chosen in combinations(others, min(replicas, len(others)))
            )
        return best[active]

    result = {}
    for task in case["tasks"]:
        if task["stateful"]:
            active = hosts.get(task["id"], (None, []))[0]
            result[task["id"]] = reach(active) if active is not None else None
    return result


def traffic(
    partitions: Mapping[TaskId, Sequence[tuple[TopicPartition, frozenset[str]]]],
    places: Mapping[str, Iterable[str]],
    racks: Mapping[str, str | None],
) -> int:
    """Number of partitions read from another rack, for ``{client: tasks}``."""
    return sum(
        racks[client] not in found
        for client, tasks in places.items()
        for task in tasks
        for _, found in partitions[TaskId.parse(task)]
    )


def moved(before: Mapping[str, Iterable[str]], after: Mapping[str, Iterable[str]]) -> int:
    """Number of (task, client) pairs of ``before`` that ``after`` does not have."""
    kept = Counter((client, task) for client, tasks in after.items() for task in tasks)
    return sum((client, task) not in kept for client, tasks in before.items() for task in tasks)
