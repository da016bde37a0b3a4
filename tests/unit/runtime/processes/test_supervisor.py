"""Processes that a supervisor starts, ends and starts again; small programs stand for applications."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.errors import IllegalStateError, StreamsError
from streams_py.runtime.processes import supervisor as module
from streams_py.runtime.processes.supervisor import Supervisor, same_program
from tests.waiting import until

_PROGRAM = """
import os, signal, sys, threading, time
from streams_py.runtime.processes.child import this_process
child = this_process()
folder, kind = sys.argv[1:]
open(f"{folder}/{child.number}-{os.getpid()}", "w").close()
if kind == "dies" and child.number == 2:
    sys.exit(3)
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
child.end_with_supervisor()
child.tell("REBALANCING", True, False)
child.tell("RUNNING", True, True)
if kind != "ends":
    ended.wait()
sys.exit(5 if kind == "fails" else 0)
"""


class Run:
    """A supervisor on a thread."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self.supervisor = Supervisor(2, [sys.executable, "-c", _PROGRAM, str(folder), kind])
        self.asked = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.supervisor.run(self.asked)
        except Exception as error:
            self.error = error

    def starts(self, number: int) -> list[int]:
        """Process ids that had this number."""
        return [int(path.name.partition("-")[2]) for path in self._folder.glob(f"{number}-*")]

    def end(self) -> None:
        self.asked.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def ended(self) -> bool:
        return not self._thread.is_alive()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Run]]:
    made: list[Run] = []

    def start(kind: str) -> Run:
        made.append(Run(tmp_path, kind))
        return made[-1]

    yield start
    for one in made:
        one.end()


def test_all_run_until_they_are_asked_to_end(run: Callable[[str], Run]) -> None:
    running = run("works")
    until(lambda: running.supervisor.health().ready, "both say that they run")
    health = running.supervisor.health()
    assert [(one.process, one.state, one.restarts) for one in health.processes] == [
        (1, "RUNNING", 0),
        (2, "RUNNING", 0),
    ]
    assert health.live
    running.end()
    assert running.error is None
    assert running.supervisor.health().processes == ()


def test_a_process_that_is_killed_is_started_again_and_the_other_one_stays(run: Callable[[str], Run]) -> None:
    running = run("works")
    until(lambda: running.supervisor.health().ready, "both say that they run")
    (first,), (second,) = running.starts(1), running.starts(2)
    os.kill(second, signal.SIGKILL)
    until(lambda: len(running.starts(2)) == 2 and running.supervisor.health().ready, "it is there again")
    assert running.starts(1) == [first]
    assert [one.restarts for one in running.supervisor.health().processes] == [0, 1]


def test_one_that_dies_again_and_again_makes_the_whole_neither_live_nor_ready(
    run: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY_S", 0.01)
    running = run("dies")
    until(lambda: not running.supervisor.health().live, "it has died five times")
    health = running.supervisor.health()
    assert not health.ready
    assert health.processes[1].restarts >= 5
    assert health.processes[0].restarts == 0


def test_processes_that_end_by_themselves_are_not_started_again(run: Callable[[str], Run]) -> None:
    running = run("ends")
    until(running.ended, "the supervisor ends, too")
    assert running.error is None
    assert len(running.starts(1)) == len(running.starts(2)) == 1


def test_one_that_fails_while_closing_is_named(run: Callable[[str], Run]) -> None:
    running = run("fails")
    until(lambda: running.supervisor.health().ready, "both say that they run")
    running.end()
    assert isinstance(running.error, StreamsError)
    assert "process 1 ended with status 5, process 2 ended with status 5" in str(running.error)


def test_processes_go_on_while_there_is_no_room_to_start_another_one_again(
    run: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY_S", 0.01)
    running = run("works")
    until(lambda: running.supervisor.health().ready, "both say that they run")
    (first,), (second,) = running.starts(1), running.starts(2)
    popen, refused = subprocess.Popen, list[OSError]()

    def crowded(*arguments: Any, **options: Any) -> Any:
        if len(refused) < 2:
            refused.append(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
            raise refused[-1]
        return popen(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", crowded)
    open_files = len(os.listdir("/proc/self/fd"))
    os.kill(second, signal.SIGKILL)
    until(lambda: len(running.starts(2)) == 2 and running.supervisor.health().ready, "it is there again")
    assert running.starts(1) == [first]
    assert len(refused) == 2
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_what_was_told_while_the_supervisor_stood_still_may_be_cut() -> None:
    slot, listening = module._Slot(1), Supervisor(0, [])
    slot.states, theirs = os.pipe()
    listening._selector.register(slot.states, selectors.EVENT_READ, slot)
    states = []
    for told in (b"REBALANCING 1 0\nRUNN", b"ING 1 1\nPENDING_SHUTDOWN 1 0\n", b"RUNN"):
        os.write(theirs, told)
        listening._listen()
        states.append((slot.state, slot.live, slot.ready))
    assert states == [("REBALANCING", True, False), *[("PENDING_SHUTDOWN", True, False)] * 2]
    listening._selector.close()
    os.close(slot.states)
    os.close(theirs)


def test_an_interactive_interpreter_has_no_program_to_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python"])
    with pytest.raises(IllegalStateError, match="put it into a file"):
        same_program()
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "app.py", "one"])
    monkeypatch.setattr(sys, "argv", ["app.py", "one"])
    assert same_program() == [sys.executable, "-X", "dev", "app.py", "one"]
