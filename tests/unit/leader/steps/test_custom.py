"""The application's task assignor: its input, the check of its answer, notices, and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from streams_protocol import NO_FOLLOW_UP
from streams_protocol.types import ProcessId
from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.static import StaticTaskAssignor
from streams_py.assignment.assignors.sticky import StickyTaskAssignor
from streams_py.assignment.explanation import Rule
from streams_py.errors import AssignorError, StreamsError, TaskAssignmentError
from streams_py.leader.effects import DescribeTopics, ListEndOffsets, RunAssignor
from streams_py.leader.events import EndOffsetsListed
from streams_py.leader.explanations import Explanations
from streams_py.leader.settings import FOLLOW_UP_FLOOR_MS
from streams_py.ports import AdminError, MemberSubscription, PartitionInfo
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.leader.kit import (
    COUNT,
    NOW_MS,
    REPARTITIONED,
    STATELESS,
    TIMED_OUT,
    FakeCluster,
    Outcome,
    assign,
    member,
    pid,
    sub,
    task,
    tasks,
    tps,
)

Assign = Callable[[ApplicationState], TaskAssignment]


class Mine(TaskAssignor):
    """An assignor of which only the name matters: the fake cluster runs a function instead."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        raise AssertionError("not called here")


NAME = f"{__name__}:Mine"


def entry(process: ProcessId, active: str = "", standby: str = "") -> KafkaStreamsAssignment:
    given = [AssignedTask(t, TaskType.ACTIVE) for t in tasks(active)]
    return KafkaStreamsAssignment(process, given + [AssignedTask(t, TaskType.STANDBY) for t in tasks(standby)])


def standby_entry(process_id: ProcessId, tasks: str) -> KafkaStreamsAssignment:
    return KafkaStreamsAssignment(process_id, [AssignedTask(task(name), TaskType.STANDBY) for name in tasks.split()])


def fixed(*entries: KafkaStreamsAssignment) -> Assign:
    return lambda state: TaskAssignment(list(entries))


def run(
    assignor: Assign,
    members: Mapping[str, MemberSubscription] | None = None,
    topology: TopologyMetadata = COUNT,
    cluster: FakeCluster | None = None,
    **changes: object,
) -> Outcome:
    cluster = cluster or FakeCluster()
    cluster.assignor = assignor
    group = members or {"a": member(1), "b": member(2)}
    return assign(group, topology, cluster, task_assignor=Mine, **changes)


ALL_TO_B = fixed(entry(pid(1)), entry(pid(2), "0_0 0_1 0_2 0_3"))


def test_assignor_decides_when_it_is_configured() -> None:
    outcome = run(ALL_TO_B)
    assert outcome.active("a") == []
    assert outcome.active("b") == ["0_0", "0_1", "0_2", "0_3"]
    assert [type(error) for error in outcome.cluster.reported] == []


def test_run_assignor_carries_class_and_original_configs() -> None:
    outcome = run(ALL_TO_B, original_configs={"app.mine": 7})
    [effect] = outcome.cluster.of(RunAssignor)
    assert isinstance(effect, RunAssignor)
    assert (effect.assignor, effect.configs) == (Mine, {"app.mine": 7})


def test_assignor_is_told_the_final_assignment() -> None:  # LC-03
    outcome = run(ALL_TO_B)
    [(notified, error)] = outcome.cluster.notified
    assert error is AssignmentError.NONE
    assert notified.group_assignment == outcome.published.assignments


@pytest.mark.parametrize("named", ["high_availability", HighAvailabilityAssignor])
def test_built_in_assignor_decides_without_user_code_when_it_is_named(named: object) -> None:
    outcome = assign({"a": member(1), "b": member(2)}, task_assignor=named)
    assert outcome.active("a") == ["0_0", "0_2"]
    assert outcome.cluster.of(RunAssignor) == []


