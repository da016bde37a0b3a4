"""A member of a Streams group, based on kafka-python's consumer coordinator.

kafka-python 3.0.12 supports a custom assignor with binary user data, which librdkafka does not. But its coordinator
behaves in four ways that do not suit a Streams member. This subclass replaces them, with :mod:`.group_requests` and
:mod:`.subscribed_topics` as its parts. It uses private methods, so it works with the tested versions only (pinned in
pyproject.toml). Tests verify each fact that it relies on.

1. *The result of a finished join is kept.* In kafka-python, JoinGroup and SyncGroup run in the background, and a later
   poll uses the result only if there is still a reason to rejoin. If the attempt has finished by then, that poll sends
   a new JoinGroup. If the reason has gone (a new leader's first metadata arrived), the result is never used: the member
   stays in "rebalancing" indefinitely, without heartbeats and without an error. Here, the result of an attempt is
   stored with its generation. A new attempt returns it while that generation is current. After a rejoin has started,
   ``need_rejoin`` is true until the rejoin is completed.
2. *Callbacks are called in Kafka's order* (KIP-429; Java's ``ConsumerCoordinator.onJoinComplete``): first revoked and
   committed, then the assignment, then the new ownership, then assigned, even if no partition was added. After a lost
   generation, ``lost`` is called and never ``revoked``, also in the middle of a rejoin.
3. *The network thread never blocks.* The polling thread computes user data and the leader's assignment, and makes the
   callbacks (:mod:`streams_py.adapters.kafka_python.callbacks`). The leader sends heartbeats while it assigns, because
   creating topics may take longer than a session.
4. *A leader compares metadata with the metadata used for its assignment.* A topic that the assignment has created does
   not count as a change. Otherwise, a second rebalance would follow every first one. A returning static leader also
   resumes this check (KIP-814: JoinGroup version 9).

Threads: methods run on the network thread unless their docstring says otherwise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer import UNKNOWN_MEMBER_ID, JoinGroupRequest, SyncGroupRequest
from kafka.structs import MemberState
from kafka.structs import TopicPartition as KafkaPartition
from kafka.util import Timer

from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.callbacks import CallbackInbox
from streams_py.adapters.kafka_python.classic.group_requests import GroupRequests
from streams_py.adapters.kafka_python.classic.heartbeats import AFTER_DEATH_S, Heartbeats
from streams_py.adapters.kafka_python.classic.metadata_watch import MetadataSnapshot
from streams_py.adapters.kafka_python.classic.options import MemberOptions
from streams_py.adapters.kafka_python.classic.payloads import (
    assignments_to_send,
    read_assignment,
    readable_members,
    subscription_to_send,
)
from streams_py.adapters.kafka_python.classic.session_doubt import SessionDoubt
from streams_py.adapters.kafka_python.classic.subscribed_topics import SubscribedTopics
from streams_py.adapters.kafka_python.failures import is_retriable, translated
from streams_py.adapters.kafka_python.leaving import Leaving
from streams_py.adapters.kafka_python.offsets import (
    answered_offsets,
    check_all_committed,
    check_topics_allowed,
    commit_owned,
    fetch_committed,
    send_offset_fetch,
    unstable_partitions,
)
from streams_py.adapters.kafka_python.session import Session
from streams_py.adapters.kafka_python.stored_group import GroupNotStoredError, StoredGroup
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskAssignmentError, TaskMigratedError
from streams_py.ports import CommittedOffsets, GroupMetadata, MembershipListener, OffsetAndMetadata

_log = logging.getLogger(__name__)

PROTOCOL_NAME: Final = "stream"
"""Name of the group protocol of every Kafka Streams member."""

_JOIN_VERSION_MAX, _SYNC_VERSION_MAX = 9, 5
_REASON_CHARS_MAX = 255
_FRESH_METADATA_MS = 5_000
_WATCH_INTERVAL_MS_MAX = 1_000
_TO_BE_JOINED_AGAIN = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.MemberIdRequiredError,
)


@dataclass(frozen=True, slots=True, eq=False)
class _FinishedJoin:
    generation: Any
    assignment: bytes


class StreamsCoordinator(Leaving, ConsumerCoordinator):  # type: ignore[misc]  # kafka-python has no type information
    """kafka-python's coordinator with the changes for a Streams member; see the module's docstring."""

    _metadata_snapshot: MetadataSnapshot
    _assignment_snapshot: MetadataSnapshot | None

    def __init__(
        self,
        client: Any,
        subscription: Any,
        listener: MembershipListener,
        inbox: CallbackInbox,
        options: MemberOptions,
        **settings: Any,
    ) -> None:
        self._listener = listener
        self._inbox = inbox
        self._options = options
        self.failure: BaseException | None = None
        """The error that has ended this membership; read by the polling thread."""
        self.owned: frozenset[TopicPartition] = frozenset()
        """The partitions that this member owns. kafka-python's own record of them is not used."""
        self.unstable: list[TopicPartition] = []  # in the last response about committed offsets
        self._joined: GroupMetadata | None = None
        self._joined_at = -float("inf")
        self._finished_join: _FinishedJoin | None = None
        self._rejoin_reason: str | None = None
        self._completing = False
        # Brokers build a member id from the client id and a random part. The mock cluster uses an address, which it may
        # reuse for another member.
        self._own_prefix = f"{client._manager.config['client_id']}-"
        self._topics = SubscribedTopics(client._manager.cluster, subscription, with_racks=bool(options.rack))
        super().__init__(client, subscription, **settings)
        self.heartbeat = Heartbeats(**self.config)
        self._session = Session(self.config["session_timeout_ms"])
        self._doubt = SessionDoubt(self._session, listener)
        self._requests = GroupRequests(self, self._doubt)
        self._stored_group = StoredGroup(self.group_id, self.config["retry_backoff_ms"])

    # -- for other threads -----------------------------------------------------------------------------------------

    def membership(self) -> GroupMetadata | None:
        """Return the group metadata of the last completed join; None if not a member or heartbeats are unanswered."""
        joined = self._joined
        if joined is None or self.heartbeats_are_silent():
            return None
        return joined

    def is_member(self) -> bool:
        """Whether the group certainly still has this member, by this process's clock."""
        return self._joined is not None and not self._session.has_expired()

    def forming(self) -> GroupMetadata | None:
        """Return the group metadata of the last JoinGroup response, also before that join is complete."""
        generation = self._generation
        if generation.is_lost():
            return None
        return GroupMetadata(self.group_id, generation.generation_id, generation.member_id, self.group_instance_id)

    def heartbeats_are_silent(self) -> bool:
        """Whether a stable member's last answered heartbeat is older than a session, or heartbeats are disabled."""
        with self._lock:
            if self.state is not MemberState.STABLE or self.rejoining:
                return False  # no heartbeats while joining: JoinGroup itself keeps the member alive
            answered = max(self.heartbeat.last_receive, self._joined_at)
            silent_s = time.monotonic() - answered
            return not self._heartbeat_enabled or silent_s > self.config["session_timeout_ms"] / 1000

    def fail(self, error: BaseException) -> None:
        """End this membership: the polling thread stops, and later calls raise ``error``."""
        if self.failure is None:
            self.failure = error
        self._inbox.wake()

    # -- doubts ------------------------------------------------------------------------------------------------------

    def watch_session(self) -> None:
        """Report to the listener if the group may have removed this member. Repeats itself at an interval.

        A process that was frozen continues with the record that it was processing. This timer is then overdue, so it is
        one of the first functions to run. So the listener learns of the doubt before any network response.
        """
        if self.is_closing:
            return
        self._note_doubt()
        self._net.call_later(min(_WATCH_INTERVAL_MS_MAX, self._session.check_interval_ms) / 1000, self.watch_session)

    def _note_doubt(self) -> None:
        if self.owned and not (self.is_closing or self.is_member()):
            self._doubt.report()

    # -- topics ------------------------------------------------------------------------------------------------------

    def set_subscription(self, topics: Collection[str], pattern: str | None) -> None:
        """Replace the subscription; a change causes a rejoin. ``pattern`` must match the whole name of a topic."""
        if self._topics.subscribe(topics, pattern):
            self._inbox.wake()

    def _handle_metadata_update(self, cluster: Any) -> None:
        if cluster.unauthorized_topics:
            self.fail(kafka_errors.TopicAuthorizationFailedError(sorted(cluster.unauthorized_topics)))
        if not self._subscription.partitions_auto_assigned():
            return
        self._metadata_snapshot = self._topics.update(
            cluster, self._metadata_snapshot, exclude_internal=self.config["exclude_internal_topics"]
        )
        if self.need_rejoin():
            self._inbox.wake()

    def _build_metadata_snapshot(self, subscription: Any, cluster: Any) -> MetadataSnapshot:
        return self._topics.snapshot(cluster)

    async def _refresh_metadata(self, timeout_ms: int) -> None:
        await self._topics.refresh(self._manager, timeout_ms)

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def expect_rebalance(self) -> None:
        """Send heartbeats more often for some seconds."""
        self.heartbeat.expect_rebalance(AFTER_DEATH_S)
        self._heartbeat_wakeup.notify()

    def _handle_heartbeat_response(self, response: Any, send_time: float) -> Any:
        try:
            super()._handle_heartbeat_response(response, send_time)
            self._doubt.confirm(send_time)
        except kafka_errors.RebalanceInProgressError:  # sent to members only
            self._doubt.confirm(send_time)
            raise
        except (kafka_errors.FencedInstanceIdError, kafka_errors.AuthorizationError) as error:
            # kafka-python only stops its heartbeats, or repeats them indefinitely. Its polls never raise this error.
            self.fail(error)
            raise

    def other_connection(self) -> Any:
        """Return a node id for requests that JoinGroup does not delay (:meth:`GroupRequests.other_connection`)."""
        return self._requests.other_connection()

    # -- polling ---------------------------------------------------------------------------------------------------

    async def poll_async(self, timeout_ms: int) -> bool:
        """Find the coordinator, and (re)join the group if needed. False when not done within ``timeout_ms``.

        An unfinished join continues in the background. A later poll takes its result.
        """
        if self.failure is not None:
            raise self.failure
        timer = Timer(timeout_ms)
        if not await self.ensure_coordinator_ready_async(timeout_ms=timer.timeout_ms):
            return False
        while self.need_rejoin():  # a revocation immediately causes another rebalance
            if self._subscription.subscribed_pattern and not self.rejoining:
                await self._refresh_metadata(timer.timeout_ms)
            if not await self.ensure_active_group_async(timeout_ms=timer.timeout_ms):
                return False
        return True

    def need_rejoin(self) -> bool:
        if not self._subscription.partitions_auto_assigned():
            return False
        return bool(self.rejoining or self._rejoin_reason is not None or super().need_rejoin())

    def request_rejoin_because(self, reason: str) -> None:
        """Request a rebalance. If a JoinGroup is in flight, another one follows it."""
        self._rejoin_reason = reason[:_REASON_CHARS_MAX]
        self._inbox.wake()

    def request_rejoin(self) -> None:
        super().request_rejoin()
        self._inbox.wake()

    # -- joining -----------------------------------------------------------------------------------------------------

    def _validate_rebalance_protocol(self) -> Any:
        # The base class would use its assignors. In a Streams group, the listener is the only assignor.
        self._assignors: dict[str, Any] = {}
        return RebalanceProtocol.COOPERATIVE if self._options.cooperative else RebalanceProtocol.EAGER

    def reset_generation(self, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        generation = self._generation
        former, was_member = generation.member_id, not generation.is_lost()
        super().reset_generation(member_id)
        if self.group_instance_id is None and former != member_id and former.startswith(self._own_prefix):
            self._requests.former_ids.add(former, was_member=was_member)
        self._joined = None
        if was_member:
            # Prepare again, also in the middle of a rejoin, so that owned partitions are reported as lost.
            self.rejoining = False
            self._finished_join = None
            self._note_doubt()
        self._inbox.wake()

    async def _on_join_prepare_async(self, generation: int, member_id: str, timeout_ms: int | None = None) -> None:
        """Prepare a rejoin. Runs once per rebalance, and again only after the generation was lost (KIP-429)."""
        owned = self.owned
        if self._generation.is_lost():
            self.owned = frozenset()
            if owned:
                await self._inbox.call(self._listener.on_lost, tuple(sorted(owned)))
        elif not self._options.cooperative:
            await self._revoke(owned)
            self.owned = frozenset()
        else:
            subscribed = self._subscription.subscription or ()
            gone = frozenset(partition for partition in owned if partition.topic not in subscribed)
            if gone:
                await self._revoke(gone)
                self.owned = owned - gone
        self._is_leader = False
        self._subscription.reset_group_subscription()

    async def _do_join_and_sync_async(self) -> bytes:
        """Return the stored result of a finished attempt if it is still valid; otherwise make one attempt."""
        finished, self._finished_join = self._finished_join, None
        if finished is None or finished.generation is not self._generation:
            try:
                assignment = await self._attempt_join()
            except Exception as raised:
                error = self._stored_group.judge(raised)
                self._judge(error)
                await self._pause_after(error)
                if error is raised:
                    raise
                raise error from raised
            self._requests.joined()
            self._stored_group.joined()
            finished = _FinishedJoin(self._generation, assignment)
        self._finished_join = finished
        return finished.assignment

    def _judge(self, error: Exception) -> None:
        """Handle the error of an attempt. A final error ends the membership, even if no caller awaits the attempt."""
        if is_retriable(error) and not isinstance(error, kafka_errors.KafkaError):
            # BrokerUnavailableError from the listener: the group itself has no problem, so back off and rejoin.
            _log.warning("no assignment in this rebalance; rejoining: %s", error)
            raise kafka_errors.RequestTimedOutError(str(error)) from error
        if isinstance(error, kafka_errors.InvalidRequestError) and self._options.rules.leader_answer_delay_ms > 0:
            raise kafka_errors.RebalanceInProgressError("the mock cluster refused a late follower") from error
        if not (is_retriable(error) or isinstance(error, (*_TO_BE_JOINED_AGAIN, TaskMigratedError))):
            self.fail(error)

    async def _pause_after(self, error: Exception) -> None:
        if isinstance(error, GroupNotStoredError):
            await self._net.sleep(self._stored_group.pause_s())
        else:
            await self._requests.pause_after(error)

    async def _attempt_join(self) -> bytes:
        reason, self._rejoin_reason = self._rejoin_reason, None
        self._joined_subscription = set(self._subscription.subscription)
        metadata = await self._subscription_bytes(frozenset(self._joined_subscription))
        self._stored_group.joining(len(metadata))
        with self._lock:
            self.state = MemberState.REBALANCING
        _log.info("joining group %s%s", self.group_id, f": {reason}" if reason else "")
        sent_at = time.monotonic()
        response = await self._requests.send_and_stay(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=self.config["session_timeout_ms"],
                rebalance_timeout_ms=self.config["max_poll_interval_ms"],
                member_id=self._generation.member_id,
                group_instance_id=self.group_instance_id,
                protocol_type=self.protocol_type(),
                protocols=[(PROTOCOL_NAME, metadata)],
                reason=reason,
                max_version=_JOIN_VERSION_MAX,
            ),
            timeout_ms=self._requests.rebalance_timeout_ms(),
            # The response to a request without an id is only an id. The group does not have the member yet.
            on_wait=self._note_wait if self._generation.member_id or self.group_instance_id else None,
        )
        self._process_join_group_response(response, sent_at)
        generation = self._generation
        assignments: Mapping[str, bytes] = {}
        if response.leader != response.member_id:
            self._stored_group.follow(response.leader)
        else:
            self._stored_group.lead(response.members)
            self._requests.stale_members.note_members(response.members)
            leading = self._lead(response.members, keep=response.skip_assignment)
            assignments = await self._requests.with_heartbeats(leading, self._requests.heartbeat_once)
            if generation is not self._generation:
                raise kafka_errors.IllegalGenerationError("the generation ended while its leader was assigning")
        sent_at = time.monotonic()
        response = await self._requests.send_and_stay(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=generation.generation_id,
                member_id=generation.member_id,
                group_instance_id=self.group_instance_id,
                protocol_type=self.protocol_type(),
                protocol_name=generation.protocol,
                assignments=list(assignments.items()),
                max_version=_SYNC_VERSION_MAX,
            ),
            # The leader may take this long. A shorter timeout would make all members rejoin, indefinitely.
            timeout_ms=self._requests.rebalance_timeout_ms(),
        )
        assignment: bytes = self._process_sync_group_response(response, sent_at)
        self._doubt.confirm(sent_at)
        return assignment

    async def _note_wait(self, waited_s: float) -> None:
        await self._inbox.call(self._listener.on_join_waits, waited_s)

    async def _subscription_bytes(self, topics: frozenset[str]) -> bytes:
        member_id = self._generation.member_id
        generation = -1 if self._generation.is_lost() else self._generation.generation_id
        building = self._inbox.call(self._listener.subscription_user_data, topics, member_id, generation)
        user_data = await self._requests.with_heartbeats(building, lambda: self._requests.check_membership(member_id))
        if self.owned and self._generation.is_lost():
            # Building it may wait for a commit. Meanwhile the generation was lost, so `owned` is no longer valid.
            raise kafka_errors.UnknownMemberIdError("this member was removed while it built its subscription")
        return subscription_to_send(
            topics=topics,
            user_data=user_data,
            owned=self.owned,
            generation=self._generation.generation_id,
            rack=self._options.rack,
            check=self._options.check_subscription,
        )

    # -- leading -----------------------------------------------------------------------------------------------------

    async def _lead(self, members: Collection[Any], *, keep: bool) -> Mapping[str, bytes]:
        """Compute the assignment as leader, and return the bytes for each member.

        Raises the exceptions of the listener's ``assign``.

        ``keep``: the broker does not need a new assignment, because a static leader has returned (KIP-814). Then this
        member only resumes its check of the metadata.
        """
        since = time.monotonic()
        readable = readable_members((member.member_id, bytes(member.metadata)) for member in members)
        topics = {topic for subscription in readable.values() for topic in subscription.topics}
        if topics:
            self._subscription.group_subscribe(topics)
            self._cluster.set_topics(sorted(self._subscription.group_subscription()))
        await self._refresh_metadata(_FRESH_METADATA_MS)
        self._is_leader = True
        before = self._build_metadata_snapshot(self._subscription, self._cluster)
        if keep:
            self._metadata_snapshot = self._assignment_snapshot = before
            return {}
        assignments = await self._inbox.call(self._listener.assign, readable)
        if not all(before.values()):  # this assignment may have created the missing topics
            await self._refresh_metadata(_FRESH_METADATA_MS)
        after = self._build_metadata_snapshot(self._subscription, self._cluster)
        self._metadata_snapshot = after
        self._assignment_snapshot = {topic: before.get(topic) or partitions for topic, partitions in after.items()}
        wait_s = self._options.rules.leader_answer_delay_ms / 1000 - (time.monotonic() - since)
        if wait_s > 0:
            await self._net.sleep(wait_s)
        return assignments_to_send(
            assignments, [member.member_id for member in members], self._options.check_assignment
        )

    async def maybe_leave_group_async(self, reason: str | None = None, timeout_ms: int | None = None) -> None:
        self._joined = None  # now, before the broker answers
        if self.owned and self.heartbeat.poll_timeout_expired():
            self._listener.on_stuck()
        await super().maybe_leave_group_async(reason, timeout_ms)

    def _enable_heartbeat(self) -> None:
        self._joined_at = time.monotonic()
        self.heartbeat.expect_rebalance()
        super()._enable_heartbeat()

    # -- joined ------------------------------------------------------------------------------------------------------

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        self._finished_join = None
        self._completing = True
        try:
            await self._complete_join(generation, member_id, bytes(member_assignment_bytes))
        finally:
            self._completing = False

    async def _complete_join(self, generation: int, member_id: str, assignment: bytes) -> None:
        if not self._is_leader:
            self._assignment_snapshot = None
        self._joined = GroupMetadata(self.group_id, generation, member_id, self.group_instance_id)
        received = read_assignment(assignment)
        assigned, owned = frozenset(received.partitions), self.owned
        if not self._topics.includes({partition.topic for partition in assigned}):
            if self._subscription.subscribed_pattern is None:  # newer metadata would not change this
                error = self._other_topology({partition.topic for partition in assigned})
                self.fail(error)
                raise error
            _log.warning("assigned %s, some of which are not in the subscription; rejoining", sorted(assigned))
            self.request_rejoin_because("assigned topics that are not in the subscription")
            return
        problems: list[Exception] = []
        revoked = owned - assigned if self._options.cooperative else frozenset()
        if revoked:
            await _collect(problems, self._revoke(revoked))
            self.request_rejoin_because(f"revoked {', '.join(map(str, sorted(revoked)))}")
        await _collect(
            problems,
            self._inbox.call(self._listener.on_assignment, tuple(sorted(assigned)), received.user_data, generation),
        )
        # Even if the generation was lost during the callback: the next join then reports these partitions as lost.
        self.owned = assigned
        await _collect(problems, self._inbox.call(self._listener.on_assigned, tuple(sorted(assigned - owned))))
        if problems:
            raise problems[0]

    def _other_topology(self, assigned: Collection[str]) -> TaskAssignmentError:
        subscribed = sorted(self._subscription.subscription)
        return TaskAssignmentError(
            f"two topologies run under application.id {self.group_id}: this member reads {', '.join(subscribed)}, but "
            f"the group's leader assigned {', '.join(sorted(assigned))} to it. Give one of the two applications "
            "another application.id, or run the same code in all instances"
        )

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Let the listener stop and flush these partitions, then commit the offsets that it returns.

        This completes before any other member can own the partitions.
        """
        offsets = await self._inbox.call(self._listener.on_revoked, tuple(sorted(partitions)))
        problem: Exception | None = None
        if offsets:
            try:
                await self._commit(offsets, self._options.revocation_commit_timeout_ms)
            except StreamsError as error:
                problem = error
        await self._inbox.call(self._listener.on_revoked_committed, problem)

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def commit_async(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commit offsets of owned partitions.

        During a join, the commit is refused immediately, because the join may be waiting for the caller. Until
        JoinGroup is sent, a cooperative member still belongs to its generation, so the broker accepts its commits.
        """
        joins = self.rejoining and (self.state is not MemberState.STABLE or not self._options.cooperative)
        if joins or self._completing or self.state is MemberState.REBALANCING:
            raise BrokerUnavailableError("commit: the group is rebalancing; try again after it")
        await self._commit(offsets, timeout_ms)

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        try:
            await commit_owned(self, self.owned, offsets, timeout_ms)
        except kafka_errors.FencedInstanceIdError as error:
            self.fail(error)
            raise translated(error, "commit", group=self.group_id) from error
        except kafka_errors.KafkaError as error:
            raise translated(error, "commit", group=self.group_id) from error

    async def committed_async(self, partitions: Collection[TopicPartition], timeout_ms: int) -> CommittedOffsets:
        """Fetch committed offsets; waits for offsets of open transactions (KIP-447).

        kafka-python keeps a request that was not answered in time, and returns its late response to the next call for
        the same partitions. Other members may have committed since. So each call here sends a separate request.
        """
        self._offset_fetch_futures.pop(frozenset(KafkaPartition(*partition) for partition in partitions), None)
        try:
            return await fetch_committed(self, partitions, timeout_ms)
        except kafka_errors.KafkaError as error:
            raise translated(error, "committed offsets", group=self.group_id) from error

    async def _send_offset_fetch_request(self, partitions: Collection[Any]) -> dict[Any, Any]:
        return await send_offset_fetch(self, partitions)

    def _handle_offset_fetch_response(self, response: Any) -> dict[Any, Any]:
        check_topics_allowed(response)
        self.unstable = unstable_partitions(response)
        return answered_offsets(response, super()._handle_offset_fetch_response(response))

    def _handle_offset_commit_response(self, offsets: Mapping[Any, Any], send_time: float, response: Any) -> None:
        super()._handle_offset_commit_response(offsets, send_time, response)
        check_all_committed(offsets, response)

    # -- leaving -----------------------------------------------------------------------------------------------------

    async def rejoin_as_new_member_async(self, member_id: str) -> None:
        """Give up the owned partitions and the member id, then rejoin. Does nothing if the id is no longer in use."""
        if self._generation.is_lost() or self._generation.member_id != member_id:
            return
        owned, self.owned = self.owned, frozenset()
        if owned:
            await self._inbox.call(self._listener.on_lost, tuple(sorted(owned)))
        await self.maybe_leave_group_async("tasks migrated", self.config["request_timeout_ms"])
        if self.group_instance_id is not None:  # without its member id, it would evict a member that has replaced it
            self.reset_generation(member_id)
        self.request_rejoin_because("joining as a new member")

    @property
    def member_id(self) -> str:
        member_id: str = self._generation.member_id
        return member_id


async def _collect(problems: list[Exception], step: Awaitable[object]) -> None:
    """Await a callback and store its exception. The caller raises it after all callbacks, as in Java."""
    try:
        await step
    except Exception as error:
        problems.append(error)
