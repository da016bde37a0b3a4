"""Surrounds a client that runs until a signal: health probes, metrics, and a supervisor for several processes."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.runtime.processes.child import ChildProcess
from streams_py.runtime.processes.health import Health, HealthServer, ProcessHealth
from streams_py.runtime.processes.metrics import ProcessMetrics, serve_metrics
from streams_py.runtime.processes.supervisor import Supervisor, same_program
from streams_py.runtime.thread.states import State

if TYPE_CHECKING:
    from streams_py.runtime.processes.measured import Measured

_CHECK_S: Final = 0.25
_CHECKS_PER_REPORT: Final = 4
"""Number of checks without a change after which the state is reported anyway, so that the supervisor hears every second
that the process is not frozen."""
_SESSION: Final = "session.timeout.ms"
_SESSION_MS: Final = 45_000
"""Kafka's default, in ms."""


class Client(Protocol):
    """The part of KafkaStreams that this module uses."""

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
    """Answer probes, serve metrics, and report the client's state to a supervisor, inside the context.

    Yields the supervisor to run instead of the client, if there are several processes and this is not one of them.

    Args:
        drain: Timeout of the drain after a signal, in seconds; only validated here.
        names: Additional host names under which probes and metrics may be requested.
    """
    _check(client.config, processes, drain)
    with contextlib.ExitStack() as stack:
        if child is not None:
            child.end_with_supervisor()
            stack.enter_context(_reporting(client, child))
            stack.enter_context(child.answering(client.measure))
            yield None
            return
        supervisor = None
        if processes > 1:
            supervisor = Supervisor(processes, same_program(), silence_max_s=_session_s(client.config))
        if supervisor is not None:
            stack.callback(client.close)  # in the supervisor's process it never starts
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
        raise ValueError(f"processes must be at least 1, got {processes}")
    if drain is not None and not drain >= 0:
        raise ValueError(f"drain must be a number of seconds, 0 or greater, got {drain}")
    if processes > 1 and config.application_server:
        raise ConfigError(
            f"application.server = {config.application_server} is the address of one process, but processes = "
            f"{processes}: start each process separately, with its own address",
            key="application.server",
        )


@contextlib.contextmanager
def _reporting(client: Client, child: ChildProcess) -> Iterator[None]:
    """Report the client's state to the supervisor from a background thread, changes immediately."""
    ended = threading.Event()

    def report() -> None:
        reported = None
        checks = 0
        while not ended.wait(_CHECK_S):
            now = (client.state.value, client.is_alive(), client.is_ready())
            checks += 1
            if now != reported or checks >= _CHECKS_PER_REPORT:
                child.report(*now)
                reported, checks = now, 0

    thread = threading.Thread(target=report, name="supervisor-teller", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _session_s(config: StreamsConfig) -> float:
    """Return the session timeout in seconds, after which a group removes a silent member."""
    return config.number_for(ClientRole.MAIN_CONSUMER, _SESSION, _SESSION_MS) / 1_000


def _health_of(client: Client) -> Health:
    one = ProcessHealth(1, os.getpid(), client.state.value, client.is_alive(), client.is_ready(), 0)
    return Health(one.live, one.ready, (one,))
