"""Requests of a member to its group's coordinator, and their effect on the member's session.

A broker keeps JoinGroup and SyncGroup until the whole group has reached that step. These requests may take longer than
``request.timeout.ms``, and meanwhile the member stays in the group without heartbeats. A leader that computes its
assignment has no request in flight, and neither has a member whose JoinGroup waits for a commit. So these send
heartbeats.

Each response that the broker sends only to members confirms the session
(:mod:`streams_py.adapters.kafka_python.session`). A member whose request waits for a long time checks its membership
with heartbeats over another connection.

A broker may also lose such a request and never answer: a restarted coordinator of Kafka 4.3 may accept joins for a
group that it is still loading (:mod:`.stale_members`). Then all members wait until ``max.poll.interval.ms`` has
elapsed, without an error. A member that has died delays the others for one session timeout only. So if a request waits
longer, its connection is closed and the request is sent again. A broker that still has the first request treats the
second one as sent by the same member.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.protocol.consumer import HeartbeatRequest

from streams_py.adapters.kafka_python.classic.former_ids import FormerIds
from streams_py.adapters.kafka_python.classic.session_doubt import SessionDoubt
from streams_py.adapters.kafka_python.classic.stale_members import StaleMembers

_log = logging.getLogger(__name__)

_COORDINATOR_PREFIX: Final = "coordinator-"
_SESSIONS_MAX: Final = 1.5
_PAUSE_MS_MAX: Final = 1_000
_DOUBLINGS_MAX: Final = 10
_WAIT_INTERVAL_S: Final = 2.0
"""Interval of the calls while JoinGroup waits, in seconds."""
_MEMBER: Final = (kafka_errors.NoError.errno, kafka_errors.RebalanceInProgressError.errno)
"""Error codes of heartbeat responses that the broker sends to members only."""


class GroupRequests:
    """The requests of one member to its group's coordinator. Runs on the network thread.

    Args:
        coordinator: kafka-python's coordinator of the member, the :class:`.coordinator.StreamsCoordinator`.
        doubt: The member's session. Responses to members confirm it.
    """

    def __init__(self, coordinator: Any, doubt: SessionDoubt) -> None:
        self._coordinator = coordinator
        self._manager = coordinator._manager
        self._config = coordinator.config
        self._doubt = doubt
        self.waits_at: Any = None
        """The node to which JoinGroup or SyncGroup is in flight; None otherwise."""
        self.former_ids = FormerIds()
        self.stale_members = StaleMembers()
        self._times_forgotten = 0  # consecutive UNKNOWN_MEMBER_ID responses

    def joined(self) -> None:
        """Note that JoinGroup and SyncGroup were answered."""
        self._times_forgotten = 0

    def other_connection(self) -> Any:
        """Return a node id for requests to the group's coordinator that must not wait behind JoinGroup or SyncGroup.

        This is the id of the coordinator's broker, which has a separate connection. If the metadata does not list that
        broker, it is the coordinator's connection.

        Raises:
            CoordinatorNotAvailableError: The coordinator is unknown, or its connection has JoinGroup or SyncGroup in
                flight. A request behind it would time out, which closes the connection.
        """
        coordinator_id = self._coordinator.coordinator()
        if coordinator_id is None:
            raise kafka_errors.CoordinatorNotAvailableError
        text = str(coordinator_id)
        if text.startswith(_COORDINATOR_PREFIX):
            broker = int(text.removeprefix(_COORDINATOR_PREFIX))
            if self._coordinator._cluster.broker_metadata(broker) is not None:
                return broker
        if self.waits_at == coordinator_id:
            raise kafka_errors.CoordinatorNotAvailableError
        return coordinator_id

    async def pause_after(self, error: Exception) -> None:
        """Pause before another join if the coordinator repeatedly forgets member ids that it has just assigned.

        Such a coordinator is still loading the group. kafka-python would retry immediately, and each attempt gets
        another id, for which the group may wait.
        """
        if isinstance(error, kafka_errors.UnknownMemberIdError):
            if self._times_forgotten:
                pause_ms = self._config["retry_backoff_ms"] * 2 ** min(self._times_forgotten - 1, _DOUBLINGS_MAX)
                await self._manager._net.sleep(min(pause_ms, _PAUSE_MS_MAX) / 1000)
            self._times_forgotten += 1

    # -- requests that take as long as the group takes -----------------------------------------------------------------

    def rebalance_timeout_ms(self) -> int:
        """Return the timeout of JoinGroup and SyncGroup.

        The broker answers JoinGroup when all members have joined, and SyncGroup when the leader has assigned, but at
        the latest after max.poll.interval.ms.
        """
        return int(max(self._config["request_timeout_ms"], self._config["max_poll_interval_ms"] + 5_000))

    async def send_and_stay(
        self, request: Any, timeout_ms: int | None = None, on_wait: Callable[[float], Awaitable[None]] | None = None
    ) -> Any:
        """Send a request that keeps this member in the group until it is answered.

        The same request is sent again whenever it is unanswered for 1.5 session timeouts.

        Args:
            on_wait: Called once the request is sent, and then every few seconds until it is answered, with the time
                since it was sent first, in seconds.
        """

        async def send() -> Any:
            return await self._send_to_coordinator(request, timeout_ms)

        self.stale_members.note(self._coordinator._generation.generation_id)
        self.stale_members.forget_started()
        patience_s = _SESSIONS_MAX * self._config["session_timeout_ms"] / 1000
        began_s = time.monotonic()
        while True:
            answer = self._manager.call_soon(send)
            if on_wait is not None:
                self._manager.call_soon(self._note_wait, answer, began_s, on_wait)
            until_s = time.monotonic() + patience_s
            given_up = False
            while not answer.is_done:
                try:
                    await self._manager.wait_for(_outcome(answer), self._doubt.session.check_interval_ms)
                except kafka_errors.KafkaTimeoutError:
                    self._manager.call_soon(self.check_membership, request.member_id)
                    self._manager.call_soon(self.former_ids.leave, self._coordinator, request.member_id)
                    if time.monotonic() > until_s and self.waits_at is not None and not given_up:
                        given_up = True
                        self._give_up(request, patience_s)
                        self._manager.call_soon(self.stale_members.start_sessions, self._coordinator, request.member_id)
            if answer.exception is None:
                return answer.value
            # Send the same request again, because a new JoinGroup would restart the rebalance of a group whose leader
            # is already assigning.
            if not (given_up and isinstance(answer.exception, kafka_errors.Cancelled)) or self._coordinator.is_closing:
                raise answer.exception

    async def _note_wait(self, answer: Any, began_s: float, on_wait: Callable[[float], Awaitable[None]]) -> None:
        while not (answer.is_done or self._coordinator.is_closing):
            await on_wait(time.monotonic() - began_s)
            await self._manager._net.sleep(_WAIT_INTERVAL_S)

    async def check_membership(self, waiting_as: str) -> None:
        """Send a heartbeat over another connection, while a request waits for the group or is not sent yet.

        Only a response that confirms the session is used. The response to the waiting request reports everything else.
        If the response to the previous request was lost, the group may already have the next generation.
        """
        generation = self._coordinator._generation
        if generation.is_lost() or generation.member_id != waiting_as:
            return  # a member without a generation owns no partitions
        request = HeartbeatRequest(
            group_id=self._coordinator.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._coordinator.group_instance_id,
        )
        sent_at = time.monotonic()
        try:
            response = await self._manager.send(request, node_id=self.other_connection())
        except kafka_errors.KafkaError as error:
            _log.debug("heartbeat of a member that waits for its group: %s", error)
            return
        if response.error_code in _MEMBER and generation is self._coordinator._generation:
            self._doubt.confirm(sent_at)

    def _give_up(self, request: Any, after_s: float) -> None:
        _log.warning(
            "group %s: %s was not answered within %g "
            "s, longer than session.timeout.ms; sending it again, since the request may be lost",
            self._coordinator.group_id,
            request.name,
            after_s,
        )
        self._coordinator.give_up_connection(self.waits_at)

    async def _send_to_coordinator(self, request: Any, timeout_ms: int | None = None) -> Any:
        node_id = self._coordinator.coordinator_id
        if self._coordinator.is_closing:
            raise kafka_errors.Cancelled("this member is leaving")
        if node_id is None:
            raise kafka_errors.CoordinatorNotAvailableError
        self.waits_at = node_id
        try:
            return await self._manager.send(request, node_id=node_id, request_timeout_ms=timeout_ms)
        except kafka_errors.KafkaError as error:
            if not isinstance(error, kafka_errors.Cancelled):  # this member has closed the connection itself
                self._coordinator._failed_request(node_id, request, error)
            raise
        finally:
            self.waits_at = None

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    async def with_heartbeats(self, step: Awaitable[Any], heartbeat: Callable[[], Awaitable[None]]) -> Any:
        """Await ``step``, and call ``heartbeat`` at the heartbeat interval to keep the session.

        For a leader that is computing its assignment, and for a member that has not sent JoinGroup yet.
        """

        async def run() -> Any:
            return await step

        result = self._manager.call_soon(run)
        while not result.is_done:
            try:
                await self._manager.wait_for(_outcome(result), self._config["heartbeat_interval_ms"])
            except kafka_errors.KafkaTimeoutError:
                await heartbeat()
        if result.exception is not None:
            raise result.exception
        return result.value

    async def heartbeat_once(self) -> None:
        """Send one heartbeat of a leader that is computing its assignment."""
        try:
            await self._coordinator._send_heartbeat_request()
        except kafka_errors.KafkaError as error:
            _log.debug("heartbeat of the assigning leader: %s", error)


def _outcome(result: Any) -> Any:
    """Return a future that completes with ``result`` but never fails, so a timeout error can only be the wait's."""
    done = Future()
    result.add_both(lambda _: done.success(None))
    return done
