"""Processes that a supervisor starts, stops and restarts; small programs replace applications."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.errors import IllegalStateError, StreamsError
from streams_py.runtime.processes import supervisor as module
from streams_py.runtime.processes.measured import Measured
from streams_py.runtime.processes.metrics import read_answer
from streams_py.runtime.processes.supervisor import Supervisor, same_program
from tests.support.waiting import until

_PROGRAM = """
import os, signal, sys, threading, time
from streams_py.runtime.processes.child import this_process
child = this_process()
folder, kind = sys.argv[1:]
open(f"{folder}/{child.number}-{os.getpid()}", "w").close()
if kind == "dies" and child.number == 2:
    sys.exit(3)
asked = []  # no Event: its lock may be held where the handler interrupts
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
child.end_with_supervisor()
child.report("REBALANCING", True, False)
child.report("RUNNING", True, True)
measured = [("of-processes", [("own-tag", "ü")], "number", child.number)]
with child.answering(lambda: (1 / 0 if kind == "unmeasured" else measured)):
    while kind != "ends" and not asked:
        time.sleep(0.1)
        child.report("RUNNING", True, True)
sys.exit(5 if kind == "fails" else 0)
"""


class Run:
    """A supervisor on a separate thread."""

    def __init__(self, folder: Path, kind: str, *, silence_max_s: float = 3_600) -> None:
        self._folder = folder
        command = [sys.executable, "-c", _PROGRAM, str(folder), kind]
        self.supervisor = Supervisor(2, command, silence_max_s=silence_max_s)
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
        """Return the ids of all processes that had this number."""
        return [int(path.name.partition("-")[2]) for path in self._folder.glob(f"{number}-*")]

    def end(self) -> None:
        self.asked.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def ended(self) -> bool:
        return not self._thread.is_alive()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def start(kind: str, **options: float) -> Run:
        made.append(Run(tmp_path, kind, **options))
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


def test_one_that_is_frozen_is_not_ready_and_named_until_it_continues(
    run: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="streams_py")
    running = run("works", silence_max_s=2)

    def states() -> list[str]:
        return [one.state for one in running.supervisor.health().processes]

    until(lambda: running.supervisor.health().ready, "both say that they run")
    (second,) = running.starts(2)
    os.kill(second, signal.SIGSTOP)
    try:
        until(lambda: states() == ["RUNNING", "SILENT"], "one has not told for long how it is")
        health = running.supervisor.health()
        assert [one.ready for one in health.processes][1] is False
        assert not health.ready
        assert health.live
        assert f"process 2 (pid {second}) has not reported its state for 2 s and is not ready" in caplog.text
    finally:
        os.kill(second, signal.SIGCONT)
    until(lambda: running.supervisor.health().ready, "the supervisor to be ready again")
    assert f"process 2 (pid {second}) reports its state again" in caplog.text
    assert len(running.starts(2)) == 1


def test_one_that_is_killed_while_it_is_frozen_is_started_again(run: Callable[..., Run]) -> None:
    running = run("works", silence_max_s=2)
    until(lambda: running.supervisor.health().ready, "both say that they run")
    (second,) = running.starts(2)
    os.kill(second, signal.SIGSTOP)
    until(lambda: running.supervisor.health().processes[1].state == "SILENT", "it has not told for long how it is")
    os.kill(second, signal.SIGKILL)
    until(lambda: running.supervisor.health().processes[1].state == "RESTARTING", "its end is seen")
    until(lambda: running.supervisor.health().ready, "it is there again")


def test_silence_while_the_supervisor_itself_is_frozen_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        pid = 77

    supervisor = Supervisor(1, [], silence_max_s=45)
    # The test is the loop of the supervisor, whose clock stands still between two steps.
    (slot,) = supervisor._slots
    slot.process = Process()  # type: ignore[assignment]
    slot.states, theirs = os.pipe()
    supervisor._selector.register(slot.states, selectors.EVENT_READ, slot)  # see above
    os.write(theirs, b"RUNNING 1 1\n")
    hours = iter(range(1_000))
    monkeypatch.setattr(module, "_STEP_S", 0)
    monkeypatch.setattr(module.time, "monotonic", lambda: 3_600.0 * next(hours))
    for _ in range(40):
        supervisor._listen()  # see above
    ready = [supervisor.health().ready]
    for _ in range(20):
        supervisor._listen()  # see above
    ready.append(supervisor.health().ready)
    monkeypatch.undo()
    supervisor._selector.close()  # see above
    os.close(slot.states)
    os.close(theirs)
    assert ready == [True, False]


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


def test_processes_continue_while_there_is_no_room_to_start_another_one_again(
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
    # A pipe instead of a process, which would write whole lines.
    slot, listening = module._Slot(1), Supervisor(0, [], silence_max_s=1)
    slot.states, theirs = os.pipe()
    listening._selector.register(slot.states, selectors.EVENT_READ, slot)  # see above
    states = []
    for told in (b"REBALANCING 1 0\nRUNN", b"ING 1 1\nPENDING_SHUTDOWN 1 0\n", b"RUNN", b"ING 1 1\n"):
        os.write(theirs, told)
        listening._listen()  # see above
        states.append((slot.state, slot.live, slot.ready))
    closing = ("PENDING_SHUTDOWN", True, False)
    assert states == [("REBALANCING", True, False), closing, closing, ("RUNNING", True, True)]
    listening._selector.close()  # see above
    os.close(slot.states)
    os.close(theirs)


def test_an_interactive_interpreter_has_no_program_to_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python"])
    with pytest.raises(IllegalStateError, match="put the code into a file"):
        same_program()
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "app.py", "one"])
    monkeypatch.setattr(sys, "argv", ["app.py", "one"])
    assert same_program() == [sys.executable, "-X", "dev", "app.py", "one"]


def _numbers(running: Run) -> list[float | str | None]:
    found = running.supervisor.metrics("app")
    assert [(one.application_id, one.process) for one in found] == [("app", 1), ("app", 2)]
    return [None if one.measured is None else one.measured[0].value for one in found]


def test_metrics_of_all_processes_are_collected_also_of_a_restarted_one(run: Callable[[str], Run]) -> None:
    running = run("works")
    until(lambda: running.supervisor.health().ready, "both say that they run")
    assert _numbers(running) == [1, 2]
    first, _ = running.supervisor.metrics("app")
    assert first.measured == (Measured("of-processes", (("own-tag", "ü"),), "number", 1),)
    os.kill(running.starts(2)[0], signal.SIGKILL)
    until(lambda: _numbers(running) == [1, None], "the death of the second process is noticed")
    until(lambda: _numbers(running) == [1, 2], "the second process answers again")
    assert [one.restarts for one in running.supervisor.metrics("app")] == [0, 1]
    running.end()
    assert running.supervisor.metrics("app") == []


def _freeze(process: int) -> None:
    """Stop all threads of a process. They stop some time after the signal was sent."""
    os.kill(process, signal.SIGSTOP)

    def states() -> set[str]:
        stats = Path(f"/proc/{process}/task").glob("*/stat")
        return {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}

    until(lambda: states() == {"T"}, "all threads are stopped")


def test_frozen_process_costs_a_scrape_its_own_metrics_only(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 1.0)
    running = run("works")
    until(lambda: running.supervisor.health().ready, "both say that they run")
    (second,) = running.starts(2)
    _freeze(second)
    try:
        for _ in range(3):
            assert _numbers(running) == [1, None]
    finally:
        os.kill(second, signal.SIGCONT)
    until(lambda: _numbers(running) == [1, 2], "it answers again, and no late answer is taken for a new one")


def test_process_that_fails_to_measure_is_named(run: Callable[[str], Run], caplog: pytest.LogCaptureFixture) -> None:
    running = run("unmeasured")
    until(lambda: running.supervisor.health().ready, "both say that they run")
    assert _numbers(running) == [None, None]
    assert "process 2 sent no metrics" in caplog.text


@pytest.mark.parametrize(
    "sent",
    [b"", b"null", b"[1]", b'[["g", [], "n", null]]', b'[["g", [["t"]], "n", 1]]', b'[["g", [], "n", 1]', b"[" * 9999],
)
def test_answer_that_is_not_metrics_is_refused(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(sent)
    with pytest.raises(ValueError, match=r"."):
        read_answer(ours, time.monotonic() + 60)
    assert ours.fileno() == -1


def test_answer_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_py.runtime.processes.metrics._BYTES_MAX", 100)
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(bytes(101))
        with pytest.raises(ValueError, match="more than"):
            read_answer(ours, time.monotonic() + 60)
