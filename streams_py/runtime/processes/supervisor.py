"""Starts a program several times as processes of one group, and restarts the processes that die."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streams_py.errors import IllegalStateError, StreamsError
from streams_py.runtime.processes.child import PROCESS_VARIABLE, ChildProcess
from streams_py.runtime.processes.health import Health, ProcessHealth
from streams_py.runtime.processes.metrics import ANSWER_S, ProcessMetrics, read_answer, request_metrics
from streams_py.runtime.thread.states import State

if TYPE_CHECKING:
    from streams_py.runtime.processes.measured import Measured

_log = logging.getLogger("streams_py")

_STEP_S: Final = 0.2
_FIRST_DELAY_S: Final = 1.0
_LONGEST_DELAY_S: Final = 30.0
_STEADY_S: Final = 60.0
"""A process that ran longer than this did not fail during startup, in seconds."""
_DEATHS: Final = 5
"""Number of consecutive early deaths after which the supervisor is no longer live: another start would not help."""
_FIRST_LOG_S: Final = 10.0
_RESTARTING: Final = "RESTARTING"
_SILENT: Final = "SILENT"
_COUNTED_MAX_S: Final = 1.0
"""Maximum silence counted per step of the supervisor, in seconds. If the supervisor itself was frozen, perhaps with all
of its processes, that time does not count as their silence."""
_LINE_BYTES: Final = 4096
_WORDS: Final = 3
"""Number of words in a line: state, whether live, whether ready."""


@dataclass(slots=True)
class _Slot:
    """One process and its state."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    lives: int = -1
    states: int = -1
    requests: socket.socket | None = None
    """Socket for metrics requests to the process."""
    state: str = State.CREATED.value
    live: bool = True
    ready: bool = False
    reported: bytes | None = None
    """Unfinished last line of the process's reports; None until it has reported since its start."""
    silent_s: float = 0.0
    """Time since its last report, in seconds."""
    restarts: int = 0
    deaths: int = 0
    """Number of consecutive deaths soon after a start."""
    started_s: float = 0.0
    due_s: float = 0.0
    has_ended: bool = False


