"""The processes of a run: instances of the application, and processes that use up processor time."""

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

from streams_py.testing.torture.disk import SmallDisk
from streams_py.testing.torture.proxy import Proxy
from streams_py.testing.torture.usage import Use, measured

_MODULE = "streams_py.testing.torture.application"
_TAIL_CHARACTERS = 3_000
_STEP_S = 0.05


class Instance:
    """One instance of the application.

    Args:
        folder: Folder for its log, its dumps and its state, unless it has a separate ``disk`` for the state.
        order: Topics, stages and configuration.
        brokers: Address of a broker, or a proxy that can disturb the connections.
        disk: Separate disk for the state directory, which can be made full.
    """

    def __init__(
        self, folder: Path, order: Mapping[str, Any], brokers: str | Proxy, disk: SmallDisk | None = None
    ) -> None:
        self.name = folder.name
        self._brokers = brokers
        self.disk = disk
        self.expected_error: str | None = None
        """Part of the error with which it may fail until its next start."""
        self.stays_down = False
        """Whether it is not restarted for now, because it would fail again."""
        self._folder = folder
        self._state = (folder if disk is None else disk.folder) / "state"
        self._dump, self._ready = folder / "dump.json", folder / "ready.txt"
        folder.mkdir(parents=True, exist_ok=True)
        self._order = folder / "order.json"
        self._order.touch(mode=0o600)  # it may contain a password
        bootstrap = brokers if isinstance(brokers, str) else brokers.bootstrap
        config = {**order["config"], "state.dir": str(self._state), "bootstrap.servers": bootstrap}
        self._order.write_text(
            json.dumps({**order, "config": config, "dump": str(self._dump), "ready": str(self._ready)})
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._log_began = 0
        self.uses: list[Use] = []
        """Samples of its memory and open files since its start."""
        self.started_s = 0.0

    def start(self) -> None:
        self._dump.unlink(missing_ok=True)
        self.uses.clear()
        self.expected_error = None
        command = [sys.executable, "-m", _MODULE, str(self._order)]
        with self._log.open("ab") as log:
            self._log_began = log.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.started_s = time.monotonic()

    @property
    def has_proxy(self) -> bool:
        """Whether it connects to the brokers through a proxy."""
        return isinstance(self._brokers, Proxy)

    @property
    def proxy(self) -> Proxy:
        """The proxy of an instance that has one."""
        assert isinstance(self._brokers, Proxy)
        return self._brokers

    @property
    def _log(self) -> Path:
        return self._folder / "log.txt"

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process of an instance that was started and not stopped by this run."""
        assert self._process is not None
        return self._process

    @property
    def has_died(self) -> bool:
        """Whether its process has terminated without a stop by this run."""
        return self._process is not None and self._process.poll() is not None

    def send(self, number: int) -> None:
        """Send a signal."""
        self.running.send_signal(number)

    def ask(self, number: int) -> None:
        """Send a signal, but only if the process has installed its handlers; otherwise the signal would stop it."""
        if self._is_ready:
            self.send(number)

    @property
    def _is_ready(self) -> bool:
        try:
            return self._ready.read_text() == str(self.running.pid)
        except FileNotFoundError:
            return False

    def kill(self) -> None:
        """Kill it with SIGKILL and wait for its end."""
        if self._process is not None:
            self.running.kill()
            self.reap()

    def forget_state(self) -> None:
        """Delete its state directory. It must not be running."""
        shutil.rmtree(self._state, ignore_errors=True)

    def close(self, timeout_s: float) -> int:
        """Send SIGTERM when its handlers are installed; return the exit status.

        It is killed after ``timeout_s``; the status is then -9.
        """
        until_s = time.monotonic() + timeout_s
        self.send(signal.SIGCONT)
        while not (self._is_ready or self.has_died) and time.monotonic() < until_s:
            time.sleep(_STEP_S)
        self.send(signal.SIGTERM)
        try:
            self.running.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.running.kill()
        return self.reap()

    def reap(self) -> int:
        """Wait for its end; return the exit status."""
        status = self.running.wait()
        if self.running.stdin is not None:
            with contextlib.suppress(OSError):
                self.running.stdin.close()
        self._process = None
        return status

    def release(self) -> None:
        """Kill it, and close its proxy and disk. It cannot be started again."""
        self.kill()
        self._order.unlink(missing_ok=True)  # the folder is kept for inspection, but must not contain a password
        if self.has_proxy:
            self.proxy.close()
        if self.disk is not None:
            self.disk.close()

    def sample_use(self, at_s: float) -> None:
        """Record its memory and open files, if the system reports them."""
        use = None if self._process is None else measured(self._process.pid, at_s)
        if use is not None:
            self.uses.append(use)

    @property
    def failed_as_expected(self) -> bool:
        """Whether its log since the start contains the expected error."""
        return self.expected_error is not None and self.expected_error in self._log_since_start()

    def _log_since_start(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_began)
            return log.read().decode(errors="replace")

    def counts(self) -> list[dict[str, int]]:
        """Return the last dump of its stores, by stage; empty without a dump."""
        try:
            found = json.loads(self._dump.read_text())
        except FileNotFoundError:
            return []
        return [found[str(stage)] for stage in range(len(found))]

    def tail(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(FileNotFoundError):
            return self._log.read_text(errors="replace")[-_TAIL_CHARACTERS:]
        return ""


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run processes that use all processor time they get, until the end of the block."""
    command: Sequence[str] = [sys.executable, "-c", "while True: pass"]
    made = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in made:
            process.kill()
            process.wait()
