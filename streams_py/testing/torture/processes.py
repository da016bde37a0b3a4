"""The processes of a run: instances of the application, and busy ones beside them."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Instance", "busy"]

_MODULE = "streams_py.testing.torture.application"
_TAIL_CHARACTERS = 3_000


class Instance:
    """One instance; ``folder`` has its state, its log and what it dumps."""

    def __init__(self, folder: Path, order: Mapping[str, Any]) -> None:
        self.name = folder.name
        self._folder = folder
        self._dump, self._ready = folder / "dump.json", folder / "ready.txt"
        folder.mkdir(parents=True, exist_ok=True)
        self._order = folder / "order.json"
        config = {**order["config"], "state.dir": str(folder / "state")}
        self._order.write_text(
            json.dumps({**order, "config": config, "dump": str(self._dump), "ready": str(self._ready)})
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0

    def start(self) -> None:
        self._dump.unlink(missing_ok=True)
        command = [sys.executable, "-m", _MODULE, str(self._order)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.started_s = time.monotonic()

    @property
    def _log(self) -> Path:
        return self._folder / "log.txt"

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process of an instance that was started, and not ended by us."""
        assert self._process is not None
        return self._process

    @property
    def has_died(self) -> bool:
        """True when it ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def send(self, number: int) -> None:
        """A signal."""
        self.running.send_signal(number)

    def ask(self, number: int) -> None:
        """A signal that would end a process which is not ready for it yet: then it is not sent."""
        with contextlib.suppress(FileNotFoundError):
            if self._ready.read_text() == str(self.running.pid):
                self.send(number)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self.running.kill()
            self.reap()

    def forget_state(self) -> None:
        """Delete its state directory; it must not run."""
        shutil.rmtree(self._folder / "state", ignore_errors=True)

    def close(self, timeout_s: float) -> int:
        """SIGTERM; the exit status. It is killed when that takes too long, which is -9."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self.running.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.running.kill()
        return self.reap()

    def reap(self) -> int:
        """Wait for its end; the exit status."""
        status = self.running.wait()
        if self.running.stdin is not None:
            with contextlib.suppress(OSError):
                self.running.stdin.close()
        self._process = None
        return status

    def counts(self) -> list[dict[str, int]]:
        """By stage, what its stores said when it was asked to dump them; empty before that."""
        try:
            found = json.loads(self._dump.read_text())
        except FileNotFoundError:
            return []
        return [found[str(stage)] for stage in range(len(found))]

    def tail(self) -> str:
        """The end of its log."""
        with contextlib.suppress(FileNotFoundError):
            return self._log.read_text(errors="replace")[-_TAIL_CHARACTERS:]
        return ""


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that take all the processor they get."""
    command: Sequence[str] = [sys.executable, "-c", "while True: pass"]
    made = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in made:
            process.kill()
            process.wait()
