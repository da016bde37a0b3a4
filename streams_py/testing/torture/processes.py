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

from streams_py.testing.torture.disk import SmallDisk
from streams_py.testing.torture.proxy import Proxy
from streams_py.testing.torture.usage import Use, measured

__all__ = ["Instance", "busy"]

_MODULE = "streams_py.testing.torture.application"
_TAIL_CHARACTERS = 3_000
_STEP_S = 0.05


class Instance:
    """One instance. ``folder`` has its log, what it dumps, and its state, unless it has a ``disk`` of its own; ``door``
    is where it reaches brokers: the address of one, or a proxy, which may do harm then."""

    def __init__(
        self, folder: Path, order: Mapping[str, Any], door: str | Proxy, disk: SmallDisk | None = None
    ) -> None:
        self.name = folder.name
        self._door = door
        self.disk = disk
        self.may_end_with: str | None = None
        """Words with which it may end until it is started the next time."""
        self.is_suffering = False
        """Nobody starts it again for now: it would end again."""
        self._folder = folder
        self._state = (folder if disk is None else disk.folder) / "state"
        self._dump, self._ready = folder / "dump.json", folder / "ready.txt"
        folder.mkdir(parents=True, exist_ok=True)
        self._order = folder / "order.json"
        self._order.touch(mode=0o600)  # a password may be in it
        bootstrap = door if isinstance(door, str) else door.bootstrap
        config = {**order["config"], "state.dir": str(self._state), "bootstrap.servers": bootstrap}
        self._order.write_text(
            json.dumps({**order, "config": config, "dump": str(self._dump), "ready": str(self._ready)})
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._log_began = 0
        self.uses: list[Use] = []
        """Memory and open files since it was started, as often as somebody looked."""
        self.started_s = 0.0

    def start(self) -> None:
        self._dump.unlink(missing_ok=True)
        self.uses.clear()
        self.may_end_with = None
        command = [sys.executable, "-m", _MODULE, str(self._order)]
        with self._log.open("ab") as log:
            self._log_began = log.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.started_s = time.monotonic()

    @property
    def has_proxy(self) -> bool:
        """False when nothing stands between it and the brokers."""
        return isinstance(self._door, Proxy)

    @property
    def proxy(self) -> Proxy:
        """That of an instance that has one."""
        assert isinstance(self._door, Proxy)
        return self._door

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
        if self._is_ready:
            self.send(number)

    @property
    def _is_ready(self) -> bool:
        try:
            return self._ready.read_text() == str(self.running.pid)
        except FileNotFoundError:
            return False

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self.running.kill()
            self.reap()

    def forget_state(self) -> None:
        """Delete its state directory; it must not run."""
        shutil.rmtree(self._state, ignore_errors=True)

    def close(self, timeout_s: float) -> int:
        """SIGTERM once it knows what that means; the exit status. It is killed when it takes too long, which is -9."""
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
        """Wait for its end; the exit status."""
        status = self.running.wait()
        if self.running.stdin is not None:
            with contextlib.suppress(OSError):
                self.running.stdin.close()
        self._process = None
        return status

    def release(self) -> None:
        """Kill it, and give back what it had to itself; it cannot be started again."""
        self.kill()
        self._order.unlink(missing_ok=True)  # what stays is looked at, and a password is none of that
        if self.has_proxy:
            self.proxy.close()
        if self.disk is not None:
            self.disk.close()

    def look_at_use(self, at_s: float) -> None:
        """Note its memory and open files now, if anybody knows them."""
        use = None if self._process is None else measured(self._process.pid, at_s)
        if use is not None:
            self.uses.append(use)

    @property
    def says_why_it_ends(self) -> bool:
        """True when its log, since it was started, says with what it may end."""
        return self.may_end_with is not None and self.may_end_with in self._said()

    def _said(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_began)
            return log.read().decode(errors="replace")

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
