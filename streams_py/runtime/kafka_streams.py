"""The client: one application instance that runs a topology (Kafka's KafkaStreams).

    KafkaStreams(topology, {"application.id": "word-count", "bootstrap.servers": "localhost:9092"}).run()

In a ``with`` block, entering starts it and leaving closes it. Several instances with one ``application.id`` share the
work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from streams_py.errors import IllegalStateError, StreamsError
from streams_py.runtime.arguments import check_arguments, check_timeout
from streams_py.runtime.client_figures import ClientFigures
from streams_py.runtime.client_state import ClientState, StateListener
from streams_py.runtime.clock import SystemClock
from streams_py.runtime.closing import wait_aloud
from streams_py.runtime.forked import is_left_behind, refuse_when_forked
from streams_py.runtime.hand_over import await_hand_over, have_successors, part_for_hand_over, would_gain
from streams_py.runtime.states import State, ThreadState, is_running
from streams_py.runtime.stop_signals import stop_signals, wait_or_stop
from streams_py.runtime.uncaught import StreamThreadExceptionResponse, UncaughtHandler, response_to
from streams_py.topology.topology import Topology

# What a client is made of is loaded when one is made: who only describes the topology of an application, for a test or
# a tool, imports this class with it.
if TYPE_CHECKING:
    from streams_py.config import StreamsConfig
    from streams_py.ports import Clients, Clock
    from streams_py.runtime.restore.listener import RestoreListener, StandbyUpdateListener
    from streams_py.runtime.threads.stream_thread import StreamThread

__all__ = ["KafkaStreams"]

_log = logging.getLogger("streams_py")

_OVER = (State.PENDING_ERROR, State.ERROR, State.NOT_RUNNING)


class KafkaStreams(ClientFigures):
    """One instance of an application.

    ``config`` is a mapping of Kafka's dotted keys, the path of a ``.toml`` or ``.properties`` file, or a StreamsConfig;
    keyword arguments go on top (``num_stream_threads=2``). ``clients`` and ``clock`` are for tests.

    Callbacks run on the thread that causes them:

    * ``on_state(new, old)`` hears every change of state, in order. It may call any method of this client; :meth:`close`
      does not wait there.
    * ``on_error(error)`` decides what happens when a stream thread fails (KIP-671). Without it the client closes and
      ends in ERROR.
    * ``restore_listener`` hears about the restoration of stores, ``standby_listener`` about copies that are kept.

    Raises ConfigError and TopologyError at once. A broker that cannot be reached is not an error: the client stays
    REBALANCING, warns, and goes on when the broker is there.
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
        from streams_py.config import StreamsConfig
        from streams_py.runtime.client_resources import ClientResources
        from streams_py.runtime.client_supplier import clients_of
        from streams_py.runtime.processes.child import this_process

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
        """Delete the application's local state. Only before start or after close."""
        if self._state.now is not State.CREATED and not self._state.now.is_final:
            raise IllegalStateError(
                f"local state can be deleted only before start or after close; state {self._state.now.value}"
            )
        self._instance.clean_up()

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the stream threads; returns at once, or, with global tables and stores, when those are filled.

        Raises StateError when the state directory cannot be written, IllegalStateError on a second start, ConfigError
        when the cluster refuses the login or the certificates, or has none that can be trusted, and RuntimeError when
        the process can have no more threads.
        """
        with self._state.changing():
            if self._state.now is not State.CREATED:
                raise IllegalStateError(
                    f"this client was started already (state {self._state.now.value}); make a new one"
                )
            self._instance.open()
            refuse_when_forked(self)
            count = self._config.num_stream_threads if self._instance.has_tasks else 0
            threads = [self._new_thread(index) for index in range(1, count + 1)]
            self._state.go(State.REBALANCING)
        try:
            is_filled = self._instance.start_global_thread(self._shut_down_in_error)
        except Exception as error:
            self._shut_down_in_error(error)
            raise
        if not is_filled:
            return  # somebody closes this client: nothing may be processed without its global stores
        if not threads:
            self._run_without_threads()
        try:
            for thread in threads:
                thread.start()  # nothing happens when the state listener has closed this client already
        except RuntimeError as error:
            self._shut_down_in_error(error)
            raise

    def _run_without_threads(self) -> None:
        """There are only global stores, and those are filled. Or ``num.stream.threads`` is 0."""
        if self._instance.has_tasks:
            _log.warning(
                "num.stream.threads is 0: this instance processes no records until add_stream_thread() is called; set "
                "it to 1 or more if that is not intended"
            )
        with self._state.changing():
            if self._state.now is State.REBALANCING:
                self._state.go(State.RUNNING)

    def drain(self, timeout: float | None = 60.0) -> bool:
        """Have the other instances take the tasks over, one after the other, while this one goes on with the rest;
        True when they have. Then ``close(leave_group=True)``: nothing moves any more.

        A task with state moves when its new instance has caught up with its changelog; until then it is processed here.
        False when that has not happened within ``timeout`` seconds (None: wait as long as it takes), or the client has
        ended: what is left moves when it is closed. That is so when no other instance runs, when a Java member or an
        assignor of yours decides for the group, and in a group with members older than Kafka Streams 3.2. There is no
        way back: this instance gets no tasks any more. Called from a stream thread (a handler, a listener, a processor)
        it asks, and never waits.
        """
        check_timeout(timeout)
        return self._hand_over(timeout, self._is_working)

    def _hand_over(self, timeout: float | None, goes_on: Callable[[], bool]) -> bool:
        with self._lock:
            if not self._is_working():
                return False
            self._draining = True
            for thread in self._threads.values():
                thread.drain()
        name = self._instance.client_id
        _log.info("%s: draining: other instances are to take its tasks over", name)
        if self._is_called_back():
            return all(thread.is_drained for thread in self._current_threads())
        return await_hand_over(name, self._current_threads, self._clock, goes_on, timeout)

    def _is_working(self) -> bool:
        return self._state.now.is_running_or_rebalancing

    def close(self, timeout: float | None = None, *, leave_group: bool = False) -> bool:
        """Stop everything: commit, close tasks, free the state directory. True when that is done.

        ``timeout`` in seconds: None waits as long as it takes, 0 does not wait. False when time was up; closing goes on
        in the background. Called from a stream thread (a handler, a listener, a processor) it never waits.

        Without ``leave_group`` tasks move after the session time-out, so that a restarted instance finds its tasks
        again. With it the members leave the group, and tasks with state are handed over first, as by :meth:`drain`
        unless that was called before, for a third of ``timeout`` at most (None: 20 s) and while there is somebody to
        take them. A second call cuts that short.
        """
        check_timeout(timeout)
        began_ms = self._clock.monotonic_ms()
        try:
            if leave_group and timeout != 0:
                self._hand_over_to_leave(part_for_hand_over(timeout))
        except Exception:
            _log.exception("%s: closes without handing its tasks over", self._instance.client_id)
        finally:  # also when a signal's handler raises
            if timeout is not None:
                timeout = max(0.0, timeout - (self._clock.monotonic_ms() - began_ms) / 1000)
            with self._state.changing():
                if self._state.now is State.CREATED or self._is_working():
                    self._state.go(State.PENDING_SHUTDOWN)
                    # 0 means that nobody waits, not that nothing may be finished.
                    self._shut_down_threads(leave_group=leave_group or self._leaving, timeout=timeout or None)
                if self._is_called_back():
                    timeout = 0
        self._finish_if_ended()
        return self._state.wait_for_end(timeout)

    def _hand_over_to_leave(self, timeout: float) -> None:
        with self._lock:
            in_vain = self._is_called_back() or self._draining or not self._is_working()
            if in_vain or not would_gain(self._current_threads()):
                return
            self._leaving = True
        self._hand_over(timeout, lambda: self._is_working() and have_successors(self._current_threads()))

    def _is_called_back(self) -> bool:
        """True inside a callback of this client, where waiting for its end would never end."""
        everywhere = self._instance.global_thread
        is_own = any(thread.is_current for thread in self._threads.values())
        return self._state.is_telling or is_own or (everywhere is not None and everywhere.is_current)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the client has ended (NOT_RUNNING or ERROR); False when ``timeout`` seconds are over first.

        Raises the error of a failed stream thread when the client ended in ERROR because of it. In a ``with`` block on
        the main thread SIGINT (Ctrl-C) and SIGTERM close the client and so end the wait, unless the program handles
        them itself.
        """
        if self._in_context:
            with stop_signals(replace_handlers=False) as asked:
                ended = wait_or_stop(asked, self._state.wait_for_end, timeout) or (
                    asked.is_set() and self._close_aloud()
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
    ) -> None:
        """Start, work until SIGINT (Ctrl-C) or SIGTERM, then close. For programs that do nothing else.

        ``drain``: after the signal, give other instances so many seconds to take the tasks over (:meth:`drain`), and
        then leave the group; for an instance that is not to come back.

        While it closes, the log says what it waits for. A second signal ends the process at once. Call it on the main
        thread. Raises the error of a failed stream thread, as :meth:`wait` does.

        With ``processes`` this program is run so many times, as members of one group, a core each. This process only
        looks after them: one that dies is started again, a signal closes all. Each has its own state directory, and its
        number at the end of ``group.instance.id`` and ``client.id``. ``health``, a port on loopback or ``host:port``,
        answers HTTP probes: ``/live``, ``/ready``, and ``/`` with a line per process. ``metrics``, such an address,
        serves the metrics of all processes to Prometheus, with the label ``process``; it needs the extra ``metrics``.
        """
        from streams_py.runtime.processes.watched import watched

        asked_by = stop_signals(at_first=self._instance.stop_filling)
        with asked_by as asked, watched(self, self._child, processes, health, drain, metrics) as supervisor:
            if supervisor is not None:
                self._instance.check_connection()  # what is refused for good would only be started again, for ever
                supervisor.run(asked)
                return
            with self:
                if not wait_or_stop(asked, self._state.wait_for_end, None):
                    self._close_aloud(drain=drain)
        self.wait()

    def _close_aloud(self, *, drain: float | None = None) -> bool:
        """Close after a signal: as long as it takes, saying what it takes."""
        has_begun = any(thread.state is not ThreadState.CREATED for thread in self._current_threads())
        if drain is not None and has_begun:  # else it was still filling its global stores, and has no tasks
            self.drain(drain)
        _log.info("%s: closing; a second signal ends the process at once", self._instance.client_id)
        self.close(0, leave_group=drain is not None)
        wait_aloud(
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
        if not is_left_behind(self):  # else an exception that ends the block in a forked child is not replaced
            self._in_context = False
            self.close()

    # -- observation -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """State of the client."""
        return self._state.now

    def is_alive(self) -> bool:
        """For a liveness probe: False when only a new process helps. That is after the client has failed or ended, and
        while a stream thread has been busy with one record, or one call, for longer than ``max.poll.interval.ms``."""
        return self._state.now not in _OVER and not any(thread.is_stuck for thread in self._current_threads())

    def is_ready(self) -> bool:
        """For a readiness probe: True while every task that the group has given to this instance is processed here, or
        none was given. False before that, while tasks restore, after :meth:`drain`, and from the moment on in which it
        closes. Standbys do not matter."""
        return self._state.now is State.RUNNING and not self._draining

    @property
    def error(self) -> Exception | None:
        """What a stream thread failed with, if that ended the client."""
        return self._error

    @property
    def config(self) -> StreamsConfig:
        """The checked configuration."""
        return self._config

    def wait_until(self, state: State, timeout: float | None = None) -> bool:
        """Block until the client is in ``state``; False when ``timeout`` seconds are over, or it ended otherwise."""
        return self._state.wait_until(lambda now: now is state or now.is_final, timeout) is state

    # -- threads ---------------------------------------------------------------------------------------------

    def add_stream_thread(self) -> str | None:
        """Start one more stream thread; its name, or None when the client is not RUNNING or REBALANCING."""
        with self._lock:
            if not self._state.now.is_running_or_rebalancing:
                return None
            self._forget_dead()
            index = next(number for number in range(1, len(self._threads) + 2) if number not in self._threads)
            thread = self._new_thread(index)
        thread.start()
        return thread.name

    def remove_stream_thread(self, timeout: float | None = None) -> str | None:
        """Stop one stream thread, not the calling one if possible; it leaves the group. Its name, or None. StreamsError
        when it does not end within ``timeout`` seconds."""
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
            raise StreamsError(f"{thread.name} did not end within {timeout} s; its removal goes on")
        with self._lock:
            self._forget_dead()
            self._share_cache()
        return thread.name

    def pause(self) -> None:
        """Stop processing, punctuating and restoring; members stay in the group and the state stays RUNNING."""
        self._pause(True)

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
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
        known = self._threads.items()  # one that is to be replaced keeps its number
        self._threads = {i: thread for i, thread in known if thread.state is not ThreadState.DEAD or thread.replace}

    def _shut_down_threads(self, *, leave_group: bool = False, timeout: float | None = None) -> None:
        """Ask all threads to end; the last one that does completes the shutdown."""
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
            ):  # also when the last slow thread has ended
                self._state.go(State.RUNNING)

    def _thread_failed(self, thread: StreamThread, error: Exception) -> None:
        answer = response_to(error, self._uncaught)
        with self._state.changing():
            self._failed_threads += 1
            if not self._state.now.is_running_or_rebalancing:
                return
            if self._stopping_application:  # the thread that was to carry the news has failed, too
                answer = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
            match answer:
                case StreamThreadExceptionResponse.SHUTDOWN_CLIENT:
                    self._shut_down_in_error(error)
                case StreamThreadExceptionResponse.REPLACE_THREAD if thread.state is ThreadState.PENDING_SHUTDOWN:
                    _log.warning("%s failed while it was removed, and is not replaced: %s", thread.name, error)
                case StreamThreadExceptionResponse.REPLACE_THREAD:
                    _log.warning("%s failed and is replaced: %s", thread.name, error)
                    thread.replace = True
                case StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
                    # Its place is taken by a thread that carries the news to the leader, who tells everybody.
                    _log.error("%s failed; shutting down every client of the application: %s", thread.name, error)
                    self._error = error
                    self._stopping_application = thread.replace = True
                    for other in self._threads.values():
                        other.request_application_shutdown()

    def _application_stops(self) -> None:
        """The leader told everybody to shut down."""
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
            elif self._state.now.is_running_or_rebalancing:  # it was removed, and perhaps nobody waits for it any more
                self._forget_dead()
                self._share_cache()
        if replacement is not None:
            try:
                replacement.start()
            except RuntimeError as error:
                _log.exception("%s cannot be replaced", thread.name)
                self._shut_down_in_error(error)
        self._finish_if_ended()

    def _finish_if_ended(self) -> None:
        """When every thread is dead: free what the client holds and take the final state.

        Not under the lock: closing clients may take a while, and nobody who waits with a time-out must wait for that.
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
