"""The other end of :mod:`streams_py.clients.sorter_program`: starts that process, and talks to it."""

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
from streams_py.system.processors import usable_processors

__all__ = ["SorterProcess"]

_log = logging.getLogger(__name__)

_PROGRAM: Final = "streams_py.clients.sorter_program"
_PLAIN: Final = (str, int, float, bool)


_spare = threading.BoundedSemaphore(usable_processors() - 1)
"""Of its processors: one is this process' own."""


class SorterProcess:
    """Port ``ChangelogSorter``. One thread uses it. :meth:`start` makes one, if there can be one."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._answers: list[Mapping[str, Any]] = []
        self._at: int | None = None

    @classmethod
    def start(cls, settings: Mapping[str, object]) -> SorterProcess | None:
        """With these settings of a consumer. None when they have something that another process cannot be told (a
        function that fetches tokens), when this is no program of a Python interpreter, or when no processor is left."""
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
                start_new_session=True,  # a Ctrl-C is for this process; the other one ends with its input
            )
        except OSError as error:  # no memory, or no processes left
            _spare.release()
            _log.info("restoring goes on without another process: %s", error)
            return None
        made = cls(process)
        try:
            made._begin(settings)
        except RuntimeError as error:  # no threads left
            made.close()
            _log.info("restoring goes on without another process: %s", error)
            return None
        return made

    def _begin(self, settings: Mapping[str, object]) -> None:
        threading.Thread(target=self._listen, name="changelog-sorter", daemon=True).start()
        self._send(settings)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def begin(self, part: ChangelogPart) -> None:
        """Read this; one part at a time."""
        self._at = part.start
        self._send(part._asdict())

    @property
    def position(self) -> int | None:
        """How far the part is that was begun last."""
        return self._at

    def outcome(self) -> SortedPart | None:
        """What came of the part; None while it is being read. StreamsError when it failed: nothing of it is of use."""
        if not self._answers:
            if self._process.poll() is not None and not self._answers:
                raise StreamsError(f"the process ended with status {self._process.returncode}")
            return None
        answer = self._answers.pop(0)
        if "error" in answer:
            raise StreamsError(str(answer["error"]))
        return SortedPart(**{**answer, "files": tuple(answer["files"])})

    def close(self) -> None:
        """End the process, whatever it is doing."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        _spare.release()

    def _send(self, what: Mapping[str, object]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):  # it has ended, and `outcome` says so
            pipe.write(json.dumps(what).encode() + b"\n")
            pipe.flush()

    def _listen(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        with contextlib.suppress(OSError, ValueError):  # closed
            for line in pipe:
                answer = json.loads(line)
                if "at" in answer:
                    self._at = answer["at"]
                else:
                    self._answers.append(answer)