def test_deadlines_are_kept_for_each_client_and_make_the_group_unstable() -> None:
    later = datetime.fromtimestamp(NOW_MS / 1000, UTC) + timedelta(minutes=3, microseconds=999)
    outcome = run(
        fixed(
            entry(pid(1), "0_0 0_1").with_followup_rebalance(later),
            entry(pid(2), "0_2 0_3").with_followup_rebalance(datetime.fromtimestamp(0, UTC)),
        )
    )
    assert outcome.next_ms("a") == NOW_MS + 180_000
    assert outcome.next_ms("b") == NOW_MS + FOLLOW_UP_FLOOR_MS
    assert outcome.published.stable is False
    assert f"{NAME} wants a follow-up rebalance in the past" in outcome.cluster.logged
    assert str(pid(2)) in outcome.cluster.logged


def test_follow_up_in_the_past_is_passed_on_when_we_do_as_kafka_does() -> None:
    past = fixed(entry(pid(1), "0_0").with_followup_rebalance(datetime.fromtimestamp(0, UTC)), entry(pid(2)))
    assert run(past, reference_behaviour=True).next_ms("a") == 0


def test_assignor_is_used_when_end_offsets_are_not_known() -> None:
    seen: list[int] = []

    def look(state: ApplicationState) -> TaskAssignment:
        states = state.kafka_streams_states(compute_task_lags=True)
        seen.extend(client.lag_for(task("0_0")) for client in states.values())
        return ALL_TO_B(state)

    cluster = FakeCluster(
        {"in": 4, "app-counts-changelog": 4},
        faults={ListEndOffsets: lambda e: EndOffsetsListed(NOW_MS, error=TIMED_OUT)},
    )
    group = {"a": member(1, sums={"0_0": -2}, owned="in-0"), "b": member(2, sums={"0_0": 5})}
    outcome = run(look, group, COUNT, cluster)
    assert sorted(seen) == [-3, -2]
    assert outcome.standby("b") == ["0_0"]  # withheld while a still has it, kept as standby meanwhile


# -- its input ---------------------------------------------------------------------------------------------------


def test_state_has_clients_tasks_and_lags() -> None:
    seen: dict[str, object] = {}

    def look(state: ApplicationState) -> TaskAssignment:
        client = state.kafka_streams_states(compute_task_lags=True)[pid(1)]
        seen["previous"] = (list(client.previous_active_tasks), list(client.previous_standby_tasks))
        seen["lags"] = client.stateful_tasks_to_lag_sums()
        seen["by lag"] = client.prev_tasks_by_lag("a")
        seen["facts"] = (client.num_processing_threads, client.client_tags, client.rack_id, client.host_info)
        infos = state.all_tasks()
        seen["stateful"] = {str(t): info.is_stateful for t, info in infos.items()}
        seen["partitions"] = {
            (str(p.topic_partition), p.is_source, p.is_changelog) for p in infos[task("0_1")].topic_partitions
        }
        return fixed(entry(pid(1), "0_0 0_1 1_0"))(state)

    topology = TopologyMetadata({0: sub("in", stores="counts"), 1: sub("x", unlogged="cache")})
    cluster = FakeCluster({"in": 2, "x": 1, "app-counts-changelog": 2}, 100)
    group = {"a": member(1, owned="in-0", sums={"0_0": -2, "0_1": 60}, tags={"zone": "z"}, rack="r", endpoint="h:1")}
    run(look, group, topology, cluster)
    assert seen["previous"] == ([task("0_0")], [task("0_1")])
    assert seen["lags"] == {task("0_0"): -2, task("0_1"): 40}
    assert seen["by lag"] == [task("0_0"), task("0_1")]
    assert seen["facts"] == (1, {"zone": "z"}, "r", ("h", 1))
    assert seen["stateful"] == {"0_0": True, "0_1": True, "1_0": True}  # a store without changelog counts here
    assert seen["partitions"] == {("in-1", True, False), ("app-counts-changelog-1", False, True)}


