"""The content of a task's directory. A marker file distinguishes it from a directory of Kafka Streams for Java."""

from __future__ import annotations

import os
from typing import Final

from streams_protocol.types import TaskId
from streams_py.state.directory.checkpoint import CHECKPOINT_FILE
from streams_py.system.private_files import delete, is_temporary, open_file

FORMAT_MARKER: Final = ".py-store-format"
FORMAT: Final = b"1\n"


def task_id_of(name: str) -> TaskId | None:
    """Return the task whose directory has this name. None if the name is not a task id."""
    try:
        task_id = TaskId.parse(name)
    except ValueError:
        return None
    return task_id if str(task_id) == name else None


def is_ours(task_directory: str) -> bool:
    """Whether a directory has this library's marker. A symbolic link to one does not count."""
    if os.path.islink(task_directory):
        return False
    try:
        with open(os.path.join(task_directory, FORMAT_MARKER), "rb", opener=open_file) as file:
            return file.read(16) == FORMAT
    except OSError:
        return False


def write_marker(task_directory: str) -> None:
    """Mark a directory as this library's. OSError if the marker cannot be written."""
    with open(os.path.join(task_directory, FORMAT_MARKER), "wb", opener=open_file) as file:
        file.write(FORMAT)


def has_content(task_directory: str) -> bool:
    """Whether a directory of this library has more than the marker, a checkpoint and lock files."""
    if not is_ours(task_directory):
        return False
    try:
        names = os.listdir(task_directory)
    except FileNotFoundError:  # deleted just now
        return False
    return any(
        name not in (FORMAT_MARKER, CHECKPOINT_FILE)
        and not name.endswith(".lock")
        and not is_temporary(name, CHECKPOINT_FILE)
        for name in names
    )


def delete_ours(directory: str) -> None:
    """Delete a directory. The marker is deleted last, so that after a crash the rest still counts as this library's.

    Raises:
        UntrustedPathError: Something in it is a symbolic link or belongs to another user.
        OSError: Something cannot be deleted.
    """
    for name in os.listdir(directory):
        if name != FORMAT_MARKER:
            delete(os.path.join(directory, name))
    delete(directory)
