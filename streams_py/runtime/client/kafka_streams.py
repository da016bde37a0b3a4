"""The client: one application instance that runs a topology (Kafka's KafkaStreams).

    KafkaStreams(topology, {"application.id": "word-count", "bootstrap.servers": "localhost:9092"}).run()

Entering a ``with`` block starts the client, leaving the block closes it. Several instances with one ``application.id``
share the work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from streams_py.errors import IllegalStateError, StreamsError
from streams_py.runtime.client.arguments import check_arguments, check_timeout
from streams_py.runtime.client.forked import is_left_behind, refuse_when_forked
from streams_py.runtime.client.hand_over import await_hand_over, have_successors, part_for_hand_over, would_help
from streams_py.runtime.client.observing import ClientReports
from streams_py.runtime.client.state import ClientState, StateListener
from streams_py.runtime.client.uncaught import StreamThreadExceptionResponse, UncaughtHandler, response_to
from streams_py.runtime.thread.states import State, ThreadState, is_running
from streams_py.system.clock import SystemClock
from streams_py.system.close_report import wait_and_log
from streams_py.system.stop_signals import stop_signals, wait_or_stop
from streams_py.topology.topology import Topology

# The modules that a running client needs are imported when one is created. A test or a tool that only describes the
# topology of an application imports this class without them.
if TYPE_CHECKING:
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.ports import Clients, Clock
    from streams_py.runtime.restore.listener import RestoreListener, StandbyUpdateListener
    from streams_py.runtime.thread.stream_thread import StreamThread

__all__ = ["KafkaStreams"]

_log = logging.getLogger("streams_py")

_STOPPED = (State.PENDING_ERROR, State.ERROR, State.NOT_RUNNING)


class KafkaStreams(ClientReports):
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
        from streams_py.runtime.processes.child import this_process
        from streams_py.runtime.wiring.client_supplier import clients_of
        from streams_py.runtime.wiring.shared import ClientResources

        check_arguments(topology, on_state, on_error, restore_listener, standby_listener)
        self._config = StreamsConfig.of(config, **settings)
        self._child = this_process()
        self._config = self._child.config(self._config) if self._child else self._config
        self._clock = clock or SystemClock()
        used = clients or clients_of(self._config)
        try:
            self._instance = ClientResources(topology, self._config, used, self._clock)
        except BaseException:
            if clients is None:
                used.close()
            raise
        self._instance.on_stop_application = self._application_stops
        if restore_listener is not None:
            self._instance.restore_listener = restore_listener
        if standby_listener is not None:
            self._instance.standby_listener = standby_listener
        self._state = ClientState(self._state_changed, on_state)
        self._lock = self._state.lock
        self._threads: dict[int, StreamThread] = {}
        self._uncaught = on_error
        self._failed_threads = 0
        self._stopping_application = False
        self._paused = self._draining = self._leaving = False
        self._finishing = False
        self._in_context = False
        self._error: Exception | None = None

    # -- before start ----------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Delete the application's local state. Only before :meth:`start` or after :meth:`close`."""
        if self._state.now is not State.CREATED and not self._state.now.is_final:
            raise IllegalStateError(
                f"local state can only be deleted before start() or after close(); state {self._state.now.value}"
            )
        self._instance.clean_up()

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
            self._instance.open()
            refuse_when_forked(self)
            count = self._config.num_stream_threads if self._instance.has_tasks else 0
            threads = [self._new_thread(index) for index in range(1, count + 1)]
            self._state.go(State.REBALANCING)
        try:
            is_restored = self._instance.start_global_thread(self._shut_down_in_error)
        except Exception as error:
            self._shut_down_in_error(error)
            raise
        if not is_restored:
            return  # the client is closing; without its global stores, nothing may be processed
        if not threads:
            self._run_without_threads()
        try:
            for thread in threads:
                thread.start()  # does nothing if the state listener has already closed this client
        except RuntimeError as error:
            self._shut_down_in_error(error)
            raise

    def _run_without_threads(self) -> None:
        """Change to RUNNING: there are only global stores, or ``num.stream.threads`` is 0."""
        if self._instance.has_tasks:
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
        return self._hand_over(timeout, self._is_working)

    def _hand_over(self, timeout: float | None, should_wait: Callable[[], bool]) -> bool:
        with self._lock:
            if not self._is_working():
                return False
            self._draining = True
            for thread in self._threads.values():
                thread.drain()
        name = self._instance.client_id
        _log.info("%s: draining: waiting for other instances to take over its tasks", name)
        if self._is_in_callback():
            return all(thread.is_drained for thread in self._current_threads())
        return await_hand_over(name, self._current_threads, self._clock, should_wait, timeout)

    def _is_working(self) -> bool:
        return self._state.now.is_running_or_rebalancing

    def close(self, timeout: float | None = None, *, leave_group: bool = False) -> bool:
        """Stop everything: commit, close the tasks, and release the state directory.

        Without ``leave_group``, tasks move only after the session timeout, so that a restarted instance gets its tasks
        back. With it, the members leave the group. Tasks with state are handed over first, as by :meth:`drain` (unless
        that was already called), if another instance can take them. The hand-over takes at most a third of ``timeout``
        (None: 20 s). A second call ends it early.

        From a stream thread (a handler, a listener, a processor) the call never waits.

        Args:
            timeout: Seconds to wait; None waits without limit, 0 does not wait.
            leave_group: Whether the members leave the group, because this instance will not come back.

        Returns:
            True once all is closed. False on time-out; closing continues in the background.
        """
        check_timeout(timeout)
        began_ms = self._clock.monotonic_ms()
        try:
            if leave_group and timeout != 0:
                self._hand_over_to_leave(part_for_hand_over(timeout))
        except Exception:
            _log.exception("%s: handing the tasks over failed; closing without it", self._instance.client_id)
        finally:  # also if a signal handler raises
            if timeout is not None:
                timeout = max(0.0, timeout - (self._clock.monotonic_ms() - began_ms) / 1000)
            with self._state.changing():
                if self._state.now is State.CREATED or self._is_working():
                    self._state.go(State.PENDING_SHUTDOWN)
                    # 0 means that the caller does not wait. The threads still finish their work.
                    self._shut_down_threads(leave_group=leave_group or self._leaving, timeout=timeout or None)
                if self._is_in_callback():
                    timeout = 0
        self._finish_if_ended()
        return self._state.wait_for_end(timeout)

    def _hand_over_to_leave(self, timeout: float) -> None:
        with self._lock:
            is_pointless = self._is_in_callback() or self._draining or not self._is_working()
            if is_pointless or not would_help(self._current_threads()):
                return
            self._leaving = True
        self._hand_over(timeout, lambda: self._is_working() and have_successors(self._current_threads()))

    def _is_in_callback(self) -> bool:
        """Whether the caller is a callback of this client, where waiting for the close would block forever."""
        everywhere = self._instance.global_thread
        is_own = any(thread.is_current for thread in self._threads.values())
        return self._state.is_in_listener or is_own or (everywhere is not None and everywhere.is_current)

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
        if self._state.now is State.ERROR and self._error is not None:
            raise self._error
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

        signals = stop_signals(on_first=self._instance.cancel_global_restore)
        with signals as asked, watched(self, self._child, processes, health, drain, metrics, names) as supervisor:
            if supervisor is not None:
                self._instance.check_connection()  # else the supervisor would restart rejected processes forever
                supervisor.run(asked)
                return
            with self:
                if not wait_or_stop(asked, self._state.wait_for_end, None):
                    self._close_and_log(drain=drain)
        self.wait()

    def _close_and_log(self, *, drain: float | None = None) -> bool:
        """Close after a signal, without a time limit, and log what the close waits for."""
        has_started = any(thread.state is not ThreadState.CREATED for thread in self._current_threads())
        if drain is not None and has_started:  # else it was still restoring its global stores and has no tasks
            self.drain(drain)
        _log.info("%s: closing; a second signal kills the process immediately", self._instance.client_id)
        self.close(0, leave_group=drain is not None)
        wait_and_log(
            self._state.wait_for_end,
            lambda: [thread for thread in self._current_threads() if thread.state is not ThreadState.DEAD],
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
        return self._state.now not in _STOPPED and not any(thread.is_stuck for thread in self._current_threads())

    def is_ready(self) -> bool:
        """Whether this instance processes all of its assigned tasks, for a readiness probe. True without tasks.

        It is False before the first assignment, while tasks restore, after :meth:`drain`, and once the client begins to
        close. Standby tasks do not matter.
        """
        return self._state.now is State.RUNNING and not self._draining

    @property
    def error(self) -> Exception | None:
        """The error of the stream thread whose failure stopped the client; None without one."""
        return self._error

    @property
    def config(self) -> StreamsConfig:
        """The validated configuration."""
        return self._config

    def wait_until(self, state: State, timeout: float | None = None) -> bool:
        """Block until the client is in ``state``; False if it stopped otherwise or ``timeout`` seconds have elapsed."""
        return self._state.wait_until(lambda now: now is state or now.is_final, timeout) is state

    # -- threads ---------------------------------------------------------------------------------------------

    def add_stream_thread(self) -> str | None:
        """Start one more stream thread. Return its name, or None if the client is not RUNNING or REBALANCING."""
        with self._lock:
            if not self._state.now.is_running_or_rebalancing:
                return None
            self._forget_dead()
            index = next(number for number in range(1, len(self._threads) + 2) if number not in self._threads)
            thread = self._new_thread(index)
        thread.start()
        return thread.name

    def remove_stream_thread(self, timeout: float | None = None) -> str | None:
        """Stop one stream thread, if possible not the calling one. Its member leaves the group.

        Returns:
            The name of the thread; None without a running thread.

        Raises:
            StreamsError: The thread did not stop within ``timeout`` seconds.
        """
        with self._state.changing():
            alive = [
                t for t in self._threads.values() if t.state not in (ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)
            ]
            alive.sort(key=lambda thread: thread.is_current)
            if not alive or not self._state.now.is_running_or_rebalancing:
                return None
            thread = alive[0]
            thread.shut_down(leave_group=True, timeout_ms=_millis(timeout))
        if not thread.is_current and not thread.wait(timeout):
            raise StreamsError(f"{thread.name} did not stop within {timeout} s; its removal continues")
        with self._lock:
            self._forget_dead()
            self._share_cache()
        return thread.name

    def pause(self) -> None:
        """Stop processing, punctuating and restoring. Members stay in the group and the state stays RUNNING."""
        self._pause(True)

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._pause(False)

    def _pause(self, paused: bool) -> None:
        with self._lock:
            self._paused = paused
            for thread in self._threads.values():
                thread.pause(paused)

    def _new_thread(self, index: int) -> StreamThread:
        thread = self._instance.new_thread(
            index, on_state=self._thread_changed, on_error=self._thread_failed, on_end=self._thread_ended
        )
        thread.pause(self._paused)
        if self._draining:
            thread.drain()
        self._threads = {**self._threads, index: thread}
        self._share_cache()
        return thread

    def _share_cache(self) -> None:
        self._instance.share_cache(sum(t.state is not ThreadState.DEAD for t in self._threads.values()))

    def _forget_dead(self) -> None:
        known = self._threads.items()  # a thread that will be replaced keeps its number
        self._threads = {i: thread for i, thread in known if thread.state is not ThreadState.DEAD or thread.replace}

    def _shut_down_threads(self, *, leave_group: bool = False, timeout: float | None = None) -> None:
        """Request all threads to stop. The last one completes the shutdown."""
        for thread in self._threads.values():
            thread.shut_down(leave_group=leave_group, timeout_ms=_millis(timeout))

    # -- called by stream threads ------------------------------------------------------------------------------

    def _thread_changed(self, thread: StreamThread, new: ThreadState) -> None:
        with self._state.changing():
            states = [t.state for t in self._threads.values()]
            if self._state.now is State.RUNNING and new in (
                ThreadState.PARTITIONS_REVOKED,
                ThreadState.PARTITIONS_ASSIGNED,
            ):
                self._state.go(State.REBALANCING)
            elif self._state.now is State.REBALANCING and is_running(
                states
            ):  # also if the last thread that was not running has stopped
                self._state.go(State.RUNNING)

    def _thread_failed(self, thread: StreamThread, error: Exception) -> None:
        answer = response_to(error, self._uncaught)
        with self._state.changing():
            self._failed_threads += 1
            if not self._state.now.is_running_or_rebalancing:
                return
            if self._stopping_application:  # the thread that should have sent the request failed, too
                answer = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
            match answer:
                case StreamThreadExceptionResponse.SHUTDOWN_CLIENT:
                    self._shut_down_in_error(error)
                case StreamThreadExceptionResponse.REPLACE_THREAD if thread.state is ThreadState.PENDING_SHUTDOWN:
                    _log.warning("%s failed while it was being removed; not replaced: %s", thread.name, error)
                case StreamThreadExceptionResponse.REPLACE_THREAD:
                    _log.warning("%s failed; replacing it: %s", thread.name, error)
                    thread.replace = True
                case StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
                    # A replacement sends the request to the leader, which sends it to all members.
                    _log.error("%s failed; shutting down every client of the application: %s", thread.name, error)
                    self._error = error
                    self._stopping_application = thread.replace = True
                    for other in self._threads.values():
                        other.request_application_shutdown()

    def _application_stops(self) -> None:
        """Handle the leader's request to all members to shut down."""
        self._shut_down_in_error(
            self._error or StreamsError("a member of the application asked all members to shut down")
        )

    def _shut_down_in_error(self, error: Exception) -> None:
        with self._state.changing():
            if self._state.now.is_running_or_rebalancing:
                self._error = error
                self._state.go(State.PENDING_ERROR)
                self._shut_down_threads()
        self._finish_if_ended()

    def _thread_ended(self, thread: StreamThread) -> None:
        with self._lock:
            replacement = None
            if thread.replace and self._state.now.is_running_or_rebalancing:
                replacement = self._new_thread(thread.index)
                if self._stopping_application:
                    replacement.request_application_shutdown()
            elif self._state.now.is_running_or_rebalancing:  # it was removed; perhaps the remover no longer waits
                self._forget_dead()
                self._share_cache()
        if replacement is not None:
            try:
                replacement.start()
            except RuntimeError as error:
                _log.exception("%s: starting its replacement failed; shutting down this client", thread.name)
                self._shut_down_in_error(error)
        self._finish_if_ended()

    def _finish_if_ended(self) -> None:
        """Once all threads are dead, close the shared resources and change to the final state.

        Closing may take a while. It happens without the lock, so that callers with a time-out don't wait for it.
        """
        with self._lock:
            if self._state.now not in (State.PENDING_SHUTDOWN, State.PENDING_ERROR) or self._finishing:
                return
            if any(thread.state is not ThreadState.DEAD for thread in self._threads.values()):
                return
            self._finishing = True
        try:
            self._instance.close()
        except Exception:
            _log.exception("closing the clients failed")
        with self._state.changing():
            self._state.go(State.NOT_RUNNING if self._state.now is State.PENDING_SHUTDOWN else State.ERROR)

    def _state_changed(self, new: State, old: State) -> None:
        self._instance.running_since_ms = self._clock.monotonic_ms() if new is State.RUNNING else None
        _log.info("%s: %s -> %s", self._instance.client_id, old.value, new.value)


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