def test_assignor_knows_the_racks_of_all_partitions_because_internal_topics_are_described_before() -> None:
    def curious(state: ApplicationState) -> TaskAssignment:
        racks = {
            str(p.topic_partition): p.rack_ids() for info in state.all_tasks().values() for p in info.topic_partitions
        }
        assert racks["in-0"] == frozenset({"r0"})
        assert racks["app-r-1"] == frozenset({"r1"})
        assert racks["app-counts-changelog-0"] == frozenset({"r0"})
        return fixed(entry(pid(1), "0_0 0_1 1_0 1_1"))(state)

    outcome = run(curious, {"a": member(1)}, REPARTITIONED, FakeCluster({"in": 2}, racks=("r0", "r1")))
    assert not outcome.cluster.reported
    described = [effect.names for effect in outcome.cluster.of(DescribeTopics)]  # type: ignore[union-attr]  # by kind
    assert described == [("app-r",), ("app-counts-changelog",), ("app-counts-changelog", "app-r")]


def test_racks_of_topics_that_cannot_be_described_are_not_known() -> None:
    def curious(state: ApplicationState) -> TaskAssignment:
        racks = {
            str(p.topic_partition): p.rack_ids() for info in state.all_tasks().values() for p in info.topic_partitions
        }
        assert racks == {"in-0": frozenset({"r0"}), "in-1": frozenset({"r0"})} | dict.fromkeys(
            ("app-counts-changelog-0", "app-counts-changelog-1")
        )
        return fixed(entry(pid(1), "0_0 0_1"))(state)

    class Silent(FakeCluster):
        def describe(self, names: Iterable[str]) -> dict[str, tuple[PartitionInfo, ...] | AdminError]:
            ready = any(isinstance(effect, ListEndOffsets) for effect in self.seen)
            return dict.fromkeys(names, TIMED_OUT) if ready else super().describe(names)

    outcome = run(curious, {"a": member(1)}, COUNT, Silent({"in": 2, "app-counts-changelog": 2}))
    assert not outcome.cluster.reported


@pytest.mark.parametrize(("strategy", "described"), [("none", 1), ("min_traffic", 2)])
def test_internal_topics_are_described_for_an_assignor_of_ours_only_with_a_rack_strategy(
    strategy: str, described: int
) -> None:
    cluster = FakeCluster({"in": 2})
    cluster.assignor = StickyTaskAssignor().assign
    outcome = assign({"a": member(1)}, COUNT, cluster, task_assignor="sticky", rack_aware_assignment_strategy=strategy)
    assert len(outcome.cluster.of(DescribeTopics)) == described  # one made the topics ready


# -- failures --------------------------------------------------------------------------------------------------------


def refuses(state: ApplicationState) -> TaskAssignment:
    raise TaskAssignmentError("not now")


def breaks(state: ApplicationState) -> TaskAssignment:
    raise AssignorError("task assignor mine:Broken failed in assign (ValueError: boo)")


