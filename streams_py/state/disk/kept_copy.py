"""The copy of a task's database that is kept when stores in it are emptied.

All stores of a task share one database, and a store without a changelog exists nowhere else. So the database is copied
instead of moved away. The copy consists of hard links: it is created immediately, and needs disk space only after the
original files have been deleted. The copy is a complete task directory. Moved back to the path of the task's directory,
it works with a program that declares the stores as before.

The copy is created under a temporary name, ``0_3.part``. It is complete as soon as it contains a database, because
RocksDB renames the database into place last. It gets its final name when the stores are empty and their new layout is
stored. So after a process was killed, the next one can tell what is left to do:

* ``0_3.part`` has no database: no store was emptied, and the copy is made again.
* ``0_3.part`` has a database: it is the earlier state, however many stores were emptied since.
* No store is declared differently from its layout: only the rename is missing.
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

_PART: Final = ".part"


class KeptCopy:
    """The copy of an open database, in a folder next to the task's directory. For the thread that owns the task."""

    def __init__(self, database: TaskDatabase) -> None:
        self._database = database
        self._task_directory = os.path.dirname(database.path)
        instance, self._name = os.path.split(self._task_directory)
        self._folder = os.path.join(instance, ANOTHER_LAYOUT)
        self._part = os.path.join(self._folder, self._name + _PART)

    def make(self) -> str:
        """Create the copy, unless a process that was killed has already created it.

        Returns:
            The path that :meth:`finish` will give to the copy.

        Raises:
            StateError: The copy cannot be created.
        """
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
        """Give the copy, if there is one, its final name.

        To be called when all stores have their declared layout, and the layouts are stored.

        Raises:
            StateError: The copy cannot be renamed.
        """
        try:
            if not self._is_whole:
                self._drop()
                return
            self._database.force_log()  # otherwise, after a power failure, the stores would have to be emptied again
            os.rename(self._part, free_place(self._folder, self._name))
        except (OSError, StateError) as error:
            raise self._cannot(error) from error
        self._force(self._folder)

    def _drop(self) -> None:
        if os.path.isdir(self._part):  # left by a process that was killed before the copy was complete
            delete(self._part)

    def _force(self, *folders: str) -> None:
        with contextlib.suppress(OSError):  # not every file system supports fsync of a folder
            for folder in folders:
                force_to_disk(folder)

    def _cannot(self, error: Exception) -> StateError:
        return StateError(
            f"the declaration of stores in {self._task_directory} has changed, and their files cannot be kept in "
            f"{self._folder}: {error}. Free disk space there, or move {self._task_directory} away by hand"
        )
