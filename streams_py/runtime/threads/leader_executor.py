"""LeaderExecutor the group: carries out what the sans-IO leader asks for, inside the client's assign call.

The leader decides; this module only talks to the cluster and runs the application's own assignor, under a time limit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from streams_protocol.types import TopicPartition
from streams_py.assignment.api import TaskAssignor
from streams_py.assignment.assignors.registry import assignor_name, call_assignor, choose_assignor, new_task_assignor
from streams_py.errors import AssignorError, BrokerUnavailable, StreamsError, TaskAssignmentError
from streams_py.events.watch import AssignWatch
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import (
    CreateTopics,
    DescribeTopics,
    Effect,
    FailAssign,
    FetchCommittedOffsets,
    ListEndOffsets,
    Log,
    NotifyAssignor,
    PublishAssignments,
    ReportError,
    RunAssignor,
    Wait,
)
from streams_py.leader.events import (
    AssignorFailed,
    AssignorReturned,
    AssignRequested,
    CommittedOffsetsFetched,
    EndOffsetsListed,
    Event,
    TopicsCreated,
    TopicsDescribed,
    WaitEnded,
)
from streams_py.leader.leader import GroupLeader
from streams_py.leader.stories import Stories
from streams_py.ports import (
    Admin,
    AdminError,
    AdminErrorKind,
    Clock,
    MemberAssignment,
    MemberSubscription,
    PartitionInfo,
)
from streams_py.topology.topology import Topology

__all__ = ["LeaderExecutor"]

_log = logging.getLogger("streams_py.leader")

T = TypeVar("T")


class LeaderExecutor:
    """Runs the assign step of one stream thread whenever it is the group's leader."""

    def __init__(
        self,
        leader: GroupLeader,
        topology: Topology,
        admin: Admin,
        clock: Clock,
        *,
        application_id: str,
        topic_settings: Mapping[str, object],
        assignor_timeout_ms: int,
        on_error: Callable[[StreamsError], None],
        watch: AssignWatch | None = None,
    ) -> None:
        self._leader = leader
        self._topology = topology
        self._admin = admin
        self._clock = clock
        self._application_id = application_id
        self._topic_settings = topic_settings
        self._assignor_timeout_ms = assignor_timeout_ms
        self._on_error = on_error
        self._watch = watch
        self._assignor: TaskAssignor | None = None
        self._stuck: threading.Thread | None = None
        self.failure: StreamsError | None = None
        """Why the group could not be assigned in this rebalance, if this thread leads it. The protocol tells the
        members only a code."""

    @property
    def stories(self) -> Stories:
        """Why tasks are where this thread, as leader, has put them."""
        return self._leader.stories

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """An assignment for every member. Raises what left the assign step; BrokerUnavailable means: try again."""
        watch = self._watch
        if watch is not None:
            watch.began(members)
        try:
            outcome = self._run(members)
        except BaseException as error:
            if watch is not None:
                watch.ended(error, self._assignor)
            raise
        if watch is not None:
            watch.ended(outcome, self._assignor)
        if isinstance(outcome, FailAssign):
            raise outcome.error
        self.failure = outcome.error
        if outcome.error is not None:
            _log.error("the group cannot be assigned, every member is told so: %s", outcome.error)
        return outcome.assignments

    def _run(self, members: Mapping[str, MemberSubscription]) -> PublishAssignments | FailAssign:
        known = self._admin.describe_topics(None)
        topics = {name: found for name, found in known.items() if not isinstance(found, AdminError) and found}
        metadata = self._topology.metadata(self._application_id, self._topic_settings, available_topics=sorted(topics))
        subscribed = {topic for member in members.values() for topic in member.topics} | metadata.source_topics
        request = AssignRequested(
            self._clock.now_ms(), members, {name: topics[name] for name in subscribed & topics.keys()}, metadata
        )
        return run_assign(self._leader, request, self._perform)

    def _perform(self, effect: Effect) -> Event | None:
        """Carry out one effect; the event that answers it, if it has an answer."""
        match effect:
            case DescribeTopics(names):
                described = self._describe(names)
                return TopicsDescribed(self._clock.now_ms(), described)
            case CreateTopics(specs):
                for spec in specs:
                    _log.info("creating internal topic %s with %d partitions", spec.name, spec.partitions)
                created = self._each([spec.name for spec in specs], lambda: self._admin.create_topics(specs))
                return TopicsCreated(self._clock.now_ms(), created)
            case Wait(duration_ms):
                self._clock.sleep_ms(duration_ms)
                return WaitEnded(self._clock.now_ms())
            case ListEndOffsets(partitions):
                return self._list_end_offsets(partitions)
            case FetchCommittedOffsets(partitions):
                return self._fetch_committed(partitions)
            case RunAssignor():
                return self._run_assignor(effect)
            case NotifyAssignor():
                self._notify(effect)
            case ReportError(error):
                self._report(error)
            case Log(level, text):
                _log.log(level, "%s", text)
        return None

    # -- cluster ---------------------------------------------------------------------------------------------

    def _describe(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        return self._each(names, lambda: self._admin.describe_topics(names))

    def _each(self, names: Collection[str], request: Callable[[], Mapping[str, T]]) -> Mapping[str, T | AdminError]:
        """The answer to a request; when it failed as a whole, that failure for each name."""
        try:
            return dict(request())
        except BrokerUnavailable as error:
            return dict.fromkeys(names, AdminError(AdminErrorKind.TIMED_OUT, str(error)))

    def _list_end_offsets(self, partitions: Collection[TopicPartition]) -> Event:
        try:
            offsets = self._admin.list_offsets(partitions) if partitions else {}
        except BrokerUnavailable as error:
            return EndOffsetsListed(self._clock.now_ms(), error=AdminError(AdminErrorKind.TIMED_OUT, str(error)))
        return EndOffsetsListed(self._clock.now_ms(), offsets)

    def _fetch_committed(self, partitions: Collection[TopicPartition]) -> Event:
        try:
            offsets = self._admin.committed_offsets(self._application_id, partitions) if partitions else {}
        except BrokerUnavailable as error:
            return CommittedOffsetsFetched(self._clock.now_ms(), error=AdminError(AdminErrorKind.TIMED_OUT, str(error)))
        return CommittedOffsetsFetched(self._clock.now_ms(), offsets)

    # -- the application's assignor ----------------------------------------------------------------------------

    def _run_assignor(self, effect: RunAssignor) -> Event:
        try:
            assignor = choose_assignor(effect.assignor).task_assignor
            if assignor is None:
                raise AssignorError(f"{assignor_name(effect.assignor)} is no assignor of the application")
            self._assignor = new_task_assignor(assignor, effect.configs)
            state = effect.application_state(self._describe)
            assignment = call_assignor(self._assignor, state, run=self._in_time)
        except TaskAssignmentError as error:  # raised by the assignor itself: its words, and whose they are
            refusal = TaskAssignmentError(f"task assignor {assignor_name(effect.assignor)} refused: {error}")
            refusal.__cause__ = error
            return AssignorFailed(self._clock.now_ms(), refusal)
        except StreamsError as error:
            return AssignorFailed(self._clock.now_ms(), error)
        return AssignorReturned(self._clock.now_ms(), assignment)

    def _in_time(self, action: Callable[[], T]) -> T:
        """Run user code that may never return; TimeoutError when it has not in time.

        A thread cannot be stopped from outside, so one that overruns is left behind (it is a daemon) and its result,
        if it ever comes, is ignored. As long as it is there no other one is started: they would pile up.
        """
        if self._stuck is not None and self._stuck.is_alive():
            raise TimeoutError("an earlier call has not returned yet")
        call = _Call(action)
        worker = threading.Thread(target=call.run, name="task-assignor", daemon=True)
        worker.start()
        worker.join(self._assignor_timeout_ms / 1000)
        if worker.is_alive():
            self._stuck = worker
            raise TimeoutError(f"waited {self._assignor_timeout_ms} ms")
        return call.result()

    def _notify(self, effect: NotifyAssignor) -> None:
        assignor = self._assignor
        if assignor is None:
            return
        name = assignor_name(assignor)
        try:
            self._in_time(lambda: assignor.on_assignment_computed(effect.assignment, effect.subscription, effect.error))
        except Exception as error:
            self._report(AssignorError(f"task assignor {name} failed in on_assignment_computed: {error}"))

    def _report(self, error: StreamsError) -> None:
        _log.error("%s", error)
        self._on_error(error)


class _Call(Generic[T]):
    """Something to run on another thread, and what came of it."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._action = action
        self._returned: list[T] = []
        self._raised: BaseException | None = None

    def run(self) -> None:
        try:
            self._returned.append(self._action())
        except BaseException as error:
            self._raised = error

    def result(self) -> T:
        """What it returned, or what it raised, raised here; ``sys.exit`` in an assignor is only an error of it."""
        if isinstance(self._raised, Exception):
            raise self._raised
        if self._raised is not None:
            raise RuntimeError(f"{type(self._raised).__name__}: {self._raised}") from self._raised
        return self._returned[0]
