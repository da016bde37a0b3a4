"""The database of a task: what is in its directory, what a snapshot brings, or an empty one."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streams_protocol.types import TaskId
from streams_py.errors import StateError
from streams_py.private_files import delete
from streams_py.state.checkpoint import DATABASE_DIRECTORY
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.disk.options import remedy_for
from streams_py.state.disk.sorted_files import sorted_folder

if TYPE_CHECKING:
    from streams_py.state.snapshots.snapshots import Snapshots

__all__ = ["database_of"]

_log = logging.getLogger("streams_py")

_DAMAGED_DIRECTORY: Final = "rocksdb-damaged"
"""Where the last damaged database of a task is kept, beside its successor."""
_DAMAGE: Final = ("Corruption", "No such file")
"""In RocksDB's errors about files that are damaged or missing. A lock of another process is another error."""


def database_of(
    task: TaskId, task_directory: str, layout: Mapping[str, str], snapshots: Snapshots | None
) -> TaskDatabase:
    """With the stores that ``layout`` names. LockError while a snapshot is fetched. StateError when what is there
    cannot be opened; a snapshot that cannot, say of a later version of RocksDB, is dropped: whoever deleted the
    directory, as that error tells, would only get it once more."""
    is_fetched = snapshots is not None and snapshots.before_open(task, task_directory, layout)
    shutil.rmtree(sorted_folder(task_directory), ignore_errors=True)  # of a former owner
    try:
        return TaskDatabase(task_directory, layout)
    except StateError as error:
        if remedy_for(error) is not None:  # the machine is to blame
            raise
        if is_fetched:
            _log.warning("task %s: its snapshot cannot be used, and its changelogs are replayed: %s", task, error)
            delete(os.path.join(task_directory, DATABASE_DIRECTORY))
        elif _is_damaged(error):
            _set_aside(task, task_directory, error)
        else:
            raise
    return TaskDatabase(task_directory, layout)


def _is_damaged(error: StateError) -> bool:
    return any(sign in str(error.__cause__) for sign in _DAMAGE)


def _set_aside(task: TaskId, task_directory: str, error: StateError) -> None:
    """Move a damaged database away, in the place of one that was set aside before. StateError when that fails."""
    database = os.path.join(task_directory, DATABASE_DIRECTORY)
    kept = os.path.join(task_directory, _DAMAGED_DIRECTORY)
    try:
        if os.path.lexists(kept):
            delete(kept)
        os.rename(database, kept)
    except OSError:
        raise error from None
    _log.warning(
        "task %s: its store files are damaged (%s). They are kept in %s, and the stores are restored from their "
        "changelogs",
        task,
        error.__cause__,
        kept,
    )
