"""The client: one application instance that runs a topology (Kafka's KafkaStreams).

    KafkaStreams(topology, {"application.id": "word-count", "bootstrap.servers": "localhost:9092"}).run()

Entering a ``with`` block starts the client, leaving the block closes it. Several instances with one ``application.id``
share the work.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from streams_protocol.types import TaskId
from streams_py.errors import IllegalStateError
from streams_py.runtime.client.arguments import check_arguments, check_timeout
from streams_py.runtime.client.forked import is_left_behind, refuse_when_forked
from streams_py.runtime.client.hand_over import HandOver
from streams_py.runtime.client.leaving import leaving_at_close
from streams_py.runtime.client.state import ClientState, StateListener
from streams_py.runtime.client.stream_threads import StreamThreads
from streams_py.runtime.client.uncaught import UncaughtHandler
from streams_py.runtime.group.transport import Leave
from streams_py.runtime.thread.states import State, ThreadState
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.system.clock import SystemClock
from streams_py.system.close_report import wait_and_log
from streams_py.system.stop_signals import stop_signals, wait_or_stop
from streams_py.topology.topology import Topology

# The modules that a running client needs are imported when one is created. A test or a tool that only describes the
# topology of an application imports this class without them.
if TYPE_CHECKING:
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.leader.explanations import ToldExplanation
    from streams_py.ports import Clients, Clock
    from streams_py.runtime.group.timeline import RebalanceListener
    from streams_py.runtime.processes.measured import Measured
    from streams_py.runtime.queries.hosts import KeyQueryMetadata, StoreHosts, StreamsMetadata
    from streams_py.runtime.queries.lags import LagInfo
    from streams_py.runtime.restore.listener import RestoreListener, StandbyUpdateListener
    from streams_py.runtime.restore.progress import RestoreProgress
    from streams_py.runtime.thread.metadata import ThreadMetadata
    from streams_py.serdes import Serde
    from streams_py.state.reading.store_views import ReadOnlyKeyValueStore, ReadOnlyStore, ReadOnlyVersionedStore
    from streams_py.state.reading.typed_queries import Position, Query, StateQueryResult
    from streams_py.state.reading.window_views import ReadOnlySessionStore, ReadOnlyWindowStore
    from streams_py.topology.declare.nodes import Partitioner

__all__ = ["KafkaStreams"]

_log = logging.getLogger("streams_py")

R = TypeVar("R")

_STOPPED = (State.PENDING_ERROR, State.ERROR, State.NOT_RUNNING)


class KafkaStreams:
    """One instance of an application.

    Callbacks run on the thread that causes them:

    * ``on_state(new, old)`` is called for every change of state, in order. It may call any method of this client;
      :meth:`close` does not wait there.
    * ``on_error(error)`` decides what happens when a stream thread fails (KIP-671). Without it the client closes and
      ends in ERROR.
    * ``restore_listener`` is called during the restoration of stores, ``standby_listener`` when standby tasks update
      their copies.

    An unreachable broker is not an error: the client stays REBALANCING, logs warnings, and continues when the broker
    is reachable.

    Args:
        config: A mapping with Kafka's dotted keys, the path of a ``.toml`` or ``.properties`` file, or a StreamsConfig.
        clients: Factory of Kafka clients; for tests.
        clock: For tests.
        settings: Further settings as keyword arguments, which take precedence (``num_stream_threads=2``).

    Raises:
        ConfigError: A setting is not valid.
        TopologyError: The topology is not valid, or an argument is not.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | str | None = None,
        *,
        on_state: StateListener | None = None,
        on_error: UncaughtHandler | None = None,
        restore_listener: RestoreListener | None = None,
        standby_listener: StandbyUpdateListener | None = None,
        clients: Clients | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        from streams_py.config.streams_config import StreamsConfig
        from streams_py.runtime.client.metrics import ClientMetrics
        from streams_py.runtime.processes.child import this_process
        from streams_py.runtime.queries.store_queries import StoreQueries
        from streams_py.runtime.wiring.client_supplier import clients_of
        from streams_py.runtime.wiring.global_thread import ClientGlobalThread
        from streams_py.runtime.wiring.shared import SharedResources
        from streams_py.runtime.wiring.stream_threads import StreamThreadFactory

        check_arguments(topology, on_state, on_error, restore_listener, standby_listener)
        self._config = StreamsConfig.of(config, **settings)
        self._child = this_process()
        self._config = self._child.config(self._config) if self._child else self._config
        self._clock = clock or SystemClock()
        used = clients or clients_of(self._config)
        try:
            self._shared = SharedResources(topology, self._config, used, self._clock)
            self._global_thread = ClientGlobalThread(self._shared)
            factory = StreamThreadFactory(self._shared, lambda: self._global_thread.stores)
        except BaseException:
            if clients is None:
                used.close()
            raise
        if restore_listener is not None:
            self._shared.restore_listener = restore_listener
        if standby_listener is not None:
            self._shared.standby_listener = standby_listener
        self._state = ClientState(self._state_changed, on_state)
        self._threads = StreamThreads(factory, self._global_thread, self._shared, self._state, on_error)
        self._hand_over = HandOver(lambda: self._shared.client_id, self._threads, self._state, self._clock)
        self._metrics = ClientMetrics(self._shared, self._state, self._threads, self._global_thread)
        self._queries = StoreQueries(
            self._shared.hosts,
            state=lambda: self._state.now,
            threads=self._threads.current,
            global_stores=lambda: self._global_thread.stores,
            admin=lambda: self._shared.admin,
        )
        self._in_context = False

    # -- before start ----------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Delete the application's local state. Only before :meth:`start` or after :meth:`close`."""
        if self._state.now is not State.CREATED and not self._state.now.is_final:
            raise IllegalStateError(
                f"local state can only be deleted before start() or after close(); state {self._state.now.value}"
            )
        self._shared.clean_up()

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the stream threads. Blocks only while global tables and stores are restored.

        Raises:
            StateError: The state directory is not writable.
            IllegalStateError: The client was already started.
            ConfigError: The cluster rejects the login or the certificates, or the cluster's certificate is not trusted.
            RuntimeError: The process cannot start more threads.
        """
        with self._state.changing():
            if self._state.now is not State.CREATED:
                raise IllegalStateError(
                    f"this client was already started (state {self._state.now.value}); create a new one"
                )
            self._shared.open()
            try:
                refuse_when_forked(self)
                count = self._config.num_stream_threads if self._shared.has_tasks else 0
                threads = self._threads.create(count)
            except BaseException:
                self._shared.undo_open()
                raise
            self._state.go(State.REBALANCING)
        try:
            is_restored = self._global_thread.start(self._threads.fail)
        except Exception as error:
            self._threads.fail(error)
            raise
        if not is_restored:
            return  # the client is closing; without its global stores, nothing may be processed
        if not threads:
            self._run_without_threads()
        try:
            for thread in threads:
                thread.start()  # does nothing if the state listener has already closed this client
        except RuntimeError as error:
            self._threads.fail(error)
            raise

    def _run_without_threads(self) -> None:
        """Change to RUNNING: there are only global stores, or ``num.stream.threads`` is 0."""
        if self._shared.has_tasks:
            _log.warning(
                "num.stream.threads is 0: this instance processes no records until add_stream_thread() is called; set "
                "it to 1 or more if that is not intended"
            )
        with self._state.changing():
            if self._state.now is State.REBALANCING:
                self._state.go(State.RUNNING)

    def drain(self, timeout: float | None = 60.0) -> bool:
        """Let other instances take over the tasks, one after the other, while this instance processes the rest.

        Then call ``close(leave_group=True)``: it moves no more tasks. A task with state moves once its new instance has
        caught up with its changelog; until then this instance processes it.

        Draining cannot be undone: this instance gets no tasks any longer. From a stream thread (a handler, a listener,
        a processor) the call only requests the drain and never waits.

        Args:
            timeout: Seconds to wait; None waits without limit.

        Returns:
            True once the other instances have all tasks. False if that has not happened within ``timeout`` or before
            the client stopped; the remaining tasks move when it is closed. No tasks move if no other instance runs, if
            a Java member or a custom assignor decides for the group, or if the group has members older than Kafka
            Streams 3.2.
        """
        check_timeout(timeout)
        return self._hand_over.drain(timeout)

    def close(self, timeout: float | None = None, *, leave_group: bool | None = None) -> bool:
        """Stop everything: commit, close the tasks, and release the state directory.

        If the members stay in the group, tasks move only after the session timeout, so that a restarted instance gets
        its tasks back. If they leave, tasks move immediately. With ``leave_group=True``, tasks with state are handed
        over first, as by :meth:`drain` (unless that was already called), if another instance can take them. The
        hand-over takes at most a third of ``timeout`` (None: 20 s). A second call ends it early.

        From a stream thread (a handler, a listener, a processor) the call never waits.

        Args:
            timeout: Seconds to wait; None waits without limit, 0 does not wait.
            leave_group: Whether the members leave the group, because this instance will not come back. None:
                ``leave.group.on.close`` decides, without a hand-over, and static members stay.

        Returns:
            True once all is closed. False on timeout; closing continues in the background.
        """
        check_timeout(timeout)
        began_ms = self._clock.monotonic_ms()
        try:
            if leave_group and timeout != 0:
                self._hand_over.before_leaving(timeout)
        except Exception:
            _log.exception("%s: handing the tasks over failed; closing without it", self._shared.client_id)
        finally:  # also if a signal handler raises
            if timeout is not None:
                timeout = max(0.0, timeout - (self._clock.monotonic_ms() - began_ms) / 1000)
            with self._state.changing():
                if self._state.now is State.CREATED or self._state.now.is_running_or_rebalancing:
                    self._state.go(State.PENDING_SHUTDOWN)
                    # 0 means that the caller does not wait. The threads still finish their work.
                    self._threads.shut_down(self._leave(leave_group), timeout=timeout or None)
                if self._threads.is_in_callback:
                    timeout = 0
        self._threads.finish_if_ended()
        return self._state.wait_for_end(timeout)

    def _leave(self, leave_group: bool | None) -> Leave:
        if leave_group or self._hand_over.is_leaving:
            return Leave.FOR_GOOD
        if leave_group is not None:
            return Leave.STAY
        leaving = leaving_at_close(
            self._config.leave_group_on_close, os.environ, socket.gethostname(), is_supervised=self._child is not None
        )
        if self._threads.current():
            does = "leave" if leaving.leaves else "stay in"
            _log.info("%s: its members %s the group: %s", self._shared.client_id, does, leaving.why)
        return Leave.LEAVE if leaving.leaves else Leave.STAY

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the client has stopped (NOT_RUNNING or ERROR).

        In a ``with`` block on the main thread, SIGINT (Ctrl-C) and SIGTERM close the client and so end the wait, unless
        the program handles these signals itself.

        Returns:
            False if ``timeout`` seconds elapsed first.

        Raises:
            Exception: The error of a failed stream thread, if the client ended in ERROR because of it.
        """
        if self._in_context:
            with stop_signals(replace_handlers=False) as asked:
                ended = wait_or_stop(asked, self._state.wait_for_end, timeout) or (
                    asked.is_set() and self._close_and_log()
                )
        else:
            ended = self._state.wait_for_end(timeout)
        if self._state.now is State.ERROR and self._threads.error is not None:
            raise self._threads.error
        return ended

    def run(
        self,
        *,
        drain: float | None = None,
        processes: int = 1,
        health: int | str | None = None,
        metrics: int | str | None = None,
        names: Collection[str] = (),
    ) -> None:
        """Start, work until SIGINT (Ctrl-C) or SIGTERM, then close. For programs that do nothing else.

        Call it on the main thread. During the close, the log says what the client waits for. A second signal kills the
        process immediately.

        Args:
            drain: After the signal, wait up to this many seconds for other instances to take over the tasks
                (:meth:`drain`), then leave the group. For an instance that will not come back.
            processes: Number of processes that run this program, as members of one group, one core each. This process
                only supervises them: it restarts a process that dies, and a signal closes all of them. Each process
                has its own state directory, and its number at the end of ``group.instance.id`` and ``client.id``.
            health: A port on loopback, or ``host:port``, for HTTP probes: ``/live``, ``/ready``, and ``/`` with one
                line per process.
            metrics: A port or ``host:port`` that serves the metrics of all processes to Prometheus, with the label
                ``process``. Requires the extra ``metrics``.
            names: Further host names by which probes and metrics may be requested. Addresses, ``localhost`` and the
                names of this machine are always accepted, ``*`` accepts every name.

        Raises:
            Exception: The error of a failed stream thread, as for :meth:`wait`.
        """
        from streams_py.runtime.processes.watched import watched

        signals = stop_signals(on_first=self._global_thread.cancel_restore)
        with signals as asked, watched(self, self._child, processes, health, drain, metrics, names) as supervisor:
            if supervisor is not None:
                self._shared.check_connection()  # else the supervisor would restart rejected processes forever
                with self._shared.watching_processes():
                    supervisor.run(asked)
                return
            with self:
                if not wait_or_stop(asked, self._state.wait_for_end, None):
                    self._close_and_log(drain=drain)
        self.wait()

    def _close_and_log(self, *, drain: float | None = None) -> bool:
        """Close after a signal, without a time limit, and log what the close waits for."""
        has_started = any(thread.state is not ThreadState.CREATED for thread in self._threads.current())
        if drain is not None and has_started:  # else it was still restoring its global stores and has no tasks
            self.drain(drain)
        _log.info("%s: closing; a second signal kills the process immediately", self._shared.client_id)
        self.close(0, leave_group=None if drain is None else True)
        wait_and_log(
            self._state.wait_for_end,
            lambda: [thread for thread in self._threads.current() if thread.state is not ThreadState.DEAD],
        )
        return True

    def __enter__(self) -> Self:
        self.start()
        self._in_context = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not is_left_behind(self):  # in a forked child, keep the block's own exception
            self._in_context = False
            self.close()

    # -- observation -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state of the client."""
        return self._state.now

    def is_alive(self) -> bool:
        """Whether the client works, for a liveness probe. If it is False, only a new process helps.

        It is False once the client has failed or stopped, and while a stream thread has been busy with one record or
        one call for longer than ``max.poll.interval.ms``.
        """
        return self._state.now not in _STOPPED and not any(thread.is_stuck for thread in self._threads.current())

    def is_ready(self) -> bool:
        """Whether this instance processes all of its assigned tasks, for a readiness probe. True without tasks.

        It is False before the first assignment, while tasks restore, after :meth:`drain`, and once the client begins to
        close. Standby tasks do not matter.
        """
        return self._state.now is State.RUNNING and not self._threads.is_draining

    @property
    def error(self) -> Exception | None:
        """The error of the stream thread whose failure stopped the client; None without one."""
        return self._threads.error

    @property
    def config(self) -> StreamsConfig:
        """The validated configuration."""
        return self._config

    def wait_until(self, state: State, timeout: float | None = None) -> bool:
        """Block until the client is in ``state``; False if it stopped otherwise or ``timeout`` seconds have elapsed."""
        return self._state.wait_until(lambda now: now is state or now.is_final, timeout) is state

    def metadata_for_local_threads(self) -> list[ThreadMetadata]:
        """Return name, state and tasks of each stream thread."""
        from streams_py.runtime.thread.metadata import thread_metadata

        return [thread_metadata(thread) for thread in self._threads.current()]

    def explain(self, task_id: TaskId | str) -> list[ToldExplanation]:
        """Explain the placement of a task in the last assignments that *this* client computed as group leader.

        The newest explanation comes first. ``str(explanation)`` is readable text; ``explanation.explanation`` has the
        facts. The list is empty if this client has not been leader, or if a custom task assignor decided.
        """
        return self._threads.explanations(TaskId.parse(task_id) if isinstance(task_id, str) else task_id)

    def metrics(self) -> dict[str, dict[str, float | str]]:
        """Return the current metrics by group (with tags) and name, as in Kafka Streams.

        For exporters see :mod:`streams_py.metrics`.
        """
        return self._metrics.by_group()

    def measure(self) -> list[Measured]:
        """Return the same metrics as a list of group, tags, name and value."""
        return self._metrics.measure()

    def on_rebalance(self, listener: RebalanceListener) -> None:
        """Call ``listener(timeline)`` after each rebalance of each stream thread. Thread-safe.

        The timeline has the duration of each step: decode, lags, assign, encode and hand-over. The listener runs on a
        thread that must not block for long.
        """
        self._shared.rebalance_listeners.append(listener)

    def restore_progress(self) -> RestoreProgress:
        """Return the restore progress of this instance's active tasks and global stores.

        The progress has records, bytes, rate and time left.
        """
        return self._threads.restore_progress()

    # -- threads ---------------------------------------------------------------------------------------------

    def add_stream_thread(self) -> str | None:
        """Start one more stream thread. Return its name, or None if the client is not RUNNING or REBALANCING."""
        return self._threads.add()

    def remove_stream_thread(self, timeout: float | None = None) -> str | None:
        """Stop one stream thread, if possible not the calling one. Its member leaves the group.

        Returns:
            The name of the thread; None without a running thread.

        Raises:
            StreamsError: The thread did not stop within ``timeout`` seconds.
        """
        return self._threads.remove(timeout)

    def pause(self) -> None:
        """Stop processing, punctuating and restoring. Members stay in the group and the state stays RUNNING."""
        self._threads.pause(True)

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._threads.pause(False)

    # -- stores ----------------------------------------------------------------------------------------------

    @overload
    def store(
        self,
        name: str,
        *,
        kind: Literal[QueryableStoreType.WINDOW, QueryableStoreType.TIMESTAMPED_WINDOW],
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyWindowStore[Any, Any]: ...
    @overload
    def store(
        self, name: str, *, kind: Literal[QueryableStoreType.SESSION], partition: int | None = None, stale: bool = False
    ) -> ReadOnlySessionStore[Any, Any]: ...
    @overload
    def store(
        self,
        name: str,
        *,
        kind: Literal[QueryableStoreType.VERSIONED],
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyVersionedStore[Any, Any]: ...
    @overload
    def store(
        self,
        name: str,
        *,
        kind: Literal[
            QueryableStoreType.KEY_VALUE, QueryableStoreType.TIMESTAMPED_KEY_VALUE
        ] = QueryableStoreType.KEY_VALUE,
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyKeyValueStore[Any, Any]: ...
    def store(
        self,
        name: str,
        *,
        kind: QueryableStoreType = QueryableStoreType.KEY_VALUE,
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyStore:
        """Return a read-only view of a store over all local instances (KIP-535): ``get``, ``range``, ``all`` and so on.

        Thread-safe, and never blocks.

        Args:
            kind: Kind of the store: key-value, window, session or versioned, and whether values of a timestamped store
                come with their timestamps.
            partition: Limits the view to one task.
            stale: Whether to read standby and restoring tasks, too.

        Raises:
            StreamsNotStartedError: The client was not started.
            UnknownStateStoreError: The topology has no store of this name.
            InvalidStateStoreError: The store is of another kind.
            StateStoreNotAvailableError: No task of the store is here now (``retriable``). With ``partition``:
                InvalidStateStorePartitionError.
            StateStoreMigratedError: Raised by a view after its tasks have moved (``retriable``): request a new view.
        """
        return self._queries.store(name, kind=kind, partition=partition, stale=stale)

    def query(
        self,
        store: str,
        query: Query[R],
        *,
        partitions: Collection[int] | None = None,
        bound: Position | None = None,
        require_active: bool = False,
    ) -> StateQueryResult[R]:
        """Query every local partition of a store, active or standby (KIP-796). Thread-safe, and never blocks.

        Args:
            partitions: Only these partitions. Each of them has a result.
            bound: Only partitions that have processed their input up to these offsets answer, for example
                ``result.position`` of an earlier query. Standby tasks don't know their position, so they don't answer.
            require_active: Whether only running active tasks answer. The bound is then ignored.

        Returns:
            An answer or a failure reason for each partition.

        Raises:
            StreamsNotStartedError: The client was not started.
            UnknownStateStoreError: The topology has no store of this name.
            InvalidStateStoreError: The client is not running.
            StateStoreNotAvailableError: A global store is being restored (``retriable``).
        """
        return self._queries.query(store, query, partitions=partitions, bound=bound, require_active=require_active)

    @property
    def store_hosts(self) -> StoreHosts:
        """The stores and their locations, as used by the query service."""
        return self._queries.hosts

    def all_metadata(self) -> list[StreamsMetadata]:
        """Return every instance of the application that has an ``application.server``, sorted by address.

        Each has its stores and partitions, as active and as standby. Empty before the first assignment.
        """
        return self._queries.hosts.instances()

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that have a store, as active or standby. For a global store: all instances.

        Raises:
            UnknownStateStoreError: The topology has no store of this name.
        """
        return self._queries.hosts.with_store(store)

    def query_metadata_for_key(
        self, store: str, key: Any, *, key_serde: Serde[Any] | None = None, partitioner: Partitioner | None = None
    ) -> KeyQueryMetadata:
        """Return the instance to query for a key, the instances with a standby of it, and its partition.

        The result shows where tasks are going: an instance may be named shortly before it has the key, and then reject
        a query. Before the first assignment the result is ``NOT_AVAILABLE``.

        Args:
            key: The key. For windows and sessions: the key inside of the window.
            key_serde: Serde of the key; default: the store's.
            partitioner: Required if the records were written with a custom partitioner. It is called with None as the
                value, and must choose exactly one partition (otherwise ValueError).

        Raises:
            UnknownStateStoreError: The topology has no store of this name.
        """
        return self._queries.hosts.of_key(store, key, key_serde=key_serde, partitioner=partitioner)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return store -> partition -> lag of each local copy behind its changelog: active, restoring or standby.

        Requests the end offsets from the brokers. Empty unless the client is running.

        Raises:
            BrokerUnavailableError: No broker answers.
        """
        return self._queries.local_lags()

    def _state_changed(self, new: State, old: State) -> None:
        self._shared.running.note(runs=new is State.RUNNING)
        _log.info("%s: %s -> %s", self._shared.client_id, old.value, new.value)
