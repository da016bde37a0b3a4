"""A supervised process's side: its number, and how it reports its state.

The supervisor runs its own program again, with a variable in its environment and two pipes. One pipe closes when the
supervisor ends. On the other pipe the process writes its state: one line for every change, and one every second. The
supervisor requests metrics through a socket (:mod:`.metrics`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig

if TYPE_CHECKING:
    from streams_py.runtime.processes.measured import Measured

PROCESS_VARIABLE: Final = "STREAMS_PY_PROCESS"
_INSTANCE_ID: Final = "group.instance.id"


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """The connection to the supervisor.

    Attributes:
        number: Number of the process, from 1.
        lives: File descriptor of a pipe that closes when the supervisor ends.
        states: File descriptor of the pipe for state lines.
        requests: File descriptor of the socket on which the supervisor requests metrics.
    """

    number: int
    lives: int
    states: int
    requests: int

    def to_variable(self) -> str:
        """Return the value for the environment variable of the process."""
        return f"{self.number}:{self.lives}:{self.states}:{self.requests}"

    def report(self, state: str, live: bool, ready: bool) -> None:
        """Report the state of this process. Never blocks, never fails."""
        with contextlib.suppress(OSError):
            os.write(self.states, f"{state} {live:d} {ready:d}\n".encode("ascii"))

    def end_with_supervisor(self) -> None:
        """From now on, send SIGTERM to this process when the supervisor ends, for whatever reason."""

        def watch() -> None:
            with contextlib.suppress(OSError):
                while os.read(self.lives, 1):
                    pass
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()

    @contextlib.contextmanager
    def answering(self, measure: Callable[[], Iterable[Measured]]) -> Iterator[None]:
        """Answer the supervisor's metrics requests on a background thread inside the context."""
        from streams_py.runtime.processes.metrics import answer_requests

        with socket.socket(fileno=os.dup(self.requests)) as requests:
            thread = threading.Thread(
                target=answer_requests, args=(requests, measure), name="supervisor-metrics", daemon=True
            )
            thread.start()
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # the supervisor has ended
                    requests.shutdown(socket.SHUT_RDWR)  # stops the thread; an answer in progress may take a while

    def config(self, config: StreamsConfig) -> StreamsConfig:
        """Return this process's configuration: names that must be unique per process end with its number."""
        own: dict[str, str] = {}
        for key in ClientRole.MAIN_CONSUMER.keys(_INSTANCE_ID):
            if (name := config.clients.get(key)) is not None:
                own[key] = f"{name}-{self.number}"
        if config.client_id:
            own["client.id"] = f"{config.client_id}-{self.number}"
        return StreamsConfig.of(config, **own) if own else config


@functools.cache
def this_process() -> ChildProcess | None:
    """Return this process's connection to its supervisor; None if it is not supervised."""
    text = os.environ.pop(PROCESS_VARIABLE, None)  # removed, so that processes that this one starts don't inherit it
    if text is None:
        return None
    number, lives, states, requests = map(int, text.split(":"))
    for descriptor in (lives, states, requests):
        os.set_inheritable(descriptor, False)
    os.set_blocking(states, False)
    return ChildProcess(number, lives, states, requests)
