"""Requests of a member to its group's coordinator, and what their answers say about the session.

A broker keeps JoinGroup and SyncGroup until the whole group has come that far: they outlast ``request.timeout.ms``, and
the member stays one without heartbeats. A leader that still assigns has no request with the broker, nor has a member
whose JoinGroup waits for a commit: they heartbeat.
Whatever the broker answers as to a member confirms the session (:mod:`.session`). Who waits for long asks over another
connection whether it still is one.

A broker may also lose such a request, and then never answers: a coordinator of Kafka 4.3 that comes back may take joins
for a group that it is still loading (:mod:`.ghosts`). All members wait, until ``max.poll.interval.ms`` is over, and
nobody hears of it. A member that is gone holds the others up for a session; so a request that waits longer is given
up with its connection, and sent again: to a broker that has it, that is the same member once more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.future import Future
from kafka.protocol.consumer import UNKNOWN_MEMBER_ID, HeartbeatRequest

from streams_py.adapters.kafka_python.callbacks import CallbackInbox
from streams_py.adapters.kafka_python.classic.former_ids import FormerIds
from streams_py.adapters.kafka_python.classic.stale_members import Ghosts
from streams_py.adapters.kafka_python.leaving import Leaving
from streams_py.adapters.kafka_python.session import Session

__all__ = ["GroupRequests"]

_log = logging.getLogger(__name__)

_COORDINATOR_PREFIX: Final = "coordinator-"
_SESSIONS_MAX: Final = 1.5
_PAUSE_MS_MAX: Final = 1_000
_DOUBLINGS_MAX: Final = 10
_MEMBER: Final = (kafka_errors.NoError.errno, kafka_errors.RebalanceInProgressError.errno)
"""What the broker answers to heartbeats of members only."""


class GroupRequests(Leaving, ConsumerCoordinator):  # type: ignore[misc]  # kafka-python has no type information
    """kafka-python's coordinator with a Streams member's way of asking; on the network thread."""

    def __init__(self, client: Any, subscription: Any, inbox: CallbackInbox, **settings: Any) -> None:
        self._inbox = inbox
        self.failure: BaseException | None = None
        """What ended this membership for good; read by the polling thread."""
        self._waits_at: Any = None  # the node that JoinGroup or SyncGroup is under way to
        self._times_forgotten = 0  # in a row
        self._former_ids = FormerIds()
        self._ghosts = Ghosts()
        # Brokers call a member by its client id and something random; the mock cluster by an address, used again later.
        self._own_prefix = f"{client._manager.config['client_id']}-"
        super().__init__(client, subscription, **settings)
        self._session = Session(self.config["session_timeout_ms"])

    def fail(self, error: BaseException) -> None:
        """End this membership: the polling thread stops, and whoever asks is told."""
        if self.failure is None:
            self.failure = error
        self._inbox.wake()

    def _confirm(self, sent_at: float) -> None:
        """The broker has answered, as to a member, what was sent then."""
        self._session.confirm(sent_at)

    def reset_generation(self, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        generation = self._generation
        former = generation.member_id
        super().reset_generation(member_id)
        if self.group_instance_id is None and former != member_id and former.startswith(self._own_prefix):
            self._former_ids.add(former, was_member=not generation.is_lost())

    def other_connection(self) -> Any:
        """The group's coordinator under its broker's own id, which is another connection than JoinGroup's; while the
        metadata does not list that broker, the coordinator's connection, unless JoinGroup or SyncGroup is under way
        there: a request behind it would time out, and that ends the connection."""
        coordinator_id = self.coordinator()
        if coordinator_id is None:
            raise kafka_errors.CoordinatorNotAvailableError
        text = str(coordinator_id)
        if text.startswith(_COORDINATOR_PREFIX):
            broker = int(text.removeprefix(_COORDINATOR_PREFIX))
            if self._cluster.broker_metadata(broker) is not None:
                return broker
        if self._waits_at == coordinator_id:
            raise kafka_errors.CoordinatorNotAvailableError
        return coordinator_id

    async def _pause_after(self, error: Exception) -> None:
        """Before another join: a coordinator that forgets the id that it has just given is still loading. kafka-python
        asks again at once, and each time it gives another id, for which the group may wait."""
        if isinstance(error, kafka_errors.UnknownMemberIdError):
            if self._times_forgotten:
                pause_ms = self.config["retry_backoff_ms"] * 2 ** min(self._times_forgotten - 1, _DOUBLINGS_MAX)
                await self._manager._net.sleep(min(pause_ms, _PAUSE_MS_MAX) / 1000)
            self._times_forgotten += 1

    # -- requests that take as long as the group takes -----------------------------------------------------------------

    def _rebalance_timeout_ms(self) -> int:
        """The broker answers JoinGroup when all members have joined and SyncGroup when the leader has assigned, or
        when max.poll.interval.ms is over."""
        return int(max(self.config["request_timeout_ms"], self.config["max_poll_interval_ms"] + 5_000))

    async def _send_and_stay(self, request: Any, timeout_ms: int | None = None) -> Any:
        """Send a request that keeps this a member until it is answered; the same one again when it waits for more than
        a session."""

        async def send() -> Any:
            return await self._send_to_coordinator(request, timeout_ms)

        self._ghosts.note(self._generation.generation_id)
        self._ghosts.forget_started()
        patience_s = _SESSIONS_MAX * self.config["session_timeout_ms"] / 1000
        while True:
            answer = self._manager.call_soon(send)
            until_s = time.monotonic() + patience_s
            given_up = False
            while not answer.is_done:
                try:
                    await self._manager.wait_for(_outcome(answer), self._session.look_interval_ms)
                except kafka_errors.KafkaTimeoutError:
                    self._manager.call_soon(self._ask_whether_member, request.member_id)
                    self._manager.call_soon(self._former_ids.leave, self, request.member_id)
                    if time.monotonic() > until_s and self._waits_at is not None and not given_up:
                        given_up = True
                        self._give_up(request, patience_s)
                        self._manager.call_soon(self._ghosts.start_sessions, self, request.member_id)
            if answer.exception is None:
                return answer.value
            # Not a new attempt: another JoinGroup would take the group back from where its leader assigns.
            if not (given_up and isinstance(answer.exception, kafka_errors.Cancelled)) or self.is_closing:
                raise answer.exception

    async def _ask_whether_member(self, waiting_as: str) -> None:
        """While a request waits for the group, or is not sent yet: a heartbeat over another connection. Only what
        confirms the session counts; everything else is said by the answer to that request. If the last one's was lost,
        the group may be in the next generation."""
        generation = self._generation
        if generation.is_lost() or generation.member_id != waiting_as:
            return  # who has no generation owns nothing
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self.group_instance_id,
        )
        sent_at = time.monotonic()
        try:
            response = await self._manager.send(request, node_id=self.other_connection())
        except kafka_errors.KafkaError as error:
            _log.debug("heartbeat of a member that waits for its group: %s", error)
            return
        if response.error_code in _MEMBER and generation is self._generation:
            self._confirm(sent_at)

    def _give_up(self, request: Any, after_s: float) -> None:
        _log.warning(
            "group %s: %s is not answered for %g s, longer than session.timeout.ms; sent again, since it may be lost",
            self.group_id,
            request.name,
            after_s,
        )
        self._give_up_connection(self._waits_at)

    async def _send_to_coordinator(self, request: Any, timeout_ms: int | None = None) -> Any:
        node_id = self.coordinator_id
        if self.is_closing:
            raise kafka_errors.Cancelled("this member is leaving")
        if node_id is None:
            raise kafka_errors.CoordinatorNotAvailableError
        self._waits_at = node_id
        try:
            return await self._manager.send(request, node_id=node_id, request_timeout_ms=timeout_ms)
        except kafka_errors.KafkaError as error:
            if not isinstance(error, kafka_errors.Cancelled):  # that is our own closing
                self._failed_request(node_id, request, error)
            raise
        finally:
            self._waits_at = None

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    async def _with_heartbeats(self, step: Awaitable[Any], heartbeat: Callable[[], Awaitable[None]]) -> Any:
        """Await ``step`` while a ``heartbeat`` now and then keeps the session: of a leader that has not assigned yet,
        and of a member that has not asked to join yet."""

        async def run() -> Any:
            return await step

        result = self._manager.call_soon(run)
        while not result.is_done:
            try:
                await self._manager.wait_for(_outcome(result), self.config["heartbeat_interval_ms"])
            except kafka_errors.KafkaTimeoutError:
                await heartbeat()
        if result.exception is not None:
            raise result.exception
        return result.value

    async def _heartbeat_once(self) -> None:
        try:
            await self._send_heartbeat_request()
        except kafka_errors.KafkaError as error:
            _log.debug("heartbeat of the assigning leader: %s", error)

    def _handle_heartbeat_response(self, response: Any, send_time: float) -> Any:
        try:
            super()._handle_heartbeat_response(response, send_time)
            self._confirm(send_time)
        except kafka_errors.RebalanceInProgressError:  # said to members only
            self._confirm(send_time)
            raise
        except (kafka_errors.FencedInstanceIdError, kafka_errors.AuthorizationError) as error:
            # kafka-python only stops its heartbeats, or repeats them for ever: no poll would ever raise this.
            self.fail(error)
            raise


def _outcome(result: Any) -> Any:
    """A future that is done when ``result`` is, and never fails: so that a time-out of waiting is only that."""
    done = Future()
    result.add_both(lambda _: done.success(None))
    return done
