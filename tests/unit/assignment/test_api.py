"""KIP-924's containers, validation, settings and state views."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment import (
    AssignedTask,
    AssignmentConfigs,
    AssignmentError,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskType,
    validate_task_assignment,
)
from streams_py.assignment.application_state import PartitionDescription, ProblemState, RackLookup, TaskDescription
from streams_py.assignment.problem import AssignmentProblem, ClientInput, lag_from_offsets, reported_lag
from streams_py.errors import ConfigError, IllegalStateError, UnsupportedOperationError
from tests.support.assignment.scenario_language import process_id

P1, P2 = process_id(1), process_id(2)
SOON = datetime(2030, 1, 1, tzinfo=UTC)


def active(text: str) -> AssignedTask:
    return AssignedTask(TaskId.parse(text), TaskType.ACTIVE)


def standby(text: str) -> AssignedTask:
    return AssignedTask(TaskId.parse(text), TaskType.STANDBY)


# -- containers ----------------------------------------------------------------------------------------------


def test_assignment_prints_its_tasks_in_hash_order() -> None:  # KA-01
    shown = str(KafkaStreamsAssignment(P1, [active("0_0"), standby("0_1"), active("0_2")]))
    assert shown == (
        "KafkaStreamsAssignment{00000000-0000-0000-0000-000000000001, "
        "[AssignedTask{ACTIVE, 0_2}, AssignedTask{STANDBY, 0_1}, AssignedTask{ACTIVE, 0_0}]}"
    )


def test_assignment_refuses_a_task_in_two_roles() -> None:  # KA-02
    with pytest.raises(IllegalStateError, match="0_0 twice"):
        KafkaStreamsAssignment(P1, [active("0_0"), standby("0_0")])


def test_assigning_a_task_again_replaces_its_role() -> None:  # KA-03
    assignment = KafkaStreamsAssignment(P1)
    assignment.assign_task(active("0_0"))
    assignment.assign_task(standby("0_0"))
    assert dict(assignment.tasks) == {TaskId(0, 0): standby("0_0")}


def test_removing_a_task_ignores_its_role() -> None:  # KA-04
    assignment = KafkaStreamsAssignment(P1, [active("0_0")])
    assignment.remove_task(standby("0_0"))
    assignment.remove_task(standby("0_1"))
    assert not assignment.tasks


def test_task_view_is_read_only() -> None:  # KA-05
    assignment = KafkaStreamsAssignment(P1, [active("0_0")])
    with pytest.raises(TypeError):
        assignment.tasks[TaskId(0, 1)] = active("0_1")  # type: ignore[index]  # what is tested


def test_followup_view_refuses_changes_but_shows_those_of_the_original() -> None:  # KA-06, KA-07
    original = KafkaStreamsAssignment(P1, [active("0_0")])
    view = original.with_followup_rebalance(SOON)
    with pytest.raises(UnsupportedOperationError, match="view"):
        view.assign_task(active("0_1"))
    with pytest.raises(UnsupportedOperationError, match="view"):
        view.remove_task(active("0_0"))
    original.assign_task(active("0_1"))
    assert TaskId(0, 1) in view.tasks
    assert (original.followup_rebalance_deadline, view.followup_rebalance_deadline) == (None, SOON)


# -- validation ----------------------------------------------------------------------------------------------


def state() -> ProblemState:
    """Clients P1 and P2; tasks 0_0 with a store, 1_1 without."""
    problem = AssignmentProblem([ClientInput(P1), ClientInput(P2)], [TaskId(0, 0), TaskId(1, 1)], {TaskId(0, 0): 0})
    return ProblemState(
        problem, lambda: [TaskDescription.of(TaskId(0, 0), stores=["s"]), TaskDescription.of(TaskId(1, 1))]
    )


STRANGER = ProcessId.parse("11111111-2222-4333-8444-555555555555")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([(P1, [active("1_1")]), (P2, [])], AssignmentError.NONE, id="VA-01"),
        pytest.param([(P1, [active("1_1")])], AssignmentError.MISSING_PROCESS_ID, id="VA-02"),
        pytest.param([(P1, []), (P2, []), (STRANGER, [])], AssignmentError.UNKNOWN_PROCESS_ID, id="VA-03"),
        pytest.param([(P1, []), (P2, [active("13_13")])], AssignmentError.UNKNOWN_TASK_ID, id="VA-04"),
        pytest.param(
            [(P1, [active("1_1")]), (P2, [active("1_1")])],
            AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
            id="VA-05",
        ),
        pytest.param([(P1, [active("1_1")]), (P2, [standby("1_1")])], AssignmentError.INVALID_STANDBY_TASK, id="VA-06"),
        pytest.param([(P1, []), (P2, [])], AssignmentError.NONE, id="VA-07"),
        pytest.param([(P1, [standby("0_0")]), (P2, [standby("0_0")])], AssignmentError.NONE, id="VA-08"),
        pytest.param([(P1, [active("0_0")]), (P1, [active("1_1")]), (P2, [])], AssignmentError.NONE, id="VA-09"),
        pytest.param([(P1, []), (STRANGER, [])], AssignmentError.MISSING_PROCESS_ID, id="VA-10"),
        pytest.param(
            [(P1, [active("0_0")]), (P2, [active("0_0")]), (P2, [active("9_9")])],
            AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
            id="VA-11",
        ),
        pytest.param(
            [(P1, [standby("9_9")]), (P2, [standby("1_1")])], AssignmentError.UNKNOWN_TASK_ID, id="unknown-standby"
        ),
    ],
)
def test_validation_reports_the_first_error(
    entries: list[tuple[ProcessId, list[AssignedTask]]], expected: AssignmentError
) -> None:
    made = [KafkaStreamsAssignment(process_id, tasks) for process_id, tasks in entries]
    assert validate_task_assignment(state(), TaskAssignment(made)) is expected


# -- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"acceptable_recovery_lag": -1}, "acceptable.recovery.lag"),
        ({"max_warmup_replicas": 0}, "max.warmup.replicas"),
        ({"num_standby_replicas": -1}, "num.standby.replicas"),
        ({"probing_rebalance_interval_ms": 59_999}, "probing.rebalance.interval.ms"),
        ({"rack_aware_assignment_tags": tuple("abcdef")}, "rack.aware.assignment.tags"),
        ({"rack_aware_assignment_strategy": "x"}, "rack.aware.assignment.strategy"),
        ({"rack_aware_traffic_cost": -1}, "rack.aware.assignment.traffic_cost"),
        ({"max_warmup_replicas": True}, "max.warmup.replicas"),
    ],
)
def test_bad_setting_is_refused_by_its_key(given: dict[str, object], key: str) -> None:  # LC-06
    with pytest.raises(ConfigError) as caught:
        AssignmentConfigs(**given)  # type: ignore[arg-type]  # wrong values on purpose
    assert caught.value.key == key
    assert key in str(caught.value)


def test_settings_are_read_from_dotted_keys() -> None:
    configs = AssignmentConfigs.of(
        {
            "acceptable.recovery.lag": "7",
            "rack.aware.assignment.tags": "zone, cluster",
            "rack.aware.assignment.traffic_cost": "10",
            "rack.aware.assignment.strategy": "min_traffic",
            "application.id": "other keys do not matter",
        }
    )
    assert configs == AssignmentConfigs(
        acceptable_recovery_lag=7,
        rack_aware_assignment_tags=("zone", "cluster"),
        rack_aware_traffic_cost=10,
        rack_aware_assignment_strategy="min_traffic",
    )


@pytest.mark.parametrize("key", ["acceptable.recovery.lag", "rack.aware.assignment.tags"])
def test_setting_of_the_wrong_kind_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        AssignmentConfigs.of({key: 1.5})


# -- views ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "end", "lag"),
    [
        pytest.param(0, 500, 500, id="CS-27"),
        pytest.param(100, 100, 0, id="CS-27-caught-up"),
        pytest.param(-2, 500, -2, id="CS-29"),
        pytest.param(-3, 500, -3, id="CS-30"),
        pytest.param(5, 1, 1, id="CS-31"),
        pytest.param(0, -3, -3, id="CS-37"),
    ],
)
def test_lag_is_computed_from_reported_offsets(offset: int, end: int, lag: int) -> None:
    assert lag_from_offsets(offset, end) == lag


@pytest.mark.parametrize(
    ("offset", "end", "lag"),
    [
        pytest.param(40, 100, 60, id="behind"),
        pytest.param(101, 100, 100, id="beyond the end"),
        pytest.param(-2, 100, -2, id="runs the task"),
        pytest.param(-2, -3, -2, id="runs the task, unknown end"),
        pytest.param(-3, 100, None, id="unknown offset"),
        pytest.param(40, -3, None, id="unknown end"),
    ],
)
def test_lag_outside_of_the_leader_follows_its_rule(offset: int, end: int, lag: int | None) -> None:
    assert reported_lag(offset, end) == lag


def named(partition: int, name: str = "A", subtopology: int = 0) -> TaskId:
    return TaskId(subtopology, partition, name)


def view_problem() -> AssignmentProblem:
    client = ClientInput(
        P1,
        capacity=2,
        lags={named(0): 2000, named(1): 1000},
        consumers=("c1", "c0"),
        consumer_tasks={"c1": (named(0), named(1), named(0, "B"))},
    )
    return AssignmentProblem([client], [named(0), named(1), named(2)], {named(p): 5000 for p in range(3)})


def test_client_view_orders_previous_tasks_by_lag() -> None:  # CS-34, CS-38
    client = ProblemState(view_problem()).kafka_streams_states(compute_task_lags=True)[P1]
    assert client.prev_tasks_by_lag("c0") == []
    assert client.prev_tasks_by_lag("c1") == [named(1), named(0)]
    assert client.lag_for(named(2)) == 5000
    assert client.stateful_tasks_to_lag_sums() == {named(0): 2000, named(1): 1000, named(2): 5000}
    assert client.consumer_client_ids == ("c0", "c1")
    with pytest.raises(IllegalStateError, match="A__1_0"):
        client.lag_for(named(0, "A", 1))


def test_client_view_refuses_lags_that_were_not_requested() -> None:  # CS-39
    client = ProblemState(view_problem()).kafka_streams_states()[P1]
    for ask in (
        lambda: client.lag_for(named(0)),
        lambda: client.prev_tasks_by_lag("c1"),
        client.stateful_tasks_to_lag_sums,
    ):
        with pytest.raises(UnsupportedOperationError, match="compute_task_lags=True"):
            ask()


def test_state_is_made_once_and_read_only() -> None:
    calls = []

    def describe() -> list[TaskDescription]:
        calls.append(1)
        return [TaskDescription.of(named(0))]

    views = ProblemState(view_problem(), describe)
    assert views.all_tasks() is views.all_tasks()
    assert views.kafka_streams_states(compute_task_lags=True) is views.kafka_streams_states(compute_task_lags=True)
    assert views.kafka_streams_states(compute_task_lags=True) is not views.kafka_streams_states()
    assert len(calls) == 1
    with pytest.raises(TypeError):
        views.all_tasks()[named(1)] = TaskDescription.of(named(1))  # type: ignore[index]  # what is tested


def test_racks_are_looked_up_once_for_all_partitions() -> None:
    calls = []

    def look_up() -> dict[TopicPartition, frozenset[str]]:
        calls.append(1)
        return {TopicPartition("in", 0): frozenset({"r1"})}

    both = TopicPartition("in", 0)
    task = TaskDescription.of(
        TaskId(0, 0),
        stores=["s"],
        sources=[both],
        changelogs=[both, TopicPartition("log", 0)],
        racks=RackLookup(look_up),
    )
    assert not calls
    racks = {p.topic_partition: (p.is_source, p.is_changelog, p.rack_ids()) for p in task.topic_partitions}
    assert racks == {both: (True, True, frozenset({"r1"})), TopicPartition("log", 0): (False, True, None)}
    assert len(calls) == 1
    assert PartitionDescription(both, True, True) == PartitionDescription(both, True, True, RackLookup(look_up))
    assert task.is_stateful
    assert not TaskDescription.of(TaskId(0, 1), sources=[both]).is_stateful


def test_a_problem_with_one_process_twice_is_refused() -> None:
    with pytest.raises(IllegalStateError, match="same process id"):
        AssignmentProblem([ClientInput(P1), ClientInput(P1)], [], {})


def test_random_process_ids_differ_and_are_random_uuids() -> None:
    made = {ProcessId.random_process_id() for _ in range(20)}
    assert len(made) == 20
    assert {process_id.id.version for process_id in made} == {4}
