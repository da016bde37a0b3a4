"""The folder of a run: its orders, its scores, and its progress.

    <out>/backtest.json                  the orders, so that a resumed run is the same run
    <out>/scores/prefix=ab/*.parquet     rows of the situations whose hash begins with ab
    <out>/done/<first>-<last>            the prefixes from first to last are complete
    <out>/summary.json, report.html

A run that was killed continues with the prefixes that are not done. It writes unfinished prefixes again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from streams_py.errors import ConfigError
from streams_py.system.file_locks import LOCK_FILE, FileLock, alone
from streams_py.system.private_files import replace_file
from streams_py.telemetry.marker import marker_in, marker_text

__all__ = ["PREFIXES", "SCHEME", "SCORES", "LocalFiles", "RunFolder", "for_spark"]

PREFIXES: Final = tuple(f"{number:02x}" for number in range(256))
SCORES: Final = "scores"
SCHEME: Final = "://"
_MARKER: Final = "backtest.json"
_PREFIX: Final = "prefix="
_FORMAT: Final = 1


def for_spark(path: str) -> str:
    """Return a path with its file system. The default is this machine's."""
    return path if SCHEME in path else f"file://{Path(path).resolve()}"  # Hadoop expects an unquoted path


class Files(Protocol):
    """A folder on any file system. Methods take path components below it.

    :class:`~streams_py.spark.files.Folder` implements it for Spark.
    """

    def path(self, *names: str) -> str:
        """Return a path below the folder."""

    def exists(self, *names: str) -> bool:
        """Whether a path exists."""

    def children(self, *names: str) -> list[str]:
        """Return the sorted names in a folder; empty when it does not exist."""

    def read_text(self, *names: str) -> str: ...
    def write_text(self, text: str, *names: str) -> None:
        """Write a file, replacing an existing one. Creates its folders."""

    def remove(self, *names: str) -> None:
        """Delete a file or a folder with its contents, if it exists."""


class LocalFiles:
    """A folder of this machine, without Spark."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def path(self, *names: str) -> str:
        """See :class:`Files`."""
        return str(self._root.joinpath(*names))

    def exists(self, *names: str) -> bool:
        """See :class:`Files`."""
        return self._root.joinpath(*names).exists()

    def children(self, *names: str) -> list[str]:
        """See :class:`Files`."""
        place = self._root.joinpath(*names)
        return sorted(os.listdir(place)) if place.is_dir() else []

    def read_text(self, *names: str) -> str:
        """See :class:`Files`."""
        return self._root.joinpath(*names).read_text(encoding="utf-8")

    def write_text(self, text: str, *names: str) -> None:
        """See :class:`Files`."""
        target = self._root.joinpath(*names)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(str(target), text.encode(), shared=True)

    def remove(self, *names: str) -> None:
        """See :class:`Files`."""
        place = self._root.joinpath(*names)
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


class RunFolder:
    """The folder of one run, on this machine or on the file system of ``files``."""

    def __init__(self, root: str, files: Files | None = None) -> None:
        self.root = root
        self.files: Files = files if files is not None else LocalFiles(root)

    def path(self, *names: str) -> str:
        """Return a path below the folder."""
        return self.files.path(*names)

    def for_spark(self, *names: str) -> str:
        """Return a path below the folder with its file system, which Spark needs."""
        return for_spark(self.path(*names))

    @contextmanager
    def claimed(self, fingerprint: str, *, resume: bool) -> Iterator[None]:
        """Start a run in the folder, or continue it with ``resume``.

        If the run ends with a ConfigError, or with an error before any prefix is done, its files are removed, so that
        the same command can run again. An interrupted run can be resumed.

        Raises:
            ConfigError: the folder is not empty, or belongs to another run.
        """
        was_there = self.files.exists()
        with self._alone():
            begins = self._claim(fingerprint, resume=resume)
            try:
                yield
            except Exception as error:
                if begins and (isinstance(error, ConfigError) or not self.done()):
                    self._give_up(was_there=was_there)
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder, if it is on a disk. Raises ConfigError while another process has the lock.

        A process that continues the run would otherwise delete prefixes that the other process is writing.
        """
        if SCHEME in self.root:
            yield
            return
        place = Path(self.root)
        place.mkdir(parents=True, exist_ok=True)
        with alone(FileLock.take(place / LOCK_FILE), f"is working on the run in {self.root}"):
            yield

    def _claim(self, fingerprint: str, *, resume: bool) -> bool:
        """Write the marker. Returns whether the run is new; otherwise it continues."""
        names = set(self.files.children()) - {LOCK_FILE}
        if not resume:
            if names:
                raise ConfigError(f"{self.root} is not empty; use a new folder, or --resume to continue the run in it")
        elif _MARKER in names:
            if marker_in(self.files.read_text(_MARKER)) != _marked(fingerprint):
                raise ConfigError(
                    f"{self.root} has a run with other candidates, what-ifs, inputs or options; repeat them exactly to "
                    "continue it, or use a new folder"
                )
            self._remove_unfinished()
            return False
        elif names:
            raise ConfigError(f"{self.root} is not empty and has no run to resume; use a new folder")
        self.files.write_text(marker_text(_marked(fingerprint)), _MARKER)
        return True

    def _give_up(self, *, was_there: bool) -> None:
        if not was_there:
            self.files.remove()
            return
        for name in self.files.children():
            self.files.remove(name)

    def done(self) -> frozenset[str]:
        """Return the prefixes that are complete."""
        return frozenset(prefix for name in self.files.children("done") for prefix in _within(name))

    def _remove_unfinished(self) -> None:
        """Remove unfinished prefixes of a killed run. The continued run divides the rest into other ranges."""
        done = self.done()
        for name in self.files.children(SCORES):
            if name.startswith(_PREFIX) and not done.issuperset(_within(name.removeprefix(_PREFIX))):
                self.files.remove(SCORES, name)

    def mark_done(self, first: str, last: str) -> None:
        """Mark the prefixes from ``first`` to ``last`` as complete."""
        self.files.write_text("", "done", f"{first}-{last}")


def _within(name: str) -> list[str]:
    """Return the prefixes that ``ab`` or ``ab-cd`` stands for."""
    first, _, last = name.partition("-")
    return [prefix for prefix in PREFIXES if first <= prefix <= (last or first)]


def _marked(fingerprint: str) -> dict[str, Any]:
    return {"format": _FORMAT, "orders": json.loads(fingerprint)}
