"""Does the leader assign as Kafka Streams' ``StreamsPartitionAssignor`` did? Checks one recorded assign step.

A case is a whole group: members with their subscription bytes, the cluster's topics and offsets, faults. It is run on
:class:`~streams_py.leader.leader.GroupLeader` with a cluster made of the case's own values, and everything that the
Java leader did is compared: topics described and created, offsets asked for, the stability it reported, and each
member's partitions and bytes. The leader runs with ``reference_behaviour``, because Kafka fails the whole group where
we refuse one member.

Cases whose result changed with the JVM's hash order are run in the emulated order of the JDK that recorded them. Most
are equal then. Two kinds may differ from the recording and must be as good instead, see
:mod:`tests.conformance.leader_equivalence`: standbys of the public sticky assignor, for which Java followed the
identity hashes of its objects, and placements by rack, of which several have the lowest cost; those are checked twice,
with Kafka's own optimiser for equality and with ours for the cost of what was *planned*: what is delivered depends on
which tasks the plan withholds until their owner lets go. What no check can notice is a change of an *input*
that leads to the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from streams_protocol import (
    DecodeError,
    ProcessId,
    SubscriptionInfo,
    TaskId,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)
from streams_py.assignment.configs import STRATEGY_NONE
from streams_py.assignment.problem import lag_from_offsets
from streams_py.cli.groups.leader_cases import Case, RecordedCluster, case_request, case_settings
from streams_py.errors import BrokerUnavailableError, ConfigError, IllegalStateError, StreamsError
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import FailAssign, PublishAssignments
from streams_py.leader.leader import GroupLeader
from streams_py.leader.settings import LeaderSettings
from streams_py.leader.steps.threads import distribute_client
from streams_py.ports import TopicSpec
from tests.conformance.case import NotSupportedCaseError
from tests.conformance.kafka_racks import kafka_optimiser_for
from tests.conformance.leader_equivalence import (
    DifferentError,
    Entry,
    Plan,
    check_equal,
    compare_costs,
    compare_delivery,
    compare_loosely,
    host_fields,
    info_fields,
)

# Java class -> how our error for the same failure is recognised.
_EXCEPTIONS: Final[Mapping[str, Callable[[Exception], bool]]] = {
    "java.nio.BufferUnderflowException": lambda e: isinstance(e, DecodeError),
    "java.lang.IllegalStateException": lambda e: isinstance(e, IllegalStateError),
    "java.lang.IllegalArgumentException": lambda e: (
        type(e) is StreamsError and "did not return an end offset" in str(e)
    ),
    "org.apache.kafka.common.config.ConfigException": lambda e: isinstance(e, ConfigError),
    "org.apache.kafka.common.errors.TimeoutException": lambda e: isinstance(e, BrokerUnavailableError),
    "org.apache.kafka.streams.errors.StreamsException": (lambda e: type(e) is StreamsError and "exists with" in str(e)),
}


def _settings(case: Case) -> LeaderSettings:
    """With Kafka's own rack optimiser. NotSupportedCaseError for an assignor that we lack."""
    try:
        return case_settings(case, kafka_optimiser_for)
    except ValueError as error:
        raise NotSupportedCaseError(str(error)) from error


def run_leader_case(case: Case, *, as_shipped: bool = False) -> str | None:
    """Run one recorded assign step: None when everything is equal, else the first difference.

    ``as_shipped`` leaves our deviations on. Raises NotSupportedCaseError for an assignor or a strategy that does not
    exist here.
    """
    try:
        _check_inputs(case)
        settings = replace(_settings(case), reference_behaviour=not as_shipped)
        planned = _run(case, settings)
        if settings.assignment.rack_aware_assignment_strategy != STRATEGY_NONE:
            _run(case, replace(settings, rack_optimiser=None), as_good_as=planned)  # ours instead of Kafka's
    except DifferentError as difference:
        return str(difference)
    return None


