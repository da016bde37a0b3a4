"""A model of the consumer's side of the group protocol, between a stream thread and the coordinator.

It models joining, syncing, heartbeats, lost memberships, and the callbacks of KIP-429 in their order. Eager members
revoke all partitions before they join. Cooperative members revoke only the partitions that a new assignment takes away,
after that assignment. Corresponds to Kafka's ``ConsumerCoordinator`` with a Streams assignor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from streams_protocol.consumer import Subscription, encode_subscription
from streams_py.adapters.kafka_python.classic.payloads import read_assignment
from streams_py.errors import StreamsError
from streams_py.member.group_model.ownership import Ownership, OwnershipListener, Partitions
from streams_py.testing.simulator.models.coordinator import GroupCoordinator, JoinReply, Reply, SyncReply

_RETRY_MS = 100  # retry.backoff.ms
_REQUEST_TIMEOUT_MS = 5_000


class Network(Protocol):
    """The connection of a client to the coordinator."""

    @property
    def coordinator(self) -> GroupCoordinator: ...
    def send(self, action: Callable[[], None]) -> None:
        """Send a request; ``action`` runs when it arrives."""

    @property
    def rejoin_delay_ms(self) -> int:
        """Delay until a client that wants to rejoin does so, in ms."""

    def loses_reply(self) -> bool:
        """Return whether the answer to the request that is being sent now is lost."""

    def heartbeat_delay_ms(self) -> int:
        """Return the time until the next heartbeat of a client, in ms."""


class ThreadSide(OwnershipListener, Protocol):
    """The stream thread that uses the consumer."""

    @property
    def responsive(self) -> bool: ...
    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run ``action`` after a delay, unless the thread is dead. A frozen thread runs it when it resumes."""

    def user_data(self) -> bytes: ...
    def lead(
        self,
        members: Mapping[str, bytes],
        done: Callable[[Mapping[str, bytes]], None],
        failed: Callable[[Exception], None],
    ) -> None: ...
    def fail(self, error: Exception) -> None: ...
    def joining(self, member_id: str, generation: int) -> None:
        """Put the member on record. Called before each JoinGroup request with a member id."""


class _Phase(Enum):
    IDLE = "no request pending"
    JOINING = "JoinGroup sent"
    LEADING = "computing the assignment"
    SYNCING = "SyncGroup sent"


