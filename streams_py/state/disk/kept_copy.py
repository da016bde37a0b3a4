"""The copy of a task's database that is kept before stores of it are emptied.

A task's stores share one database, and those without a changelog are nowhere else: so it is not moved away, but copied,
by hard links, which takes no time, and room only when the files are gone that it shares. The copy is a task's
directory: moved back to where the task's is, it serves a program that declares the stores as they were.

It is made under a name of its own, ``0_3.part``, and is whole as soon as a database is in it, because RocksDB renames
that last. It gets its final name when the stores are empty and their new layout is noted. So whoever comes after a
process that was killed can tell what is still to be done: without a database in it the copy is made again, for nothing
was emptied; with one it is the state from before, whatever was emptied since; and when no store is declared otherwise
any more, only its name is missing.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from streams_py.errors import StateError
from streams_py.state.directory.checkpoint import DATABASE_DIRECTORY, force_to_disk, has_database
from streams_py.state.directory.set_aside import ANOTHER_LAYOUT, free_place
from streams_py.state.directory.task_files import write_marker
from streams_py.system.private_files import delete, make_folder

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase

__all__ = ["KeptCopy"]

_PART: Final = ".part"


class KeptCopy:
    """The copy of an open database, beside the directory of its task. For the thread that owns the task."""

    def __init__(self, database: TaskDatabase) -> None:
        self._database = database
        self._task_directory = os.path.dirname(database.path)
        instance, self._name = os.path.split(self._task_directory)
        self._folder = os.path.join(instance, ANOTHER_LAYOUT)
        self._part = os.path.join(self._folder, self._name + _PART)

    def make(self) -> str:
        """Make it, unless a process that was killed has; where :meth:`finish` will put it. StateError when it cannot be
        made."""
        try:
            if not self._is_whole:
                self._make()
            return free_place(self._folder, self._name)
        except (OSError, StateError) as error:
            raise self._cannot(error) from error

    @property
    def _is_whole(self) -> bool:
        return has_database(self._part)

    def _make(self) -> None:
        self._drop()
        make_folder(self._folder)
        make_folder(self._part)
        write_marker(self._part)
        self._database.checkpoint(os.path.join(self._part, DATABASE_DIRECTORY))
        self._force(self._part, self._folder, os.path.dirname(self._folder))

    def finish(self) -> None:
        """Give it its name, if there is one: all stores are as declared, and that is noted. StateError when that
        fails."""
        try:
            if not self._is_whole:
                self._drop()
                return
            self._database.force_log()  # else a machine that loses its power would come back to stores to be emptied
            os.rename(self._part, free_place(self._folder, self._name))
        except (OSError, StateError) as error:
            raise self._cannot(error) from error
        self._force(self._folder)

    def _drop(self) -> None:
        if os.path.isdir(self._part):  # of a process that was killed before it was whole
            delete(self._part)

    def _force(self, *folders: str) -> None:
        with contextlib.suppress(OSError):  # not every file system can
            for folder in folders:
                force_to_disk(folder)

    def _cannot(self, error: Exception) -> StateError:
        return StateError(
            f"stores in {self._task_directory} are declared otherwise than they are kept, and cannot be set aside in "
            f"{self._folder}: {error}. Make room there, or move {self._task_directory} away by hand"
        )