def _run(case: Case, settings: LeaderSettings, *, as_good_as: Plan | None = None) -> Plan:
    """Run the case; DifferentError when the result is not the recorded one, nor ``as_good_as`` the plan behind that
    one."""
    plan = Plan(case)
    outcome = run_assign(GroupLeader(settings), case_request(case), plan.carry_out)
    _compare(case, plan.cluster, outcome, plan, as_good_as)
    return plan


def _check_inputs(case: Case) -> None:
    """Contradictions inside a case that the assign step itself would not notice."""
    ids = [member["id"] for member in case["members"]]
    check_equal("order of the members", sorted(set(ids)), ids)
    for topic, offsets in (case["end_offsets"] | case["committed"]).items():
        existing = case["internal_topics"].get(topic) or case["topics"].get(topic, ())
        check_equal(f"number of offsets of {topic}", len(offsets), len(existing))
    for topic, partitions in (case["topics"] | case["internal_topics"]).items():
        for replicas in partitions:
            check_equal(f"replicas of {topic}", len(set(replicas)), len(replicas))
    subtopologies = case["topology"]["subtopologies"]
    sources = sorted({topic for sub in subtopologies for topic in sub["source_topics"]})
    logged = {sub["id"] for sub in subtopologies if sub["changelog_topics"] or sub["source_changelog_topics"]}
    clients: dict[ProcessId, object] = {}
    for member in case["members"]:
        check_equal(f"topics of {member['id']}", sources, member["topics"])
        info = _check_user_data(member)
        if info is not None:
            shared = (info.version, info.endpoint, dict(info.client_tags), member["rack"])
            check_equal(
                f"what the threads of {info.process_id} share", clients.setdefault(info.process_id, shared), shared
            )
            check_equal("tasks without changelog", set(), {task.subtopology for task in info.task_offset_sums} - logged)


def _check_user_data(member: Case) -> SubscriptionInfo | None:
    """The decoded subscription of a member that can be read."""
    data = bytes.fromhex(member["user_data"])
    try:
        info = decode_subscription_info(data)
    except DecodeError:
        return None  # the result must be the exception
    if info.is_future:
        return None
    again = encode_subscription_info(info)
    check_equal(f"content of the user data of {member['id']}", decode_subscription_info(again), info)
    check_equal(f"bytes of the user data of {member['id']}, sorted", sorted(again), sorted(data))
    return info


# -- results -----------------------------------------------------------------------------------------------------


def _compare(
    case: Case, cluster: RecordedCluster, outcome: PublishAssignments | FailAssign, plan: Plan, as_good_as: Plan | None
) -> None:
    result = case["result"]
    check_equal("topics described", sorted(cluster.described), result["described_topics"])
    check_equal("end offsets asked for", [list(tp) for tp in sorted(cluster.listed)], result["listed_offsets"])
    check_equal(
        "committed offsets asked for", [list(tp) for tp in sorted(cluster.committed)], result["committed_asked"]
    )
    check_equal(
        "topics created", {name: _spec(spec) for name, spec in cluster.created.items()}, result["created_topics"]
    )
    if isinstance(outcome, FailAssign):
        java = result["exception"]
        if java is None or java not in _EXCEPTIONS or not _EXCEPTIONS[java](outcome.error):
            raise DifferentError(f"exception: {outcome.error!r} here, {java} recorded")
        check_equal("assignments after an exception", False, "assignments" in result)
        check_equal("stable after an exception", None, result["stable"])
        return
    check_equal("exception", None, result["exception"])
    check_equal("members", list(outcome.assignments), [entry["member"] for entry in result["assignments"]])
    subtopology_of = {topic: sub["id"] for sub in case["topology"]["subtopologies"] for topic in sub["source_topics"]}
    for entry in result["assignments"]:
        _check_entry(entry, result)
        pairs = zip(entry["partitions"], entry["info"]["active_tasks"], strict=True)
        for (topic, partition), task in pairs:
            check_equal(f"task of {topic}-{partition}", [subtopology_of.get(topic), partition, None], task)
    ours = {member: Entry.of(assignment) for member, assignment in outcome.assignments.items()}
    recorded = {entry["member"]: Entry.recorded(entry) for entry in result["assignments"]}
    try:
        check_equal("stable", outcome.stable, result["stable"])
        for member, entry in recorded.items():
            check_equal(f"assignment of {member}", ours[member].fields, entry.fields)
    except DifferentError:
        if as_good_as is not None:
            compare_costs(case, cluster, plan, as_good_as)
            compare_delivery(case, ours, recorded)
        elif case["order_dependent"] and "task.assignor.class" in case["config"]:
            compare_loosely(case, outcome.stable, ours, recorded)
        else:
            raise


