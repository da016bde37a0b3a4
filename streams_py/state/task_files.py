"""What a task's directory contains, and whether it is ours: a marker file tells it from one of Kafka Streams."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Final

from streams_protocol.types import TaskId
from streams_py.state.checkpoint import CHECKPOINT_FILE

__all__ = ["FORMAT", "FORMAT_MARKER", "delete", "delete_ours", "has_content", "is_ours", "task_id_of"]

FORMAT_MARKER: Final = ".py-store-format"
FORMAT: Final = b"1\n"


def task_id_of(name: str) -> TaskId | None:
    """The task whose directory has this name; None when it is not one's."""
    try:
        task_id = TaskId.parse(name)
    except ValueError:
        return None
    return task_id if str(task_id) == name else None


def is_ours(task_directory: str) -> bool:
    """Whether our marker is in it."""
    try:
        with open(os.path.join(task_directory, FORMAT_MARKER), "rb") as file:
            return file.read(16) == FORMAT
    except OSError:
        return False


def has_content(task_directory: str) -> bool:
    """More than our own marker, a checkpoint, and left-over lock files (which are removed)."""
    if not is_ours(task_directory):
        return False
    found = False
    try:
        names = os.listdir(task_directory)
    except FileNotFoundError:  # deleted at this moment
        return False
    for name in names:
        if name.endswith(".lock"):
            with contextlib.suppress(FileNotFoundError):
                delete(os.path.join(task_directory, name))
        elif name not in (FORMAT_MARKER, CHECKPOINT_FILE, CHECKPOINT_FILE + ".tmp"):
            found = True
    return found


def delete_ours(directory: str) -> None:
    """Delete a directory. The marker goes last: what is left when the process is killed in between is still known to be
    ours."""
    for name in os.listdir(directory):
        if name != FORMAT_MARKER:
            delete(os.path.join(directory, name))
    shutil.rmtree(directory)


def delete(path: str) -> None:
    """A file, a link, or a directory with all that is in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
