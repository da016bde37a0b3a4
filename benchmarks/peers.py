"""The peers of the record benchmarks as processes: their commands and requirements."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import BenchmarkError
from benchmarks.java_peers import compiled
from benchmarks.jobs import Order
from streams_py.testing.broker import KAFKA_VERSION

_ROOT = Path(__file__).resolve().parent.parent
_QUIX = "quixstreams==3.28.1"
_QUIX_FOLDER = _ROOT / ".venv-bench"
_END_S = 30.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A program that does the same jobs. ``command`` prepares it, and raises BenchmarkError if that is not possible."""

    name: str
    title: str
    command: Callable[[Path], list[str]]
    """Returns the command without its arguments. Parameter: a folder for build results."""


def _python(kind: str) -> Callable[[Path], list[str]]:
    return lambda _: [sys.executable, "-m", "benchmarks.jobs", kind]


def _java(folder: Path) -> list[str]:
    """Compile the peer against the broker's own jars."""
    java, *classes = compiled("Peer.java", folder)
    return [java, "-Xmx1g", *classes, "Peer"]


def _quix(_: Path) -> list[str]:
    """Return the command of Quix Streams, in a separate environment because it pins other versions of the clients.

    The environment is created on first use.
    """
    python = _QUIX_FOLDER / "bin" / "python"
    if not (_QUIX_FOLDER / ".complete").exists():
        shutil.rmtree(_QUIX_FOLDER, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(_QUIX_FOLDER)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _QUIX],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip() or "no reason given").splitlines()[-1]
                raise BenchmarkError(f"not installed: {last[:80]}")
        (_QUIX_FOLDER / ".gitignore").write_text("*\n")
        (_QUIX_FOLDER / ".complete").touch()
    return [str(python), "-W", "ignore", str(Path(__file__).parent / "quix_peer.py")]


OURS = Peer("ours", "streams_py", _python("ours"))
BARE = Peer("bare", "bare confluent-kafka loop", _python("bare"))
JAVA = Peer("java", f"Java Kafka Streams {KAFKA_VERSION}", _java)
QUIX = Peer("quix", f"Quix Streams {_QUIX.partition('==')[2]}", _quix)
ONE_PROCESS = Peer("one-process", "the same in one process", _python("one-process"))
AT_LEAST_ONCE = Peer("at-least-once", "the same at least once", _python("at-least-once"))
PEERS = {peer.name: peer for peer in (OURS, BARE, JAVA, QUIX, ONE_PROCESS, AT_LEAST_ONCE)}

_commands: dict[tuple[str, Path], list[str] | BenchmarkError] = {}
"""Command by peer and folder of its build results. Each benchmark deletes its folder at its end."""


def command_of(peer: Peer, folder: Path) -> list[str]:
    """Return the command that starts ``peer``. Prepared once per folder.

    Raises:
        BenchmarkError: The peer cannot be prepared; the message says why.
    """
    key = peer.name, folder
    if key not in _commands:
        try:
            _commands[key] = peer.command(folder)
        except BenchmarkError as error:
            _commands[key] = error
    found = _commands[key]
    if isinstance(found, BenchmarkError):
        raise found
    return found


class Running:
    """A running peer; a context manager that stops it."""

    def __init__(self, peer: Peer, command: list[str], order: Order) -> None:
        self._peer = peer
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in __exit__
        self._process = subprocess.Popen(
            [*command, *order], stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, cwd=_ROOT, text=True
        )

    def check(self) -> None:
        """Raise BenchmarkError if it has stopped unexpectedly."""
        if self._process.poll() is not None:
            self._log.seek(0)
            raise BenchmarkError(f"{self._peer.title} stopped early:\n{self._log.read()[-2000:]}")

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def let_end(self) -> None:
        """Close its standard input, so that it stops, without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def wait_for_end(self) -> None:
        """Wait until it has stopped. Raises BenchmarkError if that takes too long."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{self._peer.title} did not stop within {_END_S:.0f} s") from None

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
