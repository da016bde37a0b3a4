"""Open the database of a task or of the global stores: existing files, a downloaded snapshot, or an empty database."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from glob import escape, glob
from typing import TYPE_CHECKING, Final

from streams_protocol.types import TaskId
from streams_py.errors import StateError
from streams_py.state.directory.checkpoint import DATABASE_DIRECTORY
from streams_py.state.disk.damage import is_damage
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.disk.options import remedy_for
from streams_py.state.disk.sorted_files import sorted_folder
from streams_py.system.private_files import delete

if TYPE_CHECKING:
    from streams_py.state.snapshots.snapshots import Snapshots

_log = logging.getLogger("streams_py")

_DAMAGED_DIRECTORY: Final = "rocksdb-damaged"
"""Directory in which the last damaged database of a task is kept, next to the new database."""


def database_of(
    task: TaskId, task_directory: str, layout: Mapping[str, str], snapshots: Snapshots | None
) -> TaskDatabase:
    """Open a task's database with the stores that ``layout`` names.

    A snapshot that cannot be opened, for example one that a newer RocksDB wrote, is deleted. If it were kept, the error
    would tell the user to delete the directory, and the same snapshot would be downloaded again.

    Raises:
        LockError: The download of a snapshot is still running.
        StateError: The existing files cannot be opened.
    """
    is_fetched = snapshots is not None and snapshots.before_open(task, task_directory, layout)
    shutil.rmtree(sorted_folder(task_directory), ignore_errors=True)  # left by a previous owner
    if is_fetched:
        try:
            return TaskDatabase(task_directory, layout)
        except StateError as error:
            if remedy_for(error) is not None:  # the error comes from the machine, not from the snapshot
                raise
            _log.warning("task %s: cannot open its snapshot, replaying its changelogs instead: %s", task, error)
            delete(os.path.join(task_directory, DATABASE_DIRECTORY))
    return undamaged_database(f"task {task}: its", task_directory, layout, "their changelogs")


def undamaged_database(whose: str, directory: str, stores: Iterable[str], source: str) -> TaskDatabase:
    """Open the database in ``directory``. A damaged one is set aside, and an empty one is opened instead.

    Args:
        whose: Start of the warning about a damaged database.
        directory: The directory of a task, or of the global stores.
        stores: Names of the stores.
        source: The topics that the stores are restored from, for the warning.

    Raises:
        StateError: The database cannot be opened although it is not damaged, or a damaged one cannot be moved away.
    """
    names = list(stores)
    path = os.path.join(directory, DATABASE_DIRECTORY)
    if not os.path.lexists(os.path.join(path, "CURRENT")) and glob(os.path.join(escape(path), "*.sst")):
        reason = StateError("the file CURRENT is missing")  # RocksDB would silently delete the other files
        _set_aside(whose, directory, source, reason, cause=reason)
    try:
        return TaskDatabase(directory, names)
    except StateError as error:
        if not is_damage(error):
            raise
        _set_aside(whose, directory, source, error, cause=error.__cause__)
    return TaskDatabase(directory, names)


def set_damaged_aside(task: TaskId, task_directory: str, error: StateError) -> None:
    """Move the closed database of a task away, so that the task starts with an empty one."""
    _set_aside(f"task {task}: its", task_directory, "their changelogs", error, cause=error.__cause__)


def set_damaged_global_aside(directory: str, error: StateError) -> None:
    """Move the closed database of the global stores away, so that the next start restores them."""
    _set_aside("global stores: their", directory, "their topics at the next start", error, cause=error.__cause__)


def _set_aside(whose: str, directory: str, source: str, error: StateError, *, cause: BaseException | None) -> None:
    """Move a damaged database away. It replaces one that was set aside earlier.

    Raises:
        StateError: ``error``, when the database cannot be moved.
    """
    kept = os.path.join(directory, _DAMAGED_DIRECTORY)
    try:
        if os.path.lexists(kept):
            delete(kept)
        os.rename(os.path.join(directory, DATABASE_DIRECTORY), kept)
    except OSError:
        raise error from None
    _log.warning(
        "%s store files are damaged (%s). They were moved to %s, and the stores are restored from %s",
        whose,
        cause,
        kept,
        source,
    )
