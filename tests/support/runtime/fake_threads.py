"""A client whose stream threads the test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.client.uncaught import StreamThreadExceptionResponse
from streams_py.runtime.group.transport import Leave
from streams_py.runtime.thread.states import State, ThreadState, thread_may_go
from streams_py.runtime.thread.stream_thread import StreamThread, ThreadOwner
from tests.support.runtime.world import World, counting


class FakeThread:
    """A stream thread whose state changes the test makes. ``asked``: calls of the client."""

    def __init__(self, name: str, index: int, owner: ThreadOwner) -> None:
        self.name, self.index = name, index
        self.state = ThreadState.CREATED
        self.replace = False
        self.asked: list[Any] = []
        self.is_current = self.is_drained = self.is_stuck = self.processes_state = False
        self.drain_gains = True
        self.tasks: list[Any] = []
        self.table = self.parts = None
        self._owner: Any = owner  # which gets a fake thread

    def go(self, *states: ThreadState) -> None:
        for state in states:
            if thread_may_go(self.state, state):
                self.state = state
                self._owner.thread_changed(self, state)

    def run(self) -> None:
        self.go(ThreadState.PARTITIONS_ASSIGNED, ThreadState.RUNNING)

    def fail(self, error: Exception) -> None:
        self.is_current = True
        self._owner.thread_failed(self, error)
        self.end()
        self.is_current = False

    def end(self) -> None:
        self.go(ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)
        self._owner.thread_ended(self)

    # -- what the client calls -----------------------------------------------------------------------------

    def start(self) -> None:
        if self.state is ThreadState.CREATED:
            self.asked.append("start")
            self.go(ThreadState.STARTING)

    def shut_down(self, leave: Leave = Leave.STAY, *, timeout_ms: int | None = None) -> None:
        self.asked.append(("shut down", leave, timeout_ms))
        if self.state is ThreadState.CREATED:
            self.go(ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)
        else:
            self.go(ThreadState.PENDING_SHUTDOWN)

    def wait(self, timeout_s: float | None) -> bool:
        self.asked.append(("wait", timeout_s))
        return self.state is ThreadState.DEAD

    def pause(self, paused: bool) -> None:
        self.asked.append(("pause", paused))

    def request_application_shutdown(self) -> None:
        self.asked.append("stop application")

    def drain(self) -> None:
        self.asked.append("drain")


class Client:
    """A KafkaStreams with fake threads, and the calls of its listener."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.world = World(**{"in": 2, "out": 2})
        settings = {
            "application.id": "app",
            "bootstrap.servers": "world:9092",
            "state.dir": str(folder),
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self.listen: Callable[[State, State], object] = lambda new, old: self.heard.append((old, new))
        self.handle: Callable[[Exception], Any] = lambda error: StreamThreadExceptionResponse.SHUTDOWN_CLIENT
        self.streams = KafkaStreams(
            counting(),
            settings,
            on_state=lambda new, old: self.listen(new, old),  # noqa: PLW0108  # tests replace it
            on_error=lambda error: self.handle(error),  # noqa: PLW0108
            clients=self.world,
            clock=self.world.clock,
        )
        self.made: list[FakeThread] = []
        self.heard: list[tuple[State, State]] = []
        self.threads = self.streams._threads  # users see a thread's metadata, and not the thread
        self.factory = self.threads._factory  # real threads would need brokers
        self.factory.new_thread = self._new_thread  # type: ignore[method-assign]

    def _new_thread(self, index: int, owner: ThreadOwner) -> StreamThread:
        self.made.append(FakeThread(f"thread-{index}", index, owner))
        return self.made[-1]  # type: ignore[return-value]  # all that the client uses

    def start(self) -> list[FakeThread]:
        self.streams.start()
        return self.made

    @property
    def path(self) -> str:
        """Return the states that the listener received, in order."""
        return " ".join([self.heard[0][0].name, *(new.name for _, new in self.heard)]) if self.heard else ""
