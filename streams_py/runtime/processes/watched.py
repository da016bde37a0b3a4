"""Around a client that runs until a signal comes: probes, and a supervisor when there are several processes."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.runtime.processes.child import ChildProcess
from streams_py.runtime.processes.health import Health, HealthServer, ProcessHealth
from streams_py.runtime.processes.metrics import ProcessMetrics, serve_metrics
from streams_py.runtime.processes.supervisor import Supervisor, same_program
from streams_py.runtime.thread.states import State

if TYPE_CHECKING:
    from streams_py.runtime.processes.measured import Measured

__all__ = ["Client", "watched"]

_LOOK_S: Final = 0.25
_TOLD_EACH: Final = 4
"""So many looks, of which none has shown anything new: a supervisor hears every second that a process is not frozen."""
_SESSION: Final = "session.timeout.ms"
_SESSION_MS: Final = 45_000
"""Kafka's default."""


class Client(Protocol):
    """KafkaStreams, as seen from here."""

    @property
    def config(self) -> StreamsConfig: ...
    @property
    def state(self) -> State: ...
    def is_alive(self) -> bool: ...
    def is_ready(self) -> bool: ...
    def measure(self) -> list[Measured]: ...
    def close(self) -> bool: ...


@contextlib.contextmanager
def watched(
    client: Client,
    child: ChildProcess | None,
    processes: int,
    health: int | str | None,
    drain: float | None = None,
    metrics: int | str | None = None,
    names: Collection[str] = (),
) -> Iterator[Supervisor | None]:
    """Probes are answered and metrics are served inside, and a supervisor is told how the client is.

    Yields the supervisor to run instead of the client, when there are to be several processes and this is none of them.
    ``drain``, what a signal will ask for, is looked at now. ``names``: further names by which probes and metrics may be
    requested.
    """
    _check(client.config, processes, drain)
    with contextlib.ExitStack() as stack:
        if child is not None:
            child.end_with_supervisor()
            stack.enter_context(_telling(client, child))
            stack.enter_context(child.answering(client.measure))
            yield None
            return
        supervisor = None
        if processes > 1:
            supervisor = Supervisor(processes, same_program(), silence_max_s=_session_s(client.config))
        if supervisor is not None:
            stack.callback(client.close)  # it never starts
        if health is not None:
            look = supervisor.health if supervisor is not None else lambda: _health_of(client)
            stack.enter_context(HealthServer(health, look, names))
        if metrics is not None:
            application_id = client.config.application_id
            read = (
                functools.partial(supervisor.metrics, application_id)
                if supervisor is not None
                else lambda: [ProcessMetrics(application_id, 1, 0, tuple(client.measure()))]
            )
            stack.enter_context(serve_metrics(metrics, read, names))
        yield supervisor


def _check(config: StreamsConfig, processes: int, drain: float | None) -> None:
    if processes < 1:
        raise ValueError(f"processes must be at least 1: {processes}")
    if drain is not None and not drain >= 0:
        raise ValueError(f"drain must be a number of seconds that is not negative: {drain}")
    if processes > 1 and config.application_server:
        raise ConfigError(
            f"application.server = {config.application_server} is one process' address; with {processes} processes "
            "start each by itself, with its own",
            key="application.server",
        )


@contextlib.contextmanager
def _telling(client: Client, child: ChildProcess) -> Iterator[None]:
    """A thread that looks at the client and tells the supervisor how it is: what has changed at once."""
    ended = threading.Event()

    def tell() -> None:
        told = None
        looks = 0
        while not ended.wait(_LOOK_S):
            now = (client.state.value, client.is_alive(), client.is_ready())
            looks += 1
            if now != told or looks >= _TOLD_EACH:
                child.tell(*now)
                told, looks = now, 0

    thread = threading.Thread(target=tell, name="supervisor-teller", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _session_s(config: StreamsConfig) -> float:
    """After so long without a sign of life a group takes a member for dead."""
    own = config.client_setting(_SESSION, "consumer.", "main.consumer.") or ""
    return (int(own) if own.isdecimal() else _SESSION_MS) / 1_000  # who joins says what is wrong with another one


def _health_of(client: Client) -> Health:
    one = ProcessHealth(1, os.getpid(), client.state.value, client.is_alive(), client.is_ready(), 0)
    return Health(one.live, one.ready, (one,))
