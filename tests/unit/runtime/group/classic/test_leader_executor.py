"""Execution of the leader's effects, with a cluster that answers, a silent one, and all kinds of assignors."""

from __future__ import annotations

import logging
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.errors import (
    AssignorError,
    BrokerUnavailableError,
    MissingSourceTopicError,
    StreamsError,
    TaskAssignmentError,
)
from streams_py.ports import AdminError, AdminErrorKind, MemberSubscription
from streams_py.runtime.thread.metadata import thread_metadata
from streams_py.runtime.thread.states import ThreadState
from tests.support.runtime.world import Steps, World, copying, counting, task, tp

BOTH = {"0_0": "RUNNING", "0_1": "RUNNING"}


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2})


class Scripted(TaskAssignor):
    """Assigns all tasks to the first client, after an action that the test sets."""

    before: ClassVar[Any] = staticmethod(lambda: None)
    computed: ClassVar[list[AssignmentError]] = []
    after: ClassVar[Any] = staticmethod(lambda: None)
    deadline: ClassVar[datetime | None] = None

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        type(self).before()
        client = sorted(application_state.kafka_streams_states())[0]
        tasks = [AssignedTask(one, TaskType.ACTIVE) for one in application_state.all_tasks()]
        assignment = KafkaStreamsAssignment(client, tasks)
        if self.deadline is not None:
            assignment = assignment.with_followup_rebalance(self.deadline)
        return TaskAssignment([assignment])

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        type(self).computed.append(error)
        type(self).after()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Return the class; attributes that tests set with monkeypatch are restored."""
    monkeypatch.setattr(Scripted, "computed", [])
    return Scripted


def leader_executor(steps: Steps) -> Any:
    return steps.membership.listener._leader_executor  # the listener does not show it


def leader_admin(steps: Steps) -> Any:
    return leader_executor(steps)._admin  # tests replace its answers


# -- who else is there -------------------------------------------------------------------------------------------


def lead_two(leader: Steps, other: Steps) -> None:
    """Run a rebalance of two processes, led by the first."""
    members = {}
    for name, steps in (("me", leader), ("other", other)):
        topics = steps.membership.topics
        user_data = steps.membership.listener.subscription_user_data(topics, "me", -1)
        members[name] = MemberSubscription(tuple(sorted(topics)), user_data, (), -1, None)
    assert leader.membership.listener.assign(members).keys() == members.keys()


def test_drain_gains_nothing_when_every_other_process_drains(world: World, tmp_path: Path) -> None:
    steps, other = (Steps(world, counting(), tmp_path / name) for name in ("a", "b"))
    assert steps.thread.drain_gains
    steps.membership.lead()
    assert not steps.thread.drain_gains
    lead_two(steps, other)
    assert steps.thread.drain_gains
    assert other.thread.drain_gains
    steps.thread.drain()
    lead_two(steps, other)
    assert steps.thread.drain_gains
    other.thread.drain()
    lead_two(steps, other)
    assert not steps.thread.drain_gains
    steps.membership.round({task("0_0"): [tp("in-0")]})
    assert steps.thread.drain_gains, "another process leads now"


# -- topics ------------------------------------------------------------------------------------------------------


def test_leader_creates_the_internal_topics_and_runs_everything_itself(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.membership.lead()
    assert [entry for entry in world.diary if entry[0] == "create"] == [("create", ("app-counts-changelog",))]
    assert world.topics["app-counts-changelog"] == 2
    steps.turn(4)
    assert steps.tasks == BOTH
    steps.membership.lead()
    assert world.names().count("create") == 1


def test_member_that_does_not_lead_creates_nothing(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.membership.round({task("0_0"): [tp("in-0")]})
    steps.loop.iterate()
    steps.turn(2)
    assert "create" not in world.names()
    assert "app-counts-changelog" not in world.topics


def test_everybody_is_told_when_a_source_topic_is_missing_and_the_member_names_it(world: World, tmp_path: Path) -> None:
    del world.topics["in"]
    steps = Steps(world, copying(), tmp_path)
    steps.membership.lead()
    with pytest.raises(MissingSourceTopicError, match=r"source topic in missing on world:9092; create it"):
        steps.turn()


def test_source_topic_that_only_the_first_answer_leaves_out_is_not_missing(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    admin = leader_admin(steps)
    describe = admin.describe_topics
    answers = [{"in": AdminError(AdminErrorKind.UNKNOWN_TOPIC, "not yet")}]
    admin.describe_topics = lambda names=None: answers.pop() if answers else describe(names)
    steps.membership.lead()
    steps.turn(4)
    assert steps.tasks == BOTH


def test_assign_step_fails_with_the_reason_when_an_internal_topic_does_not_fit(world: World, tmp_path: Path) -> None:
    world.topics["app-counts-changelog"] = 3
    steps = Steps(world, counting(), tmp_path)
    with pytest.raises(StreamsError, match=r"app-counts-changelog exists with 3 partitions, but 2 are needed.*delete"):
        steps.membership.lead()


def test_application_hears_the_leaders_reason_when_the_leader_is_its_own(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.membership.join()
    leader_executor(steps).outcome.failure = reason = TaskAssignmentError(
        "topics a and b must have equally many partitions"
    )
    steps.membership.finish({}, error_code=3)
    with pytest.raises(TaskAssignmentError) as caught:
        steps.turn()
    assert caught.value is reason
    steps.membership.round({}, error_code=3)  # another rebalance, another leader: only the code is known
    with pytest.raises(TaskAssignmentError, match="the leader's log has the reason"):
        steps.turn()


def test_leader_tries_again_later_when_the_cluster_does_not_answer(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    world.away = True
    with pytest.raises(BrokerUnavailableError):
        steps.membership.lead()
    world.away = False
    steps.membership.lead()
    steps.turn(3)
    assert steps.tasks == BOTH


def test_leader_waits_between_attempts_to_create_a_topic(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    admin = leader_admin(steps)
    answers: list[AdminError | None] = [
        AdminError(AdminErrorKind.TIMED_OUT, "busy"),
        AdminError(AdminErrorKind.TIMED_OUT, "still busy"),
        None,
    ]
    create = admin.create_topics

    def troubled(specs: Any) -> Any:
        answer = answers.pop(0)
        return create(specs) if answer is None else {spec.name: answer for spec in specs}

    admin.create_topics = troubled
    before = world.clock.now_ms()
    steps.membership.lead()
    assert answers == []
    assert world.clock.now_ms() > before
    steps.turn(4)
    assert steps.tasks == BOTH


def test_tasks_stay_where_they_are_when_end_offsets_cannot_be_had(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.membership.lead()
    steps.turn(4)
    admin = leader_admin(steps)

    def silent(partitions: Any, *, earliest: bool = False) -> Any:
        raise BrokerUnavailableError("no answer to list offsets")

    admin.list_offsets = silent
    steps.membership.lead()
    assert "no answer to list offsets" in caplog.text
    steps.turn(2)
    assert steps.tasks == BOTH


# -- the application's assignor ------------------------------------------------------------------------------------


def custom(world: World, folder: Path, **config: Any) -> Steps:
    return Steps(world, copying(), folder, **{"task_assignor_class": Scripted, **config})


def test_custom_assignor_decides_and_hears_what_was_computed(
    world: World, tmp_path: Path, scripted: type[Scripted]
) -> None:
    steps = custom(world, tmp_path)
    steps.membership.lead()
    steps.turn(3)
    assert steps.tasks == BOTH
    assert scripted.computed == [AssignmentError.NONE]


def test_follow_up_of_a_custom_assignor_is_kept(
    world: World, tmp_path: Path, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    due = datetime.fromtimestamp(world.clock.now_ms() / 1000, UTC) + timedelta(seconds=90)
    monkeypatch.setattr(scripted, "deadline", due)
    steps = custom(world, tmp_path)
    steps.membership.lead()
    steps.turn(3)
    world.clock.advance(89_000)
    steps.turn()
    assert "rejoin" not in world.names()
    world.clock.advance(1_001)
    steps.turn()
    assert "rejoin" in world.names()


def fail() -> None:
    raise ZeroDivisionError("moody")


def refuse() -> None:
    raise TaskAssignmentError("not today")


def leave() -> None:
    sys.exit(3)


@pytest.mark.parametrize(
    ("misbehave", "kind", "words"),
    [
        (fail, AssignorError, "ZeroDivisionError: moody"),
        (refuse, TaskAssignmentError, "refused: not today"),
        (leave, AssignorError, "SystemExit: 3"),
    ],
)
def test_running_tasks_keep_running_and_the_error_names_the_assignor_when_it_fails(
    world: World,
    tmp_path: Path,
    scripted: type[Scripted],
    monkeypatch: pytest.MonkeyPatch,
    misbehave: Any,
    kind: type[Exception],
    words: str,
) -> None:
    steps = custom(world, tmp_path)
    steps.membership.lead()
    steps.turn(3)
    running = steps.parts.table.running()
    monkeypatch.setattr(scripted, "before", staticmethod(misbehave))
    steps.membership.lead()
    steps.turn(3)
    assert steps.parts.table.running() == running
    assert steps.thread.state is ThreadState.RUNNING
    assert steps.errors == []
    error = steps.thread.last_error
    assert type(error) is kind
    assert words in str(error)
    assert "test_leader_executor:Scripted" in str(error)
    monkeypatch.setattr(scripted, "before", staticmethod(lambda: None))
    world.clock.advance(60_001)  # the group retries automatically
    steps.turn()
    assert "rejoin" in world.names()


def test_assignor_that_never_returns_is_left_behind_and_asked_again_when_it_has(
    world: World, tmp_path: Path, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = custom(world, tmp_path)
    steps.membership.lead()
    steps.turn(3)
    release = threading.Event()
    calls: list[int] = []

    def hang() -> None:
        calls.append(1)
        release.wait(60)

    monkeypatch.setattr(scripted, "before", staticmethod(hang))
    runner = leader_executor(steps)._runner  # the executor does not show it
    monkeypatch.setattr(runner, "_timeout_ms", 50)  # it is set when the runner is made
    steps.membership.lead()
    assert "did not return in time from assign (waited 50 ms)" in str(steps.thread.last_error)
    steps.membership.lead()
    assert "an earlier call has not returned yet" in str(steps.thread.last_error)
    assert calls == [1]
    assert steps.tasks == BOTH
    assert thread_metadata(steps.thread).last_error is steps.thread.last_error
    assert steps.thread.reported_errors == 2
    release.set()
    runner._deciding._stuck.join(60)  # until the assignor has returned
    monkeypatch.setattr(runner, "_timeout_ms", 60_000)  # the next call may take longer
    monkeypatch.setattr(scripted, "before", staticmethod(lambda: None))
    computed = len(scripted.computed)
    steps.membership.lead()
    assert len(scripted.computed) == computed + 1


def test_log_has_the_traceback_of_a_failing_assignor(
    world: World,
    tmp_path: Path,
    scripted: type[Scripted],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(scripted, "before", staticmethod(fail))
    steps = custom(world, tmp_path)
    steps.membership.lead()
    assert "in fail\n" in caplog.text
    assert "ZeroDivisionError: moody" in caplog.text


def test_only_subscribed_topics_are_described(world: World, tmp_path: Path) -> None:
    world.topics["strangers"] = 5
    steps = Steps(world, counting(), tmp_path)
    asked: list[Any] = []
    admin = leader_admin(steps)
    describe = admin.describe_topics

    def watched(names: Any = None) -> Any:
        asked.append(names)
        return describe(names)

    admin.describe_topics = watched
    steps.membership.lead()
    assert asked[0] == ["in"]
    assert None not in asked


def test_leader_tries_again_when_a_topic_cannot_be_described_now(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    admin = leader_admin(steps)
    admin.describe_topics = lambda names=None: {"in": AdminError(AdminErrorKind.LEADER_NOT_AVAILABLE, "electing")}
    with pytest.raises(BrokerUnavailableError, match="topic in cannot be described now: electing"):
        steps.membership.lead()


def test_failing_callback_of_an_assignor_is_reported_but_its_assignment_counts(
    world: World,
    tmp_path: Path,
    scripted: type[Scripted],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(scripted, "after", staticmethod(fail))
    steps = custom(world, tmp_path)
    with caplog.at_level(logging.ERROR):
        steps.membership.lead()
    steps.turn(3)
    assert steps.tasks == BOTH
    assert "on_assignment_computed" in str(steps.thread.last_error)
    assert str(steps.thread.last_error) in caplog.text


@pytest.mark.parametrize("slow", ["list_offsets", "describe_topics"])
def test_request_that_takes_too_long_does_not_hold_the_group(world: World, tmp_path: Path, slow: str) -> None:
    world.topics["app-counts-changelog"] = 2
    steps = Steps(world, counting(), tmp_path)
    admin, silent = leader_admin(steps), threading.Event()
    admin.timeout_ms = 50
    answer = getattr(admin.admin, slow)
    setattr(admin.admin, slow, lambda *arguments: silent.wait(60) and answer(*arguments))
    try:
        if slow == "list_offsets":  # lags are unknown then: the best possible assignment
            steps.membership.lead()
        else:
            with pytest.raises(BrokerUnavailableError, match="did not answer the group's leader within 50 ms"):
                steps.membership.lead()
    finally:
        silent.set()
