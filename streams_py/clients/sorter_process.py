"""Start a process of :mod:`streams_py.clients.sorter_program`, and exchange messages with it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final

from streams_py.errors import StreamsError
from streams_py.ports import ChangelogPart, SortedPart
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.processors import usable_processors

_log = logging.getLogger(__name__)

_PROGRAM: Final = "streams_py.clients.sorter_program"
_DAMAGED: Final = "the process sent a line that is not an answer"
_PLAIN: Final = (str, int, float, bool)


_spare = threading.BoundedSemaphore(usable_processors() - 1)
"""Processors for sorter processes. One processor of the machine is for this process."""


class SorterProcess:
    """A process that reads and sorts parts of changelogs (port ``ChangelogSorter``). Not thread-safe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._answers: list[Mapping[str, Any]] = []
        self._at: int | None = None

    @classmethod
    def start(cls, settings: Mapping[str, object]) -> SorterProcess | None:
        """Start a process with these settings of a consumer.

        Returns:
            None in these cases: a setting is an object, such as a function that fetches tokens, and cannot be sent to
            another process; this program is not run by a Python interpreter; no processor is left; or the system
            cannot start a process or a thread now.
        """
        if not all(isinstance(value, _PLAIN) for value in settings.values()):
            return None
        program = os.path.basename(sys.executable or "")
        if not program.startswith("python") or getattr(sys, "frozen", False) or not _spare.acquire(blocking=False):
            return None
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # a Ctrl-C must not stop it: it exits when its input ends
            )
        except OSError as error:  # not enough memory, or too many processes
            _spare.release()
            _log.info("restoring without a second process, because it could not be started: %s", error)
            return None
        sorter = cls(process)
        try:
            sorter._begin(settings)
        except RuntimeError as error:  # too many threads
            sorter.close()
            _log.info("restoring without a second process, because it could not be started: %s", error)
            return None
        return sorter

    def _begin(self, settings: Mapping[str, object]) -> None:
        threading.Thread(target=self._listen, name="changelog-sorter", daemon=True).start()
        self._send(settings)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def begin(self, part: ChangelogPart) -> None:
        """Start to read a part. The caller starts one part at a time."""
        self._at = part.start
        self._send(part._asdict())

    @property
    def position(self) -> int | None:
        """The current offset in the part that was started last."""
        return self._at

    def outcome(self) -> SortedPart | None:
        """Return the result of the part; None while the process is reading it.

        Raises:
            StreamsError: Reading failed, or the process has exited. The files of the part must not be used.
        """
        if not self._answers:
            if self._process.poll() is not None and not self._answers:
                raise StreamsError(f"the process exited with status {self._process.returncode}")
            return None
        answer = self._answers.pop(0)
        if "error" in answer:
            raise StreamsError(str(answer["error"]))
        try:
            return SortedPart(**{**answer, "files": tuple(answer["files"])})
        except (TypeError, KeyError):
            raise StreamsError(_DAMAGED) from None

    def close(self) -> None:
        """Kill the process."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        _spare.release()

    def _send(self, message: Mapping[str, object]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):  # the process has exited; outcome() reports it
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()

    def _listen(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        with contextlib.suppress(OSError, ValueError):  # closed
            for line in pipe:
                try:
                    answer = loads_foreign(line)
                except ValueError:
                    answer = None
                if not isinstance(answer, dict):
                    # The process continues, but its next answer would be attributed to the wrong part.
                    self._answers.append({"error": _DAMAGED})
                    return
                if isinstance(at := answer.get("at"), int):
                    self._at = at
                else:
                    self._answers.append(answer)
