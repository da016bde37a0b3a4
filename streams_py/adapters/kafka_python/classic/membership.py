"""Group membership of one stream thread, on kafka-python (port :class:`streams_py.ports.Membership`).

Three threads use this module:

* The *stream thread* calls the methods of :class:`KafkaPythonMembership`. No method waits for a rebalance.
* The *network thread* belongs to kafka-python. It runs the group protocol, sends heartbeats, and never blocks.
* The *polling thread* belongs to the membership. It drives the protocol and calls the
  :class:`~streams_py.ports.MembershipListener`, which may wait for the stream thread.

kafka-python itself expects polls on the stream thread. It then discards joins that finish between two polls, so one
rebalance becomes dozens.

The membership does not read records. It waits for an unreachable broker, with occasional warnings. Only errors that
waiting cannot fix end it: missing rights, fencing by a member with the same instance id, or an exception from the
listener. :meth:`KafkaPythonMembership.check` then raises the error.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.consumer.subscription_state import SubscriptionState
from kafka.net.compat import KafkaNetClient

from streams_protocol.assignment_info import decode_assignment_info
from streams_protocol.subscription_info import decode_subscription_info
from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.callbacks import CallbackInbox
from streams_py.adapters.kafka_python.classic.coordinator import StreamsCoordinator
from streams_py.adapters.kafka_python.classic.options import KAFKA, ClusterRules, MemberOptions
from streams_py.adapters.kafka_python.classic.payloads import UserDataCheck
from streams_py.adapters.kafka_python.failures import is_retriable, translated
from streams_py.adapters.kafka_python.network import close_client, close_with_dead_tasks, revive_refresh, wait_for
from streams_py.adapters.kafka_python.quiet_logs import limit_library_logs
from streams_py.errors import BrokerUnavailableError, ConfigError, IllegalStateError, TaskMigratedError
from streams_py.ports import CommittedOffsets, GroupMetadata, MembershipListener, OffsetAndMetadata
from streams_py.system.outages import MemberContact

_log = logging.getLogger(__name__)

_COORDINATOR_SETTINGS: Final = (
    "group_id",
    "group_instance_id",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "request_timeout_ms",
    "retry_backoff_ms",
    "exclude_internal_topics",
)
_GRACE_S: Final = 5.0
"""Time that a caller waits for the network thread in addition to a request's timeout, in seconds."""


