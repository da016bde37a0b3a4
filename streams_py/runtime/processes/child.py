"""What a process knows that a supervisor started: its number, and how to say how it is.

The supervisor runs the program that it is itself once more, with a variable in its environment and two pipes: one ends
when the supervisor does, on the other the process writes how it is, a line whenever that changes, and every second. A
socket brings the supervisor's requests for metrics (:mod:`.metrics`).
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

from streams_py.config.streams_config import StreamsConfig

if TYPE_CHECKING:
    from streams_py.runtime.processes.measured import Measured

__all__ = ["PROCESS_VARIABLE", "ChildProcess", "this_process"]

PROCESS_VARIABLE: Final = "STREAMS_PY_PROCESS"
_INSTANCE_ID: Final = "group.instance.id"
_CONSUMER: Final = ("consumer.", "main.consumer.")


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """``number`` counts from 1; ``lives`` ends with the supervisor, lines are written to ``states``: both are file
    descriptors of pipes. ``requests`` is that of a socket, on which the supervisor requests metrics."""

    number: int
    lives: int
    states: int
    requests: int

    def to_variable(self) -> str:
        """For the environment of the process."""
        return f"{self.number}:{self.lives}:{self.states}:{self.requests}"

    def tell(self, state: str, live: bool, ready: bool) -> None:
        """Say how this process is. Never waits, never fails."""
        with contextlib.suppress(OSError):
            os.write(self.states, f"{state} {live:d} {ready:d}\n".encode("ascii"))

    def end_with_supervisor(self) -> None:
        """From now on the end of the supervisor, however it comes, is a SIGTERM to this process."""

        def watch() -> None:
            with contextlib.suppress(OSError):
                while os.read(self.lives, 1):
                    pass
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()

    @contextlib.contextmanager
    def answering(self, measure: Callable[[], Iterable[Measured]]) -> Iterator[None]:
        """Answer the supervisor's requests for metrics inside, on a thread."""
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
                    requests.shutdown(socket.SHUT_RDWR)  # the thread ends; an answer under way may take a while

    def config(self, config: StreamsConfig) -> StreamsConfig:
        """The configuration of this process: names that must be one process' own end with its number."""
        own: dict[str, str] = {}
        for prefix in ("", *_CONSUMER):
            if (name := config.clients.get(f"{prefix}{_INSTANCE_ID}")) is not None:
                own[f"{prefix}{_INSTANCE_ID}"] = f"{name}-{self.number}"
        if config.client_id:
            own["client.id"] = f"{config.client_id}-{self.number}"
        return StreamsConfig.of(config, **own) if own else config


@functools.cache
def this_process() -> ChildProcess | None:
    """What this process is to a supervisor; None when nobody supervises it."""
    text = os.environ.pop(PROCESS_VARIABLE, None)  # not for processes that this one starts
    if text is None:
        return None
    number, lives, states, requests = map(int, text.split(":"))
    for descriptor in (lives, states, requests):
        os.set_inheritable(descriptor, False)
    os.set_blocking(states, False)
    return ChildProcess(number, lives, states, requests)