FAULTY: dict[str, tuple[Assign, str]] = {
    "raises": (breaks, "mine:Broken failed in assign"),
    "refuses": (refuses, "not now"),
    "unknown task": (
        fixed(entry(pid(1), "9_9"), entry(pid(2))),
        f"{NAME} returned an assignment .*: 9_9 on client {pid(1)} \\(UNKNOWN_TASK_ID\\)",
    ),
    "unknown client": (
        fixed(entry(pid(1)), entry(pid(2)), entry(pid(3))),
        f": client {pid(3)} \\(UNKNOWN_PROCESS_ID\\)",
    ),
    "missing client": (fixed(entry(pid(1))), f": client {pid(2)} \\(MISSING_PROCESS_ID\\)"),
    "active twice": (
        fixed(entry(pid(1), "0_0"), entry(pid(2), "0_0")),
        f": 0_0 on clients {pid(1)} and {pid(2)} \\(ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES\\)",
    ),
    "two entries": (
        fixed(entry(pid(1), "0_0"), entry(pid(1), "0_1"), entry(pid(2))),
        f"{NAME} returned two entries for client {pid(1)}",
    ),
    "standby together with its active": (
        fixed(entry(pid(1), "0_0"), standby_entry(pid(1), "0_0"), entry(pid(2))),
        f"{NAME} returned two entries for client {pid(1)}",
    ),
    "no time zone": (
        fixed(entry(pid(1)), entry(pid(2)).with_followup_rebalance(datetime(2030, 1, 1))),  # on purpose
        "has no time zone",
    ),
}
ACCEPTED_BY_KAFKA = ("refuses", "two entries", "standby together with its active")  # or answered in another way
RUNNING_GROUP = {
    "a": member(1, owned="in-0 in-1", sums={"0_0": -2, "0_1": -2, "0_2": 50}),
    "b": member(2, owned="in-2", sums={"0_2": -2, "0_0": 10}),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_everybody_keeps_what_they_have_when_the_assignor_fails(fault: str) -> None:
    assignor, _ = FAULTY[fault]
    outcome = run(assignor, RUNNING_GROUP, num_standby_replicas=1)
    assert outcome.partitions == {"a": tps("in-0 in-1"), "b": tps("in-2")}
    assert outcome.standby("a") == ["0_2"]
    assert outcome.standby("b") == ["0_0"]
    assert set(outcome.codes.values()) == {0}


def test_no_standbys_are_made_of_old_state_when_none_are_configured_and_the_assignor_fails() -> None:
    outcome = run(breaks, RUNNING_GROUP)
    assert (outcome.standby("a"), outcome.standby("b")) == ([], [])


def test_most_complete_copies_are_kept_when_the_assignor_fails() -> None:
    group = {"a": member(1, owned="in-0", sums={"0_0": -2})}
    group |= {name: member(n, sums={"0_0": n}) for n, name in enumerate("bcd", start=2)}
    cluster = FakeCluster({"in": 4, "app-counts-changelog": 4})
    outcome = run(breaks, group, cluster=cluster, num_standby_replicas=2)
    assert [outcome.standby(name) for name in "abcd"] == [[], [], ["0_0"], ["0_0"]]


@pytest.mark.parametrize("assignor", [breaks, fixed(entry(pid(1), "0_0 0_1"), standby_entry(pid(2), "0_2"))])
def test_unassigned_tasks_are_reported_in_a_warning(assignor: Assign) -> None:
    logged = run(assignor, {"a": member(1, owned="in-0 in-1"), "b": member(2)}).cluster.logged
    assert (
        f"task 0_2, 0_3 is not assigned to any client: no member reads in-2, in-3 until task assignor {NAME} places it"
        in (logged)
    )


def test_what_the_callback_changes_reaches_nobody() -> None:
    outcome = run(ALL_TO_B)
    [(notified, _)] = outcome.cluster.notified
    notified.group_assignment.clear()  # type: ignore[attr-defined]  # user code may try
    assert outcome.active("b") == ["0_0", "0_1", "0_2", "0_3"]


@pytest.mark.parametrize("fault", FAULTY)
def test_application_hears_of_it_and_the_group_tries_again_when_the_assignor_fails(fault: str) -> None:
    assignor, message = FAULTY[fault]
    outcome = run(assignor, RUNNING_GROUP)
    [error] = outcome.cluster.reported
    with pytest.raises(StreamsError, match=message):
        raise error
    assert outcome.next_ms("a") == NOW_MS + 60_000
    assert outcome.next_ms("b") == NO_FOLLOW_UP
    assert outcome.published.stable is False


@pytest.mark.parametrize(
    ("fault", "notified", "filled"),
    [
        pytest.param("unknown task", AssignmentError.UNKNOWN_TASK_ID, False, id="LC-01"),
        pytest.param("missing client", AssignmentError.MISSING_PROCESS_ID, True, id="LC-02"),
    ],
)
def test_assignor_is_told_what_is_wrong(fault: str, notified: AssignmentError, filled: bool) -> None:
    outcome = run(FAULTY[fault][0], RUNNING_GROUP)
    [(assignment, error)] = outcome.cluster.notified
    assert error is notified
    assert bool(assignment.group_assignment) is filled


def test_standby_of_a_stateless_task_is_refused_by_name() -> None:
    outcome = run(fixed(entry(pid(1)), standby_entry(pid(2), "0_1")), topology=STATELESS)
    [error] = outcome.cluster.reported
    assert f": 0_1 on client {pid(2)} (INVALID_STANDBY_TASK)" in str(error)


def test_later_entry_of_a_client_counts_when_we_do_as_kafka_does() -> None:
    answer = fixed(entry(pid(1), "0_0 0_1"), entry(pid(1), "0_2"), entry(pid(2), "0_3"))
    outcome = run(answer, reference_behaviour=True)
    assert outcome.active("a") == ["0_2"]


def test_tasks_without_owner_wait_when_the_assignor_fails() -> None:
    outcome = run(breaks)
    assert outcome.partitions == {"a": (), "b": ()}


def test_newest_claim_counts_when_the_assignor_fails() -> None:
    group = {"a": member(1, owned="in-0", generation=4), "b": member(2, owned="in-0", generation=7)}
    outcome = run(breaks, group, STATELESS)
    assert outcome.partitions == {"a": (), "b": tps("in-0")}


def test_task_with_two_owners_waits_when_the_assignor_fails() -> None:
    topology = TopologyMetadata({0: sub("x y")})
    group = {"a": member(1, owned="x-0"), "b": member(2, owned="y-0")}
    outcome = run(breaks, group, topology, FakeCluster({"x": 1, "y": 1}))
    assert outcome.partitions == {"a": (), "b": ()}
    assert outcome.next_ms("a") == NOW_MS + 60_000  # not immediately: that would be a loop


def test_standby_is_given_once_when_two_threads_report_it() -> None:
    group = {"a": member(1, sums={"0_0": 5}), "b": member(1, sums={"0_0": 5, "0_1": 5}, owned="in-1")}
    outcome = run(breaks, group, num_standby_replicas=1)
    assert outcome.standby("a") == ["0_0"]
    assert outcome.standby("b") == []
    assert outcome.active("b") == ["0_1"]


def test_everybody_gets_code_3_when_it_refuses_and_we_do_as_kafka_does() -> None:
    outcome = run(refuses, RUNNING_GROUP, reference_behaviour=True)
    assert set(outcome.codes.values()) == {3}


@pytest.mark.parametrize("fault", [name for name in FAULTY if name not in ACCEPTED_BY_KAFKA])
def test_error_leaves_the_assign_step_when_it_fails_and_we_do_as_kafka_does(fault: str) -> None:
    outcome = run(FAULTY[fault][0], RUNNING_GROUP, reference_behaviour=True)
    assert isinstance(outcome.error, StreamsError)


# -- explanations -----------------------------------------------------------------------------------------------------


def decided_with(configured: object, answer: Assign) -> Explanations:
    """Return what the leader remembers of one decision."""
    cluster = FakeCluster()
    cluster.assignor = answer
    assign({"a": member(1), "b": member(2)}, COUNT, cluster, task_assignor=configured)
    return cluster.executor.explanations


@pytest.mark.parametrize(("name", "made"), [("sticky", StickyTaskAssignor), ("static", StaticTaskAssignor)])
def test_explanation_is_told_when_a_public_assignor_of_ours_decided(name: str, made: type[TaskAssignor]) -> None:
    placed: list[TaskAssignment] = []

    def answer(state: ApplicationState) -> TaskAssignment:
        placed.append(made().assign(state))
        return placed[-1]

    explanations = decided_with(name, answer)
    for given in placed[0].assignment:
        for task_id in given.tasks:
            [notified] = explanations.explanation(task_id)
            assert notified.explanation.active.process_id == given.process_id
            assert "because" in str(notified)


def test_explanation_names_the_racks_when_the_decision_was_another_one_without_them() -> None:
    explanations = decided_with("sticky", ALL_TO_B)
    [notified] = explanations.explanation(task("0_0"))
    assert notified.explanation.active.process_id == pid(2)
    assert notified.explanation.active.rule is Rule.RACKS
    assert notified.explanation.active.load == 4.0


def test_nothing_is_remembered_when_the_applications_own_assignor_decided() -> None:
    assert len(decided_with(Mine, ALL_TO_B)) == 0