def _check_entry(entry: Case, result: Case) -> None:
    """The recorded parts of one assignment must agree with each other, down to the last byte."""
    member, data = entry["member"], bytes.fromhex(entry["user_data"])
    try:
        info = decode_assignment_info(data)
    except DecodeError as error:
        raise DifferentError(f"user data of {member}: {error}") from error
    check_equal(f"info of {member}", info_fields(info), entry["info"])
    for name, hosts in host_fields(info).items():
        check_equal(f"{name} of {member}", hosts, result[name])
    canonical = encode_assignment_info(info)
    check_equal(f"canonical of {member}", canonical == data, entry["canonical"])
    check_equal(f"length of the user data of {member}", len(canonical), len(data))


def _spec(spec: TopicSpec) -> dict[str, object]:
    return {
        "partitions": spec.partitions,
        "replication_factor": spec.replication_factor,
        "config": dict(sorted(spec.config.items())),
    }


# -- tasks to threads ----------------------------------------------------------------------------------------------


def run_threads_case(case: Case) -> str | None:
    """Distribute one client's tasks over its threads and compare every list, order included."""
    lags = {TaskId.parse(task): lag for task, lag in case["lags"].items()}
    reported = {
        consumer: {TaskId.parse(task): offset for task, offset in tasks.items()}
        for consumer, tasks in case["previous"].items()
    }
    try:
        _check_lags(case, lags, reported)
        active, standby = distribute_client(
            stateful=[task for task in map(TaskId.parse, case["active"]) if task in lags],
            standby=[TaskId.parse(task) for task in case["standby"]],
            stateless=[task for task in map(TaskId.parse, case["active"]) if task not in lags],
            consumers=case["consumers"],
            previous=lambda consumer: sorted(
                (task for task in reported.get(consumer, ()) if task in lags), key=lambda task: (lags[task], task)
            ),
        )
        ours = {
            consumer: {"active": list(map(str, active[consumer])), "standby": list(map(str, standby[consumer]))}
            for consumer in case["consumers"]
        }
        check_equal("consumers", sorted(ours), sorted(case["result"]))
        for consumer, lists in case["result"].items():
            check_equal(f"tasks of {consumer}", ours[consumer], lists)
    except DifferentError as difference:
        return str(difference)
    return None


def _check_lags(case: Case, lags: Mapping[TaskId, int], reported: Mapping[str, Mapping[TaskId, int]]) -> None:
    """The table of lags must follow from the end offsets and the reported sums, the last consumer winning."""
    sums: dict[TaskId, int] = {}
    for consumer in case["consumers"]:
        sums.update(reported.get(consumer, {}))
    expected = {
        TaskId.parse(task["id"]): lag_from_offsets(sums.get(TaskId.parse(task["id"]), 0), task["end"])
        for task in case["tasks"]
        if task["stateful"]
    }
    check_equal("lags", expected, dict(lags))
    known = {task["id"] for task in case["tasks"]}
    check_equal("tasks that do not exist", set(), {*case["active"], *case["standby"]} - known)
