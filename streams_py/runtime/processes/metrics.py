"""Metrics of all processes at one address: the supervisor requests them from each process.

The supervisor and each process share a pair of sockets. For each request the supervisor creates another pair and passes
one end of it to the process, which writes its metrics there as JSON and closes it. A late answer therefore never mixes
with the next one.
"""

from __future__ import annotations

import importlib
import json
import logging
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streams_py.errors import ConfigError
from streams_py.runtime.processes.health import parsed_address

if TYPE_CHECKING:
    from streams_py.runtime.processes.measured import Measured

_log = logging.getLogger("streams_py")

ANSWER_S: Final = 5.0
"""Time limit for the answers of all processes to one scrape, in seconds."""
_BYTES_MAX: Final = 64 << 20
"""Size limit for the answer of one process: far above 1,000 tasks at level TRACE."""
_CHUNK_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    """Metrics of one process. ``measured`` is None when the process did not answer in time."""

    application_id: str
    process: int
    restarts: int
    measured: tuple[Measured, ...] | None


# -- the process ---------------------------------------------------------------------------------------------------


def answer_requests(requests: socket.socket, measure: Callable[[], Iterable[Measured]]) -> None:
    """Answer each request with the current metrics, until the supervisor or this process closes ``requests``."""
    cloexec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(requests, 1, 1, cloexec)
        except OSError:
            return
        if not message:
            return
        for descriptor in descriptors:
            with socket.socket(fileno=descriptor) as answer:
                _answer(answer, measure)


def _answer(answer: socket.socket, measure: Callable[[], Iterable[Measured]]) -> None:
    answer.settimeout(ANSWER_S)
    try:
        answer.sendall(json.dumps(list(measure())).encode())
    except OSError as error:  # the supervisor no longer waits
        _log.debug("metrics not sent to the supervisor: %s", error)
    except Exception:
        _log.exception("measuring failed; the supervisor gets no metrics of this process")


# -- the supervisor ------------------------------------------------------------------------------------------------


def request_metrics(requests: socket.socket) -> socket.socket:
    """Send a request without waiting. Return the socket of its answer. OSError: the process accepts no requests."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            socket.send_fds(requests, [b"m"], [theirs.fileno()])
    except BaseException:
        ours.close()
        raise
    return ours


def read_answer(answer: socket.socket, until_s: float) -> tuple[Measured, ...]:
    """Read an answer to its end and close the socket. ``until_s``: ``time.monotonic()`` at which to give up.

    Raises OSError (TimeoutError) without a complete answer, ValueError for an answer that is not metrics.
    """
    received = bytearray()
    with answer:
        while True:
            answer.settimeout(max(0.001, until_s - time.monotonic()))
            chunk = answer.recv(_CHUNK_BYTES)
            if not chunk:
                return _parsed(received)
            received += chunk
            if len(received) > _BYTES_MAX:
                raise ValueError(f"more than {_BYTES_MAX >> 20} MB")


def _parsed(received: bytearray) -> tuple[Measured, ...]:
    from streams_py.runtime.processes.measured import Measured

    try:
        return tuple(
            Measured(str(group), tuple((str(tag), str(of)) for tag, of in tags), str(name), _value(value))
            for group, tags, name, value in json.loads(received)
        )
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _value(value: object) -> float | str:
    if not isinstance(value, str | int | float):
        raise ValueError(f"a metric must be a number or a text, got {type(value).__name__}")
    return value


def serve_metrics(
    address: int | str, read: Callable[[], Iterable[ProcessMetrics]], names: Iterable[str] = ()
) -> AbstractContextManager[object]:
    """Serve Prometheus until the end of the ``with`` block.

    Args:
        address: A port on loopback, or ``host:port``.
        names: Additional host names under which the service may be called.

    Raises:
        ConfigError: The extra ``metrics`` is not installed, or the address is malformed or in use.
    """
    host, port = parsed_address("metrics", address)
    try:  # imported by name: only applications that serve metrics need the extra, and this package is a layer below
        exporter: Any = importlib.import_module("streams_py.metrics.prometheus")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'metrics = {address!r} requires the extra: pip install "kafka-streams-py[metrics]" ({error})'
        ) from None
    server: AbstractContextManager[object] = exporter.ProcessMetricsServer(read, host=host, port=port, names=names)
    return server
