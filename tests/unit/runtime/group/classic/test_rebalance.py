"""The interface between membership and stream thread: the calls, their order, and the end of the rebalance."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from streams_protocol import NO_FOLLOW_UP, AssignmentInfo, decode_subscription_info, encode_assignment_info
from streams_protocol.types import HostInfo, ProcessId, TaskId, TopicPartition
from streams_py.errors import (
    BrokerUnavailableError,
    MissingSourceTopicError,
    StreamsError,
    TaskAssignmentError,
    TaskMigratedError,
)
from streams_py.member.member import Member
from streams_py.member.settings import MemberSettings
from streams_py.member.tasks import HostView, Progress, Tasks
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.group.classic.rebalance import Rebalance, TaskSide
from streams_py.runtime.group.inbox import Inbox
from streams_py.testing.memory_clients import ManualClock
from tests.support.runtime.world import DirectInbox, task, tp

A, B = task("0_0"), task("0_1")
IN0, IN1 = tp("in-0"), tp("in-1")


class Thread:
    """The stream thread's side; records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.sums: dict[TaskId, int] = {A: 7}

    def offset_sums(self) -> Mapping[TaskId, int]:
        self.calls.append(("sums",))
        return self.sums

    def begin_suspension(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.calls.append(("suspend", tasks))
        return {IN1: OffsetAndMetadata(3)}

    def finish_suspension(self, error: Exception | None) -> None:
        self.calls.append(("finish", error))

    def close_lost(self, tasks: Collection[TaskId]) -> None:
        self.calls.append(("lose", tasks))

    def complete_rebalance(self, tasks: Tasks | None, failure: Exception | None) -> None:
        self.calls.append(("complete", tasks, failure))


class Membership:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def request_rejoin(self, reason: str) -> None:
        self.reasons.append(reason)


class LeaderExecutor:
    failure: StreamsError | None = None
    leads_alone = False

    def assign(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"assigned": members}


class Seam:
    """A Rebalance and its environment."""

    def __init__(self, inbox: Inbox[TaskSide] | None = None, **settings: Any) -> None:
        self.clock = ManualClock(5_000)
        self.thread = Thread()
        self.leader_executor = LeaderExecutor()
        self.stopped: list[str] = []
        self.halted: list[str] = []
        self.held: list[str | None] = []
        self.hosts = HostView()
        self.standbys: Mapping[TaskId, Progress] = {}
        direct = DirectInbox()
        direct.owner = self.thread
        self.rebalance = Rebalance(
            Member(MemberSettings(ProcessId.parse("00000000-0000-0000-0000-000000000001"), **settings)),
            self.leader_executor,  # type: ignore[arg-type]  # all that is used of it
            inbox or direct,
            self.clock,
            name="thread-1",
            wait_ms=1,
            offset_sums=self.thread.offset_sums,
            standbys=lambda: self.standbys,
            halt=self.halted.append,
            hold=self.held.append,
            on_stop_application=lambda: self.stopped.append("now"),
            on_hosts=lambda hosts: setattr(self, "hosts", hosts),
            explain=lambda error: TaskAssignmentError(f"explained: {error}"),
        )

    def assignment(self, *partitions: TopicPartition, **info: Any) -> None:
        tasks = tuple(TaskId(0, partition.partition) for partition in sorted(partitions))
        info = {"next_rebalance_ms": NO_FOLLOW_UP, "active_tasks": tasks, **info}
        self.rebalance.on_assignment(partitions, encode_assignment_info(AssignmentInfo(**info)), 1)

    def has(self, *partitions: TopicPartition, **info: Any) -> None:
        """Create a rebalance that has given the thread these partitions."""
        self.rebalance.subscription_user_data(frozenset())
        self.assignment(*partitions, **info)
        self.rebalance.on_assigned(partitions)
        self.thread.calls.clear()

    @property
    def completed(self) -> tuple[Tasks | None, Exception | None]:
        return next(call[1:] for call in reversed(self.thread.calls) if call[0] == "complete")  # type: ignore[return-value]  # of that shape


@pytest.fixture
def seam() -> Seam:
    return Seam()


def test_round_asks_the_thread_in_order_and_forbids_commits_until_its_end(seam: Seam) -> None:
    rebalance = seam.rebalance
    assert not rebalance.in_progress
    seam.has(IN0, IN1)
    sent = decode_subscription_info(rebalance.subscription_user_data(frozenset({"in"})))
    assert sent.task_offset_sums == {A: 7}
    assert rebalance.in_progress
    assert rebalance.on_revoked((IN1,)) == {IN1: OffsetAndMetadata(3)}
    rebalance.on_revoked_committed(None)
    seam.assignment(IN0)
    assert rebalance.in_progress
    rebalance.on_assigned((IN0,))
    assert not rebalance.in_progress
    assert seam.thread.calls == [
        ("sums",),
        ("suspend", (B,)),
        ("finish", None),
        ("complete", Tasks({A: frozenset({IN0})}, {}), None),
    ]


def test_assignment_is_carried_out_only_at_the_end_of_the_round(seam: Seam) -> None:
    seam.rebalance.subscription_user_data(frozenset())
    seam.assignment(IN0)
    assert [call[0] for call in seam.thread.calls] == ["sums"]


def test_tasks_are_kept_and_the_thread_fails_when_the_assignment_cannot_be_read(seam: Seam) -> None:
    seam.rebalance.subscription_user_data(frozenset())
    seam.rebalance.on_assignment((IN0,), b"garbage", 1)
    seam.rebalance.on_assigned((IN0,))
    tasks, failure = seam.completed
    assert tasks is None
    assert isinstance(failure, TaskAssignmentError)


@pytest.mark.parametrize(("code", "kind"), [(1, MissingSourceTopicError), (3, TaskAssignmentError)])
def test_error_code_reaches_the_thread_explained(seam: Seam, code: int, kind: type[StreamsError]) -> None:
    explained: list[Exception] = []
    seam.rebalance._explain = lambda error: explained.append(error) or error  # type: ignore[func-returns-value]
    seam.rebalance.subscription_user_data(frozenset())
    seam.assignment(error_code=code)
    seam.rebalance.on_assigned(())
    tasks, failure = seam.completed
    assert tasks is None
    assert [failure] == explained
    assert isinstance(failure, kind)
    assert not seam.rebalance.in_progress


def test_unknown_error_code_leaves_the_rebalance_open(seam: Seam) -> None:
    seam.rebalance.subscription_user_data(frozenset())
    seam.assignment(error_code=99)
    seam.rebalance.on_assigned(())
    assert seam.completed[1] is not None
    assert seam.rebalance.in_progress


def test_application_stops_on_the_stream_thread_after_the_rebalance(seam: Seam) -> None:
    order: list[str] = []
    seam.rebalance._on_stop_application = lambda: order.append("stop")
    seam.thread.complete_rebalance = lambda tasks, failure: order.append("complete")  # type: ignore[method-assign]
    seam.rebalance.subscription_user_data(frozenset())
    seam.assignment(error_code=4)
    seam.rebalance.on_assigned(())
    assert order == ["complete", "stop"]


def test_shutdown_of_the_application_is_carried_in_the_next_subscription(seam: Seam) -> None:
    seam.rebalance.request_application_shutdown()
    membership = Membership()
    seam.rebalance.rejoin_if_due(membership)  # type: ignore[arg-type]  # all that is used of it
    assert membership.reasons == ["the application is shutting down"]
    assert decode_subscription_info(seam.rebalance.subscription_user_data(frozenset())).error_code == 4


@pytest.mark.parametrize(("due_ms", "asks"), [(0, 1), (4_999, 1), (5_000, 0), (5_001, 0), (NO_FOLLOW_UP, 0)])
def test_follow_up_is_asked_for_once_when_its_time_has_passed(seam: Seam, due_ms: int, asks: int) -> None:
    seam.rebalance.subscription_user_data(frozenset())
    seam.assignment(IN0, next_rebalance_ms=due_ms)
    membership = Membership()
    seam.rebalance.rejoin_if_due(membership)  # type: ignore[arg-type]
    assert membership.reasons == []  # not before the end of this one
    seam.rebalance.on_assigned((IN0,))
    for _ in range(3):
        seam.rebalance.rejoin_if_due(membership)  # type: ignore[arg-type]
    assert len(membership.reasons) == asks


@pytest.mark.parametrize("setting", [True, False])
def test_member_rejoins_when_its_warm_up_has_caught_up_and_the_setting_allows_it(setting: bool) -> None:
    seam, membership = Seam(asks_when_caught_up=setting), Membership()
    seam.has(IN0, standby_tasks={B: (IN1,)})

    def measured(position: int) -> list[str]:
        seam.standbys = {B: Progress(position, 100_000)}
        seam.rebalance.rejoin_if_due(membership)  # type: ignore[arg-type]  # all that is used of it
        return membership.reasons

    assert measured(10_000) == []
    assert measured(90_000) == (["follow-up rebalance: caught up with the changelogs of 0_1"] if setting else [])


def test_nobody_asks_for_warm_ups_during_a_rebalance(seam: Seam) -> None:
    seam.has(IN0, standby_tasks={B: (IN1,)})
    membership = Membership()
    seam.rebalance.subscription_user_data(frozenset())
    seam.standbys = {B: Progress(100_000, 100_000)}
    seam.rebalance.rejoin_if_due(membership)  # type: ignore[arg-type]
    assert membership.reasons == []


def test_lost_partitions_end_nothing_but_the_tasks(seam: Seam) -> None:
    seam.has(IN0, IN1)
    seam.rebalance.on_lost((IN0, IN1))
    assert seam.thread.calls == [("lose", (A, B))]


def test_tasks_end_as_the_member_says_and_others_are_left_alone(seam: Seam) -> None:
    both = {"active_tasks": (A, A)}
    seam.has(IN0, IN1, **both)
    seam.rebalance.on_revoked((IN1,))
    assert seam.thread.calls == [("suspend", ())]
    seam.rebalance.on_revoked((IN0, IN1))
    assert seam.thread.calls[1:] == [("suspend", (A,))]


def test_leader_forgets_an_old_failure_when_a_new_round_begins(seam: Seam) -> None:
    seam.leader_executor.failure = StreamsError("of the last round")
    seam.rebalance.subscription_user_data(frozenset())
    assert seam.leader_executor.failure is None


def test_hosts_are_those_of_the_last_usable_assignment(seam: Seam) -> None:
    host = HostInfo("localhost", 80)
    seam.rebalance.subscription_user_data(frozenset())
    seam.assignment(IN0, partitions_by_host={host: {IN0}})
    assert seam.hosts.active == {host: {IN0}}
    seam.assignment(error_code=1)
    assert seam.hosts.active == {host: {IN0}}


def test_callbacks_return_immediately_when_the_thread_is_ending() -> None:
    seam = Seam(Inbox[TaskSide]())  # which is not read
    with seam.rebalance.ending():
        pass
    assert decode_subscription_info(seam.rebalance.subscription_user_data(frozenset())).task_offset_sums == {}
    assert seam.rebalance.on_revoked((IN0,)) == {}
    seam.rebalance.on_revoked_committed(None)
    seam.rebalance.on_lost((IN0,))
    seam.assignment(IN0)
    seam.rebalance.on_assigned((IN0,))
    assert seam.thread.calls == []


def test_member_gives_up_what_it_owns_but_does_not_join_again_while_its_thread_commits_for_the_last_time() -> None:
    """Otherwise other members would get the revoked partitions, and the commit would still be accepted."""
    seam = Seam(Inbox[TaskSide]())
    with seam.rebalance.ending():
        assert seam.rebalance.on_revoked((IN0,)) == {}
        with pytest.raises(BrokerUnavailableError, match="last commit is still in progress"):
            seam.rebalance.subscription_user_data(frozenset())
    assert seam.rebalance.subscription_user_data(frozenset())


def test_thread_does_not_end_while_task_directories_are_locked_in_its_name(seam: Seam) -> None:
    """Directories that are locked after its end would never be released."""
    happened: list[str] = []

    def end() -> None:
        with seam.rebalance.ending():
            happened.append("ends")

    ending = threading.Thread(target=end)

    def offset_sums() -> Mapping[TaskId, int]:
        ending.start()
        ending.join(0.1)
        happened.append("locked")
        return {}

    seam.rebalance._offset_sums = offset_sums
    seam.rebalance.subscription_user_data(frozenset())
    ending.join()
    assert happened == ["locked", "ends"]


def test_callbacks_return_when_the_inbox_was_closed_under_them() -> None:
    inbox = Inbox[TaskSide]()
    seam = Seam(inbox)
    inbox.close()
    assert seam.rebalance.on_revoked((IN0,)) == {}


def test_thread_that_does_not_answer_in_time_gives_its_tasks_up() -> None:
    seam = Seam(Inbox[TaskSide]())
    with pytest.raises(TaskMigratedError, match=r"did not answer within 1 ms.*max\.poll\.interval\.ms"):
        seam.rebalance.on_revoked((IN0,))
    assert len(seam.halted) == 1


def test_log_says_what_each_rebalance_gave_and_took(seam: Seam, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def lines() -> list[str]:
        logged = [record.message for record in caplog.records if "rebalance of" in record.message]
        caplog.clear()
        return logged

    def round_with(*partitions: TopicPartition, **info: Any) -> None:
        seam.rebalance.subscription_user_data(frozenset({"in"}))
        seam.clock.advance(1_500)
        seam.assignment(*partitions, **info)
        seam.rebalance.on_assigned(partitions)

    round_with(IN0)
    assert lines() == ["thread-1: rebalance of 1.5 s: gained 0_0; lost none; kept none; standbys none"]
    round_with(IN0, IN1)
    assert lines() == ["thread-1: rebalance of 1.5 s: gained 0_1; lost none; kept 0_0; standbys none"]
    round_with(IN1, standby_tasks={TaskId(0, 0): (IN0,)})
    assert lines() == ["thread-1: rebalance of 1.5 s: gained none; lost 0_0; kept 0_1; standbys 0_0"]
    seam.rebalance.on_lost((IN1,))
    assert "dropped active tasks 0_1 without committing; joining again" in caplog.text
    round_with(IN1)
    assert lines() == ["thread-1: rebalance of 1.5 s: gained 0_1; lost none; kept none; standbys none"]
    seam.rebalance.on_lost((IN1,))
    round_with()
    assert lines() == ["thread-1: rebalance of 1.5 s: gained none; lost 0_1; kept none; standbys none"]
    round_with()
    assert lines() == ["thread-1: rebalance of 1.5 s: gained none; lost none; kept none; standbys none"]
