"""The leader's part of a stream thread: carries out what the sans-IO leader asks for, inside the client's assign call.

The leader decides; this module only talks to the cluster and runs the application's own assignor, under a time limit.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar, assert_never

from streams_protocol.types import TopicPartition
from streams_py.errors import AssignorError, BrokerUnavailableError, IllegalStateError, StreamsError
from streams_py.events.observers import RoundObserver
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
from streams_py.leader.explanations import Explanations
from streams_py.leader.leader import GroupLeader
from streams_py.ports import (
    Admin,
    AdminError,
    AdminErrorKind,
    Clock,
    MemberAssignment,
    MemberSubscription,
    PartitionInfo,
)
from streams_py.runtime.threads.assignor_runner import AssignorRunner
from streams_py.topology.metadata import TopologyMetadata
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
        request_timeout_ms: int = 60_000,
        on_error: Callable[[StreamsError], None],
        watch: RoundObserver,
    ) -> None:
        self._leader = leader
        self._topology = topology
        self._admin = admin
        self._clock = clock
        self._application_id = application_id
        self._topic_settings = topic_settings
        self._runner = AssignorRunner(timeout_ms=assignor_timeout_ms)
        self._request_timeout_ms = request_timeout_ms
        self._on_error = on_error
        self._watch = watch
        self.failure: StreamsError | None = None
        """Why the group could not be assigned in this rebalance, if this thread leads it. The protocol tells the
        members only a code."""

    @property
    def explanations(self) -> Explanations:
        """Why tasks are where this thread, as leader, has put them."""
        return self._leader.explanations

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """An assignment for every member. Raises what left the assign step; BrokerUnavailableError means: try again."""
        self._watch.began(members)
        try:
            outcome = self._run(members)
        except BaseException as error:
            self._watch.ended(error, self._runner.assignor)
            raise
        self._watch.ended(outcome, self._runner.assignor)
        if isinstance(outcome, FailAssign):
            raise outcome.error
        self.failure = outcome.error
        if outcome.error is not None:
            _log.error("the group cannot be assigned, every member is told so: %s", outcome.error)
        return outcome.assignments

    def _run(self, members: Mapping[str, MemberSubscription]) -> PublishAssignments | FailAssign:
        named = self._metadata(())
        subscribed = named.source_topics.union(*(member.topics for member in members.values()))
        topics = self._existing(subscribed)
        request = AssignRequested(self._clock.now_ms(), members, topics, self._metadata(topics), named.source_topics)
        return run_assign(self._leader, request, self._perform)

    def _metadata(self, available_topics: Collection[str]) -> TopologyMetadata:
        return self._topology.metadata(
            self._application_id, self._topic_settings, available_topics=sorted(available_topics)
        )

    def _existing(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...]]:
        """The topics that exist. BrokerUnavailableError when that is not known of one of them: absent topics end
        groups."""
        topics: dict[str, tuple[PartitionInfo, ...]] = {}
        for _ in range(2):  # a broker that has just started may not know a topic yet: absence takes two answers
            absent = sorted(set(names) - topics.keys())
            if not absent:
                break
            described = self._in_time(partial(self._admin.describe_topics, absent))
            for name, found in described.items():
                if not isinstance(found, AdminError):
                    topics |= {name: found} if found else {}
                elif found.kind in (AdminErrorKind.TIMED_OUT, AdminErrorKind.LEADER_NOT_AVAILABLE):
                    raise BrokerUnavailableError(f"topic {name} cannot be described now: {found.message}")
        return {name: topics[name] for name in sorted(topics)}

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
            case PublishAssignments() | FailAssign():
                raise IllegalStateError("an assign step ends with these; nobody carries them out")
            case _:
                assert_never(effect)
        return None

    # -- cluster ---------------------------------------------------------------------------------------------

    def _describe(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        return self._each(names, lambda: self._admin.describe_topics(names))

    def _each(self, names: Collection[str], request: Callable[[], Mapping[str, T]]) -> Mapping[str, T | AdminError]:
        """The answer to a request; when it failed as a whole, that failure for each name."""
        try:
            return dict(self._in_time(request))
        except BrokerUnavailableError as error:
            return dict.fromkeys(names, AdminError(AdminErrorKind.TIMED_OUT, str(error)))

    def _list_end_offsets(self, partitions: Collection[TopicPartition]) -> Event:
        try:
            offsets = self._in_time(lambda: self._admin.list_offsets(partitions)) if partitions else {}
        except BrokerUnavailableError as error:
            return EndOffsetsListed(self._clock.now_ms(), error=AdminError(AdminErrorKind.TIMED_OUT, str(error)))
        return EndOffsetsListed(self._clock.now_ms(), offsets)

    def _fetch_committed(self, partitions: Collection[TopicPartition]) -> Event:
        try:
            group = self._application_id
            offsets = self._in_time(lambda: self._admin.committed_offsets(group, partitions)) if partitions else {}
        except BrokerUnavailableError as error:
            return CommittedOffsetsFetched(self._clock.now_ms(), error=AdminError(AdminErrorKind.TIMED_OUT, str(error)))
        return CommittedOffsetsFetched(self._clock.now_ms(), offsets)

    def _in_time(self, request: Callable[[], T]) -> T:
        """The answer to a request, or BrokerUnavailableError when it takes too long: the broker gives up on a leader
        that has not assigned within max.poll.interval.ms, and the next one would be as slow. The request is left
        behind on its thread; whatever it waits for has a time-out of its own."""
        answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put((request(), None))
            except Exception as error:
                answers.put((None, error))

        threading.Thread(target=ask, name="leader-request", daemon=True).start()
        try:
            answer, error = answers.get(timeout=self._request_timeout_ms / 1000)
        except queue.Empty:
            raise BrokerUnavailableError(
                f"the cluster did not answer the group's leader within {self._request_timeout_ms} ms"
            ) from None
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]  # None is an answer too

    # -- the application's assignor ----------------------------------------------------------------------------

    def _run_assignor(self, effect: RunAssignor) -> Event:
        try:
            state = effect.application_state(self._describe)
            assignment = self._runner.ask(effect.assignor, effect.configs, state)
        except StreamsError as error:
            return AssignorFailed(self._clock.now_ms(), error)
        return AssignorReturned(self._clock.now_ms(), assignment)

    def _notify(self, effect: NotifyAssignor) -> None:
        try:
            self._runner.notify(effect)
        except AssignorError as error:
            self._report(error)

    def _report(self, error: StreamsError) -> None:
        _log.error("%s", error, exc_info=error.__cause__)
        self._on_error(error)