class KafkaPythonMembership:
    """One member of a group.

    Args:
        settings: The result of :func:`~streams_py.adapters.kafka_python.settings.membership_settings`.
        listener: Receives the callbacks of rebalances.
        cooperative: Whether to use the cooperative protocol. False with ``upgrade.from`` 2.3 and older.
        rules: What the cluster requires of a member.
        poll_interval_ms: Interval between polls.
        check_subscription: Decodes user data before it is sent. Only tests replace it.
        check_assignment: Decodes user data before it is sent. Only tests replace it.
        refusal: Called during an outage. Returns why the cluster will not accept connections, or None when it may
            accept them later.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        listener: MembershipListener,
        *,
        cooperative: bool = True,
        rules: ClusterRules = KAFKA,
        poll_interval_ms: int = 500,
        check_subscription: UserDataCheck = decode_subscription_info,
        check_assignment: UserDataCheck = decode_assignment_info,
        refusal: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._settings = dict(settings)
        self._listener = listener
        self._poll_interval_ms = poll_interval_ms
        self._rules = rules
        self._options = MemberOptions(
            cooperative=cooperative,
            rack=self._settings.get("client_rack"),
            rules=rules,
            # The other members wait for this member's rejoin, so the commit may take only a part of that time.
            revocation_commit_timeout_ms=min(
                self._settings["default_api_timeout_ms"], self._settings["max_poll_interval_ms"] // 2
            ),
            check_subscription=check_subscription,
            check_assignment=check_assignment,
        )
        self._group: str = self._settings["group_id"]
        self._contact = MemberContact(self._settings["bootstrap_servers"], f"{self._settings['client_id']} {id(self)}")
        self._lock = threading.Lock()
        self._wanted: tuple[frozenset[str], str | None] | None = None
        self._wanted_is_new = False
        self._abandon_member_id: str | None = None
        self._client: Any = None
        self._inbox = CallbackInbox(self._on_network_thread)
        self._coordinator: StreamsCoordinator | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._refusal = refusal
        self._failure: BaseException | None = None
        self._migrated: TaskMigratedError | None = None
        self._is_watched = False

    # -- called by the stream thread -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the polling thread. The member does not join the group before :meth:`subscribe`."""
        if self._thread is not None:
            raise IllegalStateError("this membership was already started")
        limit_library_logs()
        client_id = self._settings["client_id"]
        self._client = KafkaNetClient(**self._client_settings())
        # kafka-python does not pass these two on to its cluster metadata, whose defaults would create topics.
        self._client.cluster.config["allow_auto_create_topics"] = False
        self._client.cluster.config["retry_backoff_ms"] = self._settings["retry_backoff_ms"]
        close_with_dead_tasks(self._client)
        self._client._net.start()
        self._thread = threading.Thread(target=self._run, name=f"{client_id}-membership", daemon=True)
        self._thread.start()

    def subscribe(self, topics: frozenset[str], pattern: str | None = None) -> None:
        """Subscribe to topics, or to all topics whose whole name matches ``pattern``; a change causes a rebalance."""
        with self._lock:
            self._wanted, self._wanted_is_new = (topics, pattern), True
        self._inbox.wake()

    def request_rejoin(self, reason: str) -> None:
        """Request a rebalance; the broker logs ``reason`` (KIP-800)."""
        coordinator = self._coordinator
        if coordinator is None:
            return  # the first join has not started yet
        if not self._rules.rejoin_delay_ms:
            self._on_network_thread(lambda: coordinator.request_rejoin_because(reason))
            return
        asked_at = coordinator.membership()

        def rejoin_if_still_wanted() -> None:
            if coordinator.membership() == asked_at and not self._closing.is_set():
                self._on_network_thread(lambda: coordinator.request_rejoin_because(reason))

        timer = threading.Timer(self._rules.rejoin_delay_ms / 1000, rejoin_if_still_wanted)
        timer.daemon = True
        timer.start()

    def expect_rebalance(self) -> None:
        """Send heartbeats more often for some seconds, to notice a rebalance that another process causes."""
        coordinator = self._coordinator
        if coordinator is not None:
            self._on_network_thread(coordinator.expect_rebalance)

    def rejoin_as_new_member(self) -> None:
        """Give up the membership and rejoin, because tasks have migrated. Returns immediately; ``on_lost`` follows.

        Does nothing if the group has already removed this member, since it is rejoining anyway.
        """
        coordinator = self._coordinator
        if coordinator is not None:
            self._abandon_member_id = coordinator.member_id
            self._inbox.wake()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit offsets of owned partitions.

        Raises:
            TaskMigratedError: This is no longer a member, or it does not own all of the partitions.
            BrokerUnavailableError: After ``timeout_ms``; during a rebalance immediately, because only a revocation
                commits then.
        """
        if offsets:
            self._ask(lambda coordinator: coordinator.commit_async(offsets, timeout_ms), "commit", timeout_ms)

    def committed(self, partitions: Collection[TopicPartition], *, timeout_ms: int) -> Future[CommittedOffsets]:
        """Fetch committed offsets, None for a partition without one; waits for open transactions.

        The future fails with BrokerUnavailableError if no response arrives within ``timeout_ms``.
        """
        answer: Future[CommittedOffsets] = Future()
        coordinator = self._coordinator
        if not partitions:
            answer.set_result({})
        elif coordinator is None:
            answer.set_exception(BrokerUnavailableError("committed offsets: no broker has answered yet"))
        else:
            try:
                found = self._client._net.call_soon_with_future(
                    lambda: coordinator.committed_async(partitions, timeout_ms)
                )
            except Exception as error:
                raise IllegalStateError("committed offsets: this membership is closed") from error
            found.add_both(lambda _: _hand_over(found, answer, "committed offsets", self._group))
        return answer

    def group_metadata(self) -> GroupMetadata | None:
        """Return the metadata of the last completed join, or None. Never (-1, ""), which a broker does not fence."""
        coordinator = self._coordinator
        return None if coordinator is None else coordinator.membership()

    def forming(self) -> GroupMetadata | None:
        """Return this member's metadata for the generation of its last JoinGroup response; None without a generation.

        Inside ``assign``, and until the assignment arrives, this is the generation being formed.
        :meth:`group_metadata` does not return it yet.
        """
        coordinator = self._coordinator
        return None if coordinator is None else coordinator.forming()

    @property
    def member_id(self) -> str:
        """The member id; "" when closed; see the port."""
        coordinator = self._coordinator
        return "" if coordinator is None else coordinator.member_id

    def is_member(self) -> bool:
        """Whether no other member can own this member's partitions, by this process's clock."""
        coordinator = self._coordinator
        return coordinator is not None and coordinator.is_member() and not self._is_stuck(coordinator)

    def check(self) -> None:
        """Raise the error that ended the membership, or once the TaskMigratedError of a callback.

        The call also shows that the stream thread is alive. After the first call, if the next one takes longer than
        ``max.poll.interval.ms``, the thread counts as stuck. The member then leaves the group until the next call.
        """
        self._is_watched = True
        coordinator = self._coordinator
        if coordinator is not None:
            if self._is_stuck(coordinator):
                self._inbox.wake()
            coordinator.heartbeat.poll()
        if self._failure is not None:
            raise self._failure
        migrated, self._migrated = self._migrated, None
        if migrated is not None:
            raise migrated

    def leave_and_close(self, *, leave_group: bool, timeout_ms: int) -> None:
        """Stop polling, heartbeats and callbacks, and close the client.

        LeaveGroup is sent only with ``leave_group``, and never by a static member. Without it, the broker keeps the
        member until its session times out.
        """
        self._closing.set()
        self._inbox.close()
        self._contact.close()
        if self._thread is None:
            return
        limit = time.monotonic() + timeout_ms / 1000
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_ms / 2000)  # it may be in a callback; the rest of the time is for LeaveGroup
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            coordinator.is_closing = True
        with contextlib.suppress(Exception):  # a network thread that has died cannot send
            if coordinator is not None:
                coordinator._close_heartbeat()
                if leave_group:
                    left_ms = max(0, int((limit - time.monotonic()) * 1000))
                    leaving = self._client._manager.call_soon(
                        coordinator.leave_async, "the consumer is being closed", left_ms
                    )
                    wait_for(leaving, left_ms / 1000)
        close_client(self._client, max(1.0, limit - time.monotonic()))

    # -- polling thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            coordinator = self._connect()
            while coordinator is not None and not self._closing.is_set():
                self._turn(coordinator)
        except BaseException as error:
            if not self._closing.is_set():
                self._failure = translated(error, f"membership in group {self._group}", group=self._group)
                _log.error("membership ended: %s", self._failure)

    def _connect(self) -> StreamsCoordinator | None:
        """Wait for the first broker, whose version determines the requests. None when closed before."""
        bootstrap = self._client._manager.bootstrap_async()
        bootstrap.add_both(lambda _: self._inbox.wake())
        while not bootstrap.is_done and not self._closing.is_set():
            self._note_outage()
            self._inbox.serve(self._poll_interval_ms / 1000)
        if self._closing.is_set():
            return None
        if bootstrap.exception is not None:
            raise bootstrap.exception
        self._contact.report_contact()
        settings = {key: self._settings[key] for key in _COORDINATOR_SETTINGS}
        coordinator = StreamsCoordinator(
            self._client,
            SubscriptionState("none"),
            self._listener,
            self._inbox,
            self._options,
            enable_auto_commit=False,
            isolation_level="read_committed",  # no records are read; committed offsets wait for open transactions
            api_version=self._client._manager.broker_version,
            metrics=None,
            **settings,
        )
        coordinator.heartbeat.poll()
        self._coordinator = coordinator
        self._on_network_thread(coordinator.watch_session)
        return coordinator

    def _turn(self, coordinator: StreamsCoordinator) -> None:
        """Run one iteration: apply the stream thread's requests, drive the protocol, then wait for an event."""
        interval_s = self._poll_interval_ms / 1000
        self._apply_requests(coordinator)
        if self._wanted is None or self._is_stuck(coordinator):
            self._inbox.serve(interval_s)
            return
        if not self._is_watched:
            coordinator.heartbeat.poll()
        started = time.monotonic()
        try:
            settled = self._on_polling_thread(coordinator.poll_async, self._poll_interval_ms)
            self._revive_heartbeats(coordinator)
            revive_refresh(self._client)
        except TaskMigratedError as error:  # from a callback; the stream thread decides what to do
            self._migrated = error
            settled = False
        except kafka_errors.KafkaError as error:
            if not is_retriable(error):
                raise
            _log.debug("poll: %s", error)
            settled = False
        if settled:
            self._contact.report_contact()
            self._inbox.serve(interval_s)
            return
        if coordinator.coordinator_id is None:
            self._note_outage()
        if time.monotonic() - started < interval_s / 2:  # it failed early, so pause before the next attempt
            self._inbox.serve(self._settings["retry_backoff_ms"] / 1000)

    def _note_outage(self) -> None:
        """Note an outage. Raises ConfigError if the cluster will not accept this client, since waiting cannot help."""
        if self._contact.report_lost() and (why := self._refusal()) is not None:
            raise ConfigError(why)

    def _apply_requests(self, coordinator: StreamsCoordinator) -> None:
        with self._lock:
            wanted, is_new = self._wanted, self._wanted_is_new
            self._wanted_is_new = False
        if wanted is not None and is_new:
            self._on_polling_thread(lambda: coordinator.set_subscription(*wanted))
        member_id = self._abandon_member_id
        if member_id is not None and not coordinator.rejoining:  # a join in progress is completed first
            self._abandon_member_id = None
            self._on_polling_thread(coordinator.rejoin_as_new_member_async, member_id)

    def _is_stuck(self, coordinator: StreamsCoordinator) -> bool:
        stuck: bool = self._is_watched and coordinator.heartbeat.poll_timeout_expired()
        return stuck

    def _revive_heartbeats(self, coordinator: StreamsCoordinator) -> None:
        loop = coordinator._heartbeat_loop_future
        if loop is not None and loop.is_done and not self._closing.is_set():
            _log.warning("the heartbeat loop has failed (%s); restarting it", loop.exception)
            self._on_network_thread(coordinator._maybe_start_heartbeat_loop)

    def _on_polling_thread(self, step: Callable[..., Any], *arguments: object) -> Any:
        """Run ``step`` on the network thread, and make its calls on this thread, until it is done."""
        done = self._client._net.call_soon_with_future(step, *arguments)
        if not self._inbox.serve_until(done, self._check_network_thread):
            raise IllegalStateError("closed in the middle of a rebalance")
        if done.exception is not None:
            raise done.exception
        return done.value

    def _check_network_thread(self) -> None:
        problem = self._client._net._exception
        if problem is not None:
            raise IllegalStateError(f"the network thread has ended: {problem}")

    # -- threads and clients -----------------------------------------------------------------------------------------

    def _client_settings(self) -> dict[str, Any]:
        foreign = ("group_id", "group_instance_id", "client_rack", "default_api_timeout_ms", "exclude_internal_topics")
        settings = {key: value for key, value in self._settings.items() if key not in foreign}
        return settings | {"api_version": self._rules.api_version, "receive_message_max_bytes": 100_000_000}

    def _on_network_thread(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the client is closed, so the result is not needed
            self._client._net.call_soon_threadsafe(function)

    def _ask(self, step: Callable[[StreamsCoordinator], Any], doing: str, timeout_ms: int) -> Any:
        """Run a coroutine on the network thread and wait for its result. For all other threads."""
        coordinator = self._coordinator
        servers = ", ".join(self._settings["bootstrap_servers"])
        if coordinator is None:
            raise BrokerUnavailableError(f"{doing}: no broker at {servers} has answered yet")
        try:
            done = self._client._net.call_soon_with_future(lambda: step(coordinator))
        except Exception as error:
            raise IllegalStateError(f"{doing}: this membership is closed") from error
        if not wait_for(done, timeout_ms / 1000 + _GRACE_S):
            raise BrokerUnavailableError(f"{doing}: no answer from {servers} within {timeout_ms} ms")
        if done.exception is not None:
            raise translated(done.exception, doing, group=self._group)
        return done.value


def _hand_over(done: Any, answer: Future[Any], doing: str, group: str) -> None:
    """Copy the outcome of a kafka-python future to a future on which any thread may wait."""
    if done.exception is not None:
        answer.set_exception(translated(done.exception, doing, group=group))
    else:
        answer.set_result(done.value)
