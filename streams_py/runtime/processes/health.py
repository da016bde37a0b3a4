"""Answers an orchestrator's probes over HTTP: ``/live``, ``/ready``, and ``/`` with both and one line per process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Final, Self

from streams_py.errors import ConfigError
from streams_py.http.probe import Answer, ProbeServer

_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """Health of one process.

    Attributes:
        state: The client's state; ``RESTARTING`` after the process died; ``SILENT`` if the process runs but has not
            reported its state for the session timeout.
        restarts: Number of deaths.
    """

    process: int
    pid: int | None
    state: str
    live: bool
    ready: bool
    restarts: int


@dataclass(frozen=True, slots=True)
class Health:
    """``live``: if false, only a restart from outside helps. ``ready``: whether every process is ready."""

    live: bool
    ready: bool
    processes: tuple[ProcessHealth, ...]


class HealthServer:
    """Serves health probes on a background thread until the end of the ``with`` block.

    Anyone who can reach it can read the states of the processes, but cannot do anything else.

    Args:
        address: A port on loopback, or ``host:port``. Port 0 is any free port.
        names: Additional host names under which it may be called.

    Raises:
        ConfigError: The address cannot be used.
    """

    def __init__(self, address: int | str, health: Callable[[], Health], names: Iterable[str] = ()) -> None:
        host, port = parsed_address("health", address)
        self._health = health
        self._server = ProbeServer(host, port, self._answer, name="health", key="health", names=names)
        self.port = self._server.port

    def _answer(self, path: str, _: dict[str, str]) -> Answer:
        health = self._health()
        match path.partition("?")[0]:
            case "/":
                good = health.live and health.ready
            case "/live":
                good = health.live
            case "/ready":
                good = health.ready
            case _:
                return Answer(404, "text/plain; charset=utf-8", b"there are /, /live and /ready\n")
        return Answer(200 if good else 503, "application/json", json.dumps(asdict(health)).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.stop()


def parsed_address(name: str, address: int | str) -> tuple[str, int]:
    """Return host and port of ``address``: a port on loopback, or ``host:port``. ConfigError names the argument."""
    host, colon, port = (_LOOPBACK, ":", str(address)) if str(address).isdecimal() else str(address).rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{name} = {address!r} is neither a port nor host:port")
    return host.strip("[]"), int(port)