class SimulatedConsumer:
    """One member of the group."""

    def __init__(
        self,
        network: Network,
        thread: ThreadSide,
        *,
        client_id: str,
        instance_id: str | None,
        cooperative: bool,
        rack: str | None,
        topics: frozenset[str],
        session_timeout_ms: int,
        max_poll_interval_ms: int,
    ) -> None:
        self._network = network
        self._thread = thread
        self._client_id = client_id
        self._instance_id = instance_id
        self._cooperative = cooperative
        self._rack = rack
        self._topics = topics
        self._session_timeout_ms = session_timeout_ms
        self._max_poll_interval_ms = max_poll_interval_ms
        self.member_id = ""
        self.generation = -1
        self._ownership = Ownership(thread)
        self._phase = _Phase.IDLE
        self._prepared = False
        self._wants_rejoin = True
        self._request = 0  # number of the request whose answer is awaited

    @property
    def owned(self) -> Partitions:
        """Partitions that it owns."""
        return self._ownership.owned

    @property
    def stable(self) -> bool:
        """Whether it is a member without a pending request."""
        return self._phase is _Phase.IDLE and self.generation >= 0

    # -- calls of the thread -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the group."""
        self._thread.later(0, self._poll)

    def request_rejoin(self) -> None:
        """Join again at the next poll."""
        self._wants_rejoin = True
        self._thread.later(self._network.rejoin_delay_ms, self._poll)

    def lose_membership(self, *, leave: bool) -> None:
        """Give up the membership because the poll interval expired. ``leave``: also send LeaveGroup."""
        if leave:
            self._network.coordinator.leave(self.member_id)
        self._reset(keep_id=False)

    def forget_generation(self) -> None:
        """Act as if a heartbeat had returned ILLEGAL_GENERATION."""
        if self.stable:
            self._reset(keep_id=True)

    def commit(self, partitions: Partitions) -> Reply:
        """Commit offsets of these partitions. During a rebalance the generation -1 is sent, which is rejected."""
        generation = self.generation if self._phase is _Phase.IDLE else -1
        return self._network.coordinator.commit(self.member_id, generation, partitions)

    # -- heartbeats ----------------------------------------------------------------------------------------------

    def told_to_rejoin(self) -> None:
        """Schedule the next heartbeat, because the coordinator prepares a rebalance."""
        self._thread.later(self._network.heartbeat_delay_ms(), self._heartbeat)

    def _heartbeat(self) -> None:
        if self._phase is not _Phase.IDLE or not self.member_id or self.generation < 0:
            return
        match self._network.coordinator.heartbeat(self.member_id, self.generation):
            case Reply.NONE:
                pass
            case Reply.REBALANCE_IN_PROGRESS:
                self._wants_rejoin = True
                self._poll()
            case error:
                self._handle_error(error)

    # -- joining ---------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        if self._phase is not _Phase.IDLE or not self._wants_rejoin:
            return
        if not self._prepared:
            is_member = self.generation >= 0 and bool(self.member_id)
            self._ownership.prepare_to_join(is_member=is_member, cooperative=self._cooperative)
            self._prepared = True
        self._send_join()

    def _send_join(self) -> None:
        self._phase = _Phase.JOINING
        self._wants_rejoin = False
        metadata = encode_subscription(
            Subscription(tuple(self._topics), self._thread.user_data(), tuple(self.owned), self.generation, self._rack)
        )
        if self.member_id:
            self._thread.joining(self.member_id, self.generation)
        number = self._next_request()
        reply = self._replies(number, self._on_join)
        self._network.send(
            lambda: self._network.coordinator.join(
                self,
                self._client_id,
                self.member_id,
                self._instance_id,
                metadata,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self._max_poll_interval_ms,
                reply=reply,
            )
        )

    @property
    def responsive(self) -> bool:
        """Whether it sends heartbeats."""
        return self._thread.responsive

    def _next_request(self) -> int:
        self._request += 1
        if self._network.loses_reply():
            number, self._request = self._request, self._request + 1
            lost = self._request
            self._thread.later(_REQUEST_TIMEOUT_MS, lambda: self._on_lost_reply(lost))
            return number  # the answer to this number is ignored
        return self._request

    def _on_lost_reply(self, number: int) -> None:
        if number == self._request and self._phase in (_Phase.JOINING, _Phase.SYNCING):
            self._retry()

    def _retry(self) -> None:
        self._phase = _Phase.IDLE
        self._wants_rejoin = True
        self._thread.later(_RETRY_MS, self._poll)

    def _replies(self, number: int, action: Callable[..., None]) -> Callable[[JoinReply | SyncReply], None]:
        def receive(reply: JoinReply | SyncReply) -> None:
            self._network.send(lambda: self._thread.later(0, lambda: self._receive(number, action, reply)))

        return receive

    def _receive(self, number: int, action: Callable[..., None], reply: JoinReply | SyncReply) -> None:
        if number == self._request:
            action(reply)

    def _on_join(self, reply: JoinReply) -> None:
        match reply.error:
            case Reply.NONE:
                self.member_id, self.generation = reply.member_id, reply.generation
                if reply.members and not reply.skip_assignment:
                    self._phase = _Phase.LEADING
                    number = self._request = self._request + 1
                    self._thread.lead(
                        dict(reply.members),
                        lambda assignments: self._on_led(number, assignments),
                        lambda error: self._on_lead_failed(number, error),
                    )
                else:
                    self._send_sync({})
            case Reply.MEMBER_ID_REQUIRED:
                self.member_id, self.generation = reply.member_id, -1
                self._send_join()
            case error:
                self._phase = _Phase.IDLE
                self._handle_error(error)

    def _on_led(self, number: int, assignments: Mapping[str, bytes]) -> None:
        if number == self._request and self._phase is _Phase.LEADING:
            self._send_sync(assignments)

    def _on_lead_failed(self, number: int, error: Exception) -> None:
        if number != self._request or self._phase is not _Phase.LEADING:
            return
        if isinstance(error, StreamsError) and error.retriable:
            self._retry()
        else:
            self._thread.fail(error)

    # -- syncing ---------------------------------------------------------------------------------------------------

    def _send_sync(self, assignments: Mapping[str, bytes]) -> None:
        self._phase = _Phase.SYNCING
        reply = self._replies(self._next_request(), self._on_sync)
        member_id, generation = self.member_id, self.generation
        self._network.send(lambda: self._network.coordinator.sync(member_id, generation, assignments, reply))

    def _on_sync(self, reply: SyncReply) -> None:
        self._phase = _Phase.IDLE
        match reply.error:
            case Reply.NONE:
                self._on_assignment(reply.assignment)
            case Reply.REBALANCE_IN_PROGRESS:
                self._wants_rejoin = True
                self._thread.later(1, self._poll)
            case error:
                self._handle_error(error)

    def _on_assignment(self, data: bytes) -> None:
        self._prepared = False
        try:
            sent = read_assignment(data)
        except StreamsError as error:
            self._thread.fail(error)
            return
        assigned = frozenset(sent.partitions)
        if not {tp.topic for tp in assigned} <= self._topics:
            self.request_rejoin()
            return
        if self._ownership.taken_away_by(assigned):
            self._wants_rejoin = True
        self._ownership.take(tuple(sent.partitions), sent.user_data)
        if self._wants_rejoin:
            self._thread.later(self._network.rejoin_delay_ms, self._poll)
        # Another rebalance may have started while the coordinator answered this one.
        self._thread.later(self._network.heartbeat_delay_ms(), self._heartbeat)

    # -- errors ------------------------------------------------------------------------------------------------------

    def _handle_error(self, error: Reply) -> None:
        match error:
            case Reply.UNKNOWN_MEMBER_ID:
                self._reset(keep_id=False)
            case Reply.ILLEGAL_GENERATION:
                self._reset(keep_id=True)
            case Reply.FENCED_INSTANCE_ID:
                self._thread.fail(StreamsError("another member has taken this one's group.instance.id"))
            case _:
                self._retry()

    def _reset(self, *, keep_id: bool) -> None:
        self.generation = -1
        if not keep_id:
            self.member_id = ""
        self._prepared = False
        self._request += 1
        self._phase = _Phase.IDLE
        self._wants_rejoin = True
        self._thread.later(_RETRY_MS, self._poll)