class Supervisor:
    """Runs processes until all of them have ended on their own, or until a stop is requested.

    A process that exits with status 0 has ended. Any other exit is followed by a restart: after a second, then after
    growing delays (up to 30 seconds) while the process dies soon. Each process has its own process group, so Ctrl-C
    only reaches the supervisor, which then asks the processes to close. If the supervisor is killed, they end.

    A process that stops reporting for ``silence_max_s`` (because it is stopped, or hangs as a whole) is not ready: its
    group has given its tasks to other members.
    """

    def __init__(self, processes: int, command: Sequence[str], *, silence_max_s: float) -> None:
        self._command = tuple(command)
        self._silence_max_s = silence_max_s
        self._slots = [_Slot(number) for number in range(1, processes + 1)]
        self._selector = selectors.DefaultSelector()
        self._requesting = threading.Lock()
        """Guards the ``requests`` of all slots, which the metrics thread uses, too."""

    def run(self, asked: threading.Event) -> None:
        """Run until ``asked`` is set and all processes have closed. StreamsError if one did not close properly."""
        try:
            while not asked.is_set() and not all(slot.has_ended for slot in self._slots):
                for slot in self._slots:
                    self._supervise(slot)
                self._listen()
            self._close()
        finally:
            for slot in self._slots:
                if slot.process is not None:  # only after an error here
                    slot.process.kill()
                    self._gone(slot)
            self._selector.close()

    def health(self) -> Health:
        """Return the health of all processes. Thread-safe."""
        processes = tuple(
            ProcessHealth(
                slot.number,
                process.pid if (process := slot.process) else None,
                _SILENT if (silent := self._is_silent(slot)) else slot.state,
                slot.live,
                slot.ready and not silent,
                slot.restarts,
            )
            for slot in self._slots
            if not slot.has_ended
        )
        return Health(
            live=all(one.live for one in processes),
            ready=bool(processes) and all(one.ready for one in processes),
            processes=processes,
        )

    def metrics(self, application_id: str) -> list[ProcessMetrics]:
        """Return the metrics of all processes. Waits at most 5 s for all of them together. Thread-safe."""
        slots = [slot for slot in self._slots if not slot.has_ended]
        answers = [self._request(slot) for slot in slots]
        until_s = time.monotonic() + ANSWER_S
        return [
            ProcessMetrics(application_id, slot.number, slot.restarts, _read(slot.number, answer, until_s))
            for slot, answer in zip(slots, answers, strict=True)
        ]

    def _request(self, slot: _Slot) -> socket.socket | None:
        """Request metrics. None if the process cannot answer: it is restarting, frozen, or its socket is full."""
        with self._requesting, contextlib.suppress(OSError):
            if slot.requests is not None and not self._is_silent(slot):
                return request_metrics(slot.requests)
        return None

    def _is_silent(self, slot: _Slot) -> bool:
        return slot.silent_s > self._silence_max_s

    # -- one process ---------------------------------------------------------------------------------------------------

    def _supervise(self, slot: _Slot) -> None:
        now = time.monotonic()
        if slot.process is None:
            if not slot.has_ended and now >= slot.due_s:
                try:
                    self._start(slot)
                except OSError as error:  # no resources for the process or its pipes; the other processes continue
                    self._start_later(slot, now, f"cannot be started ({error})")
        elif (status := slot.process.poll()) is not None:
            self._gone(slot)
            if status == 0:
                slot.has_ended = True
                return
            self._start_later(slot, now, _ended(status))

    def _start_later(self, slot: _Slot, now: float, why: str) -> None:
        slot.deaths = 1 if now - slot.started_s >= _STEADY_S else slot.deaths + 1
        delay_s = min(_FIRST_DELAY_S * 2 ** (slot.deaths - 1), _LONGEST_DELAY_S)
        slot.due_s, slot.state, slot.restarts = now + delay_s, _RESTARTING, slot.restarts + 1
        slot.live, slot.ready = slot.deaths < _DEATHS, False
        slot.started_s = now
        _log.error("process %d %s; restarting it in %.0f s", slot.number, why, delay_s)

    def _start(self, slot: _Slot) -> None:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            their_lives, slot.lives = os.pipe()
            theirs.callback(os.close, their_lives)
            ours.callback(os.close, slot.lives)
            slot.states, their_states = os.pipe()
            theirs.callback(os.close, their_states)
            ours.callback(os.close, slot.states)
            os.set_blocking(slot.states, False)
            requests, their_requests = socket.socketpair()
            theirs.callback(their_requests.close)
            ours.callback(requests.close)
            requests.setblocking(False)
            child = ChildProcess(slot.number, their_lives, their_states, their_requests.fileno())
            slot.process = subprocess.Popen(
                self._command,
                env={**os.environ, PROCESS_VARIABLE: child.to_variable()},
                stdin=subprocess.DEVNULL,
                pass_fds=(their_lives, their_states, their_requests.fileno()),
                process_group=0,
            )
            ours.pop_all()
        with self._requesting:
            slot.requests = requests
        slot.state, slot.ready, slot.started_s = State.CREATED.value, False, time.monotonic()
        self._selector.register(slot.states, selectors.EVENT_READ, slot)
        _log.info("started process %d of %d (pid %d)", slot.number, len(self._slots), slot.process.pid)

    def _gone(self, slot: _Slot) -> None:
        """Clean up after a process that has ended."""
        self._selector.unregister(slot.states)
        os.close(slot.states)
        os.close(slot.lives)
        with self._requesting:
            if slot.requests is not None:
                slot.requests.close()
            slot.requests = None
        slot.process, slot.lives, slot.states = None, -1, -1
        slot.reported, slot.silent_s = None, 0.0

    def _listen(self) -> None:
        """Read the reports of the processes for a moment."""
        began = time.monotonic()
        ready = self._selector.select(_STEP_S)
        for key, _ in ready:
            with contextlib.suppress(OSError):
                reported = os.read(key.fd, _LINE_BYTES)
                if not reported:  # the process is ending
                    time.sleep(_STEP_S)
                    continue
                self._read_report(key.data, reported)
        self._note_silence({key.data.number for key, _ in ready}, min(time.monotonic() - began, _COUNTED_MAX_S))

    def _read_report(self, slot: _Slot, reported: bytes) -> None:
        if self._is_silent(slot) and slot.process is not None:
            _log.info("process %d (pid %d) reports its state again", slot.number, slot.process.pid)
        lines, _, slot.reported = ((slot.reported or b"") + reported).rpartition(b"\n")
        slot.silent_s = 0.0
        words = lines.rpartition(b"\n")[2].decode("ascii").split()
        if len(words) == _WORDS:  # else no line is complete yet
            slot.state, slot.live, slot.ready = words[0], words[1] == "1", words[2] == "1"

    def _note_silence(self, reported: Collection[int], passed_s: float) -> None:
        for slot in self._slots:
            if slot.number in reported or slot.process is None or slot.reported is None:
                continue
            was_silent = self._is_silent(slot)
            slot.silent_s += passed_s
            if self._is_silent(slot) and not was_silent:
                _log.warning(
                    "process %d (pid %d) has not reported its state for %.0f s and is not ready: it is stopped or "
                    "hangs as a whole; the group gives its tasks to other members",
                    slot.number,
                    slot.process.pid,
                    self._silence_max_s,
                )

    # -- the end -------------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Ask all processes to close and wait for them; log a warning if it takes long."""
        for slot in self._slots:
            if slot.process is not None:
                slot.process.send_signal(signal.SIGTERM)
        failed: list[str] = []
        began, silence_s = time.monotonic(), _FIRST_LOG_S
        while alive := [slot for slot in self._slots if slot.process is not None]:
            if time.monotonic() - began > silence_s:
                names = ", ".join(f"{slot.number} ({slot.process.pid})" for slot in alive if slot.process)
                _log.warning("closing for %.0f s, waiting for process %s", time.monotonic() - began, names)
                silence_s *= 2
            self._listen()
            for slot in alive:
                status = slot.process.poll() if slot.process else None
                if status is not None:
                    self._gone(slot)
                    slot.has_ended = True
                    if status not in (0, -signal.SIGTERM):  # SIGTERM: it had just started
                        failed.append(f"process {slot.number} {_ended(status)}")
        if failed:
            raise StreamsError(f"while closing, {', '.join(sorted(failed))}; the log above says why")


def same_program() -> list[str]:
    """Return the command that runs this program again. IllegalStateError without a program."""
    if len(sys.orig_argv) < 2 or hasattr(sys, "ps1") or not sys.argv[0]:
        raise IllegalStateError(
            "several processes require a program file to run again, and this is an interactive interpreter: put the "
            "code into a file, or use: streams-py run FILE.PY --processes N"
        )
    return [sys.executable, *sys.orig_argv[1:]]


def _read(number: int, answer: socket.socket | None, until_s: float) -> tuple[Measured, ...] | None:
    if answer is None:
        return None
    try:
        return read_answer(answer, until_s)
    except (OSError, ValueError) as error:
        _log.warning("process %d sent no metrics (%s); this scrape does not include it", number, error)
        return None


def _ended(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"
