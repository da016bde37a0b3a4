"""A member's part of a rebalance: the calls to the stream thread, their order, and the end of the rebalance."""

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
from streams_py.runtime.group.classic.leader_executor import LeaderOutcome
from streams_py.runtime.group.classic.member_listener import MemberListener
from streams_py.runtime.group.classic.rebalance_log import RebalanceLog
from streams_py.runtime.group.classic.recorder import RebalanceRecorder
from streams_py.runtime.group.classic.transport import ClassicTransport, StaticMember
from streams_py.runtime.group.inbox import Inbox
from streams_py.runtime.group.thread_calls import ThreadCalls
from streams_py.runtime.group.timeline import Timekeeper
from streams_py.runtime.group.transport import JoinObserver, TaskListener
from streams_py.testing.memory_clients import ManualClock
from tests.support.runtime.world import DirectInbox, task, tp

A, B = task("0_0"), task("0_1")
IN0, IN1 = tp("in-0"), tp("in-1")


class Thread:
    """The stream thread's side; records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.sums: dict[TaskId, int] = {A: 7}
        self.standbys: Mapping[TaskId, Progress] = {}
        self.halted: list[str] = []
        self.held: list[str | None] = []
        self.shown = HostView()

    def offset_sums(self) -> Mapping[TaskId, int]:
        self.calls.append(("sums",))
        return self.sums

    def standby_progress(self) -> Mapping[TaskId, Progress]:
        return self.standbys

    def revoke(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.calls.append(("revoke", tasks))
        return {IN1: OffsetAndMetadata(3)}

    def revoked(self, error: Exception | None) -> None:
        self.calls.append(("revoked", error))

    def assign(self, tasks: Tasks | None, error: Exception | None) -> None:
        self.calls.append(("assign", tasks, error))

    def lose(self, tasks: Collection[TaskId]) -> None:
        self.calls.append(("lose", tasks))

    # -- MemberSignals

    def halt(self, reason: str) -> None:
        self.halted.append(reason)

    def hold(self, reason: str | None) -> None:
        self.held.append(reason)

    def hosts(self, hosts: HostView) -> None:
        self.shown = hosts

    def report(self, error: StreamsError) -> None: ...

    def stop_application(self) -> None:
        self.calls.append(("stop",))


class Membership:
    member_id = "me"

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def request_rejoin(self, reason: str) -> None:
        self.reasons.append(reason)


class LeaderExecutor:
    def __init__(self) -> None:
        self.outcome = LeaderOutcome()

    def assign(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"assigned": members}


class OnRecord(JoinObserver):
    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self._calls = calls

    def joining(self, thread: int, member_id: str, generation: int) -> None:
        self._calls.append(("joining", thread, member_id, generation))

    def waits(self, waited_s: float) -> None:
        self._calls.append(("waits", waited_s))


class Seam:
    """A listener and a transport with their environment."""

    def __init__(self, inbox: Inbox[TaskListener] | None = None, **settings: Any) -> None:
        self.clock = ManualClock(5_000)
        self.thread = Thread()
        self.leader_executor: Any = LeaderExecutor()
        self.explained: list[Exception] = []
        direct = DirectInbox()
        direct.owner = self.thread
        member = Member(MemberSettings(ProcessId.parse("00000000-0000-0000-0000-000000000001"), **settings))
        calls = ThreadCalls(inbox or direct, self.thread, wait_ms=1)
        self.recorded: list[tuple[Any, ...]] = []
        recorder = RebalanceRecorder(
            7, RebalanceLog("thread-1", self.clock), Timekeeper("thread-1", ()), OnRecord(self.recorded)
        )
        self.listener = MemberListener(
            member, self.leader_executor, calls, self.thread, self.thread, recorder, self._explain
        )
        self.membership = Membership()
        self.transport = ClassicTransport(
            self.membership,  # type: ignore[arg-type]  # all that is used of it
            self.listener,
            calls,
            member,
            self.leader_executor,
            self.thread,
            self.clock,
            StaticMember("thread-1", None, "group", None),  # type: ignore[arg-type]  # not a static member
        )

    def _explain(self, error: StreamsError) -> StreamsError:
        self.explained.append(error)
        return error

    def assignment(self, *partitions: TopicPartition, **info: Any) -> None:
        tasks = tuple(TaskId(0, partition.partition) for partition in sorted(partitions))
        info = {"next_rebalance_ms": NO_FOLLOW_UP, "active_tasks": tasks, **info}
        self.listener.on_assignment(partitions, encode_assignment_info(AssignmentInfo(**info)), 1)

    def has(self, *partitions: TopicPartition, **info: Any) -> None:
        """Create a rebalance that has given the thread these partitions."""
        self.listener.subscription_user_data(frozenset(), "me", 1)
        self.assignment(*partitions, **info)
        self.listener.on_assigned(partitions)
        self.thread.calls.clear()

    @property
    def completed(self) -> tuple[Tasks | None, Exception | None]:
        return next(call[1:] for call in reversed(self.thread.calls) if call[0] == "assign")  # type: ignore[return-value]  # of that shape


@pytest.fixture
def seam() -> Seam:
    return Seam()


def test_round_asks_the_thread_in_order_and_forbids_commits_until_its_end(seam: Seam) -> None:
    rebalance, transport = seam.listener, seam.transport
    assert not transport.rebalancing
    seam.has(IN0, IN1)
    sent = decode_subscription_info(rebalance.subscription_user_data(frozenset({"in"}), "me", 1))
    assert sent.task_offset_sums == {A: 7}
    assert transport.rebalancing
    assert rebalance.on_revoked((IN1,)) == {IN1: OffsetAndMetadata(3)}
    rebalance.on_revoked_committed(None)
    seam.assignment(IN0)
    assert transport.rebalancing
    rebalance.on_assigned((IN0,))
    assert not transport.rebalancing
    assert seam.thread.calls == [
        ("sums",),
        ("revoke", (B,)),
        ("revoked", None),
        ("assign", Tasks({A: frozenset({IN0})}, {}), None),
    ]


def test_assignment_is_carried_out_only_at_the_end_of_the_rebalance(seam: Seam) -> None:
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    seam.assignment(IN0)
    assert [call[0] for call in seam.thread.calls] == ["sums"]


def test_tasks_are_kept_and_the_thread_fails_when_the_assignment_cannot_be_read(seam: Seam) -> None:
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    seam.listener.on_assignment((IN0,), b"garbage", 1)
    seam.listener.on_assigned((IN0,))
    tasks, failure = seam.completed
    assert tasks is None
    assert isinstance(failure, TaskAssignmentError)


@pytest.mark.parametrize(("code", "kind"), [(1, MissingSourceTopicError), (3, TaskAssignmentError)])
def test_error_code_reaches_the_thread_explained(seam: Seam, code: int, kind: type[StreamsError]) -> None:
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    seam.assignment(error_code=code)
    seam.listener.on_assigned(())
    tasks, failure = seam.completed
    assert tasks is None
    assert [failure] == seam.explained
    assert isinstance(failure, kind)
    assert not seam.transport.rebalancing


def test_unknown_error_code_leaves_the_rebalance_open(seam: Seam) -> None:
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    seam.assignment(error_code=99)
    seam.listener.on_assigned(())
    assert seam.completed[1] is not None
    assert seam.transport.rebalancing


def test_application_stops_after_the_rebalance(seam: Seam) -> None:
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    seam.assignment(error_code=4)
    seam.listener.on_assigned(())
    assert [call[0] for call in seam.thread.calls] == ["sums", "assign", "stop"]


def test_shutdown_of_the_application_is_carried_in_the_next_subscription(seam: Seam) -> None:
    seam.transport.request_shutdown()
    seam.transport.turn()
    assert seam.membership.reasons == ["the application is shutting down"]
    assert decode_subscription_info(seam.listener.subscription_user_data(frozenset(), "me", 1)).error_code == 4


@pytest.mark.parametrize(("due_ms", "asks"), [(0, 1), (4_999, 1), (5_000, 0), (5_001, 0), (NO_FOLLOW_UP, 0)])
def test_follow_up_is_asked_for_once_when_its_time_has_passed(seam: Seam, due_ms: int, asks: int) -> None:
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    seam.assignment(IN0, next_rebalance_ms=due_ms)
    seam.transport.turn()
    assert seam.membership.reasons == []  # not before the end of this one
    seam.listener.on_assigned((IN0,))
    for _ in range(3):
        seam.transport.turn()
    assert len(seam.membership.reasons) == asks


@pytest.mark.parametrize("setting", [True, False])
def test_member_rejoins_when_its_warm_up_has_caught_up_and_the_setting_allows_it(setting: bool) -> None:
    seam = Seam(asks_when_caught_up=setting)
    seam.has(IN0, standby_tasks={B: (IN1,)})

    def measured(position: int) -> list[str]:
        seam.thread.standbys = {B: Progress(position, 100_000)}
        seam.transport.turn()
        return seam.membership.reasons

    assert measured(10_000) == []
    assert measured(90_000) == (["follow-up rebalance: caught up with the changelogs of 0_1"] if setting else [])


def test_nobody_asks_for_warm_ups_during_a_rebalance(seam: Seam) -> None:
    seam.has(IN0, standby_tasks={B: (IN1,)})
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    seam.thread.standbys = {B: Progress(100_000, 100_000)}
    seam.transport.turn()
    assert seam.membership.reasons == []


def test_lost_partitions_end_nothing_but_the_tasks(seam: Seam) -> None:
    seam.has(IN0, IN1)
    seam.listener.on_lost((IN0, IN1))
    assert seam.thread.calls == [("lose", (A, B))]


def test_tasks_end_as_the_member_says_and_others_are_left_alone(seam: Seam) -> None:
    both = {"active_tasks": (A, A)}
    seam.has(IN0, IN1, **both)
    seam.listener.on_revoked((IN1,))
    assert seam.thread.calls == [("revoke", ())]
    seam.listener.on_revoked((IN0, IN1))
    assert seam.thread.calls[1:] == [("revoke", (A,))]


def test_leader_forgets_an_old_failure_when_a_new_round_begins(seam: Seam) -> None:
    seam.leader_executor.outcome.failure = StreamsError("of the last rebalance")
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    assert seam.leader_executor.outcome.failure is None


def test_hosts_are_those_of_the_last_usable_assignment(seam: Seam) -> None:
    host = HostInfo("localhost", 80)
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    seam.assignment(IN0, partitions_by_host={host: {IN0}})
    assert seam.thread.shown.active == {host: {IN0}}
    seam.assignment(error_code=1)
    assert seam.thread.shown.active == {host: {IN0}}


def test_callbacks_return_immediately_when_the_thread_is_ending() -> None:
    seam = Seam(Inbox[TaskListener]())  # which is not read
    with seam.transport.ending():
        pass
    assert decode_subscription_info(seam.listener.subscription_user_data(frozenset(), "me", 1)).task_offset_sums == {}
    assert seam.listener.on_revoked((IN0,)) == {}
    seam.listener.on_revoked_committed(None)
    seam.listener.on_lost((IN0,))
    seam.assignment(IN0)
    seam.listener.on_assigned((IN0,))
    assert seam.thread.calls == []


def test_member_gives_up_what_it_owns_but_does_not_join_again_while_its_thread_commits_for_the_last_time() -> None:
    """Otherwise other members would get the revoked partitions, and the commit would still be accepted."""
    seam = Seam(Inbox[TaskListener]())
    with seam.transport.ending():
        assert seam.listener.on_revoked((IN0,)) == {}
        with pytest.raises(BrokerUnavailableError, match="last commit is still in progress"):
            seam.listener.subscription_user_data(frozenset(), "me", 1)
    assert seam.listener.subscription_user_data(frozenset(), "me", 1)


def test_thread_does_not_end_while_task_directories_are_locked_in_its_name(seam: Seam) -> None:
    """Directories that are locked after its end would never be released."""
    happened: list[str] = []

    def end() -> None:
        with seam.transport.ending():
            happened.append("ends")

    ending = threading.Thread(target=end)

    def offset_sums() -> Mapping[TaskId, int]:
        ending.start()
        ending.join(0.1)
        happened.append("locked")
        return {}

    seam.thread.offset_sums = offset_sums  # type: ignore[method-assign]
    seam.listener.subscription_user_data(frozenset(), "me", 1)
    ending.join()
    assert happened == ["locked", "ends"]


def test_callbacks_return_when_the_inbox_was_closed_under_them() -> None:
    inbox = Inbox[TaskListener]()
    seam = Seam(inbox)
    inbox.close()
    assert seam.listener.on_revoked((IN0,)) == {}


def test_thread_that_does_not_answer_in_time_gives_its_tasks_up() -> None:
    seam = Seam(Inbox[TaskListener]())
    with pytest.raises(TaskMigratedError, match=r"did not answer within 1 ms.*max\.poll\.interval\.ms"):
        seam.listener.on_revoked((IN0,))
    assert len(seam.thread.halted) == 1


def test_log_says_what_each_rebalance_gave_and_took(seam: Seam, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def lines() -> list[str]:
        logged = [record.message for record in caplog.records if "rebalance of" in record.message]
        caplog.clear()
        return logged

    def round_with(*partitions: TopicPartition, **info: Any) -> None:
        seam.listener.subscription_user_data(frozenset({"in"}), "me", 1)
        seam.clock.advance(1_500)
        seam.assignment(*partitions, **info)
        seam.listener.on_assigned(partitions)

    round_with(IN0)
    assert lines() == ["thread-1: rebalance of 1.5 s: gained 0_0; lost none; kept none; standbys none"]
    round_with(IN0, IN1)
    assert lines() == ["thread-1: rebalance of 1.5 s: gained 0_1; lost none; kept 0_0; standbys none"]
    round_with(IN1, standby_tasks={TaskId(0, 0): (IN0,)})
    assert lines() == ["thread-1: rebalance of 1.5 s: gained none; lost 0_0; kept 0_1; standbys 0_0"]
    seam.listener.on_lost((IN1,))
    assert "dropped active tasks 0_1 without committing; joining again" in caplog.text
    round_with(IN1)
    assert lines() == ["thread-1: rebalance of 1.5 s: gained 0_1; lost none; kept none; standbys none"]
    seam.listener.on_lost((IN1,))
    round_with()
    assert lines() == ["thread-1: rebalance of 1.5 s: gained none; lost 0_1; kept none; standbys none"]
    round_with()
    assert lines() == ["thread-1: rebalance of 1.5 s: gained none; lost none; kept none; standbys none"]


def test_member_is_on_record_before_its_join_is_prepared_and_its_predecessor_goes_while_it_waits(seam: Seam) -> None:
    report = seam.thread.offset_sums
    seam.thread.offset_sums = lambda: seam.recorded.append(("offset_sums",)) or report()  # type: ignore[func-returns-value, method-assign]
    seam.listener.subscription_user_data(frozenset(), "", -1)
    seam.listener.subscription_user_data(frozenset(), "me", 3)
    seam.listener.on_join_waits(2.5)
    joins = [("joining", 7, "", -1), ("offset_sums",), ("joining", 7, "me", 3), ("offset_sums",)]
    assert seam.recorded == [*joins, ("waits", 2.5)]
