"""The checkpoint file of a task: the changelog positions of its stores (Kafka Streams' OffsetCheckpoint).

Text, one line per changelog partition::

    0
    2
    app-counts-changelog 3 1207
    app-names-changelog 3 -4

Line 1 is the format version, line 2 the number of entries. An offset is the offset of the *last* record in the store,
not of the next one. -4 means that the position is unknown (for example, because the changelog is empty).

The file is replaced atomically: a temporary file is written, synced to disk, and renamed. Its name is not Kafka's. A
Java member that is started with the same ``state.dir`` would apply the offsets to its own stores, which are empty, and
would continue with empty state.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from typing import Final

from streams_protocol import OFFSET_UNKNOWN
from streams_protocol.types import TopicPartition
from streams_py.errors import StateError
from streams_py.system.private_files import open_file, replace_file

CHECKPOINT_FILE: Final = ".py-checkpoint"

DATABASE_DIRECTORY: Final = "rocksdb"
"""Directory with the task's database, next to the checkpoint."""


_VERSION: Final = 0
_SIZE_MAX: Final = 16 << 20
"""Maximum size of a checkpoint file in bytes. A larger file is not loaded, because no task has that many changelogs."""
_ENTRY: Final = re.compile(r"(\S+) +(\d{1,10}) +(-?\d{1,19})")
_OFFSET_MAX: Final = (1 << 63) - 1

_EVERY_RECORDS: Final = 10_000
"""Number of records by which all positions together must have moved before a checkpoint is written (as in Kafka)."""
_EVERY_S: Final = 10.0
"""Minimum interval between checkpoints in s. A checkpoint that the caller enforces is written regardless."""

_logger = logging.getLogger(__name__)


class CheckpointFile:
    """The checkpoint of one task, and the decision when to write it."""

    def __init__(self) -> None:
        self._offsets: Mapping[TopicPartition, int] = {}
        self._is_written = False
        self._next_s = 0.0

    def begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Start with the positions of a task that was opened. The existing file may have any content."""
        self._offsets, self._is_written = dict(offsets), False

    def is_due(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the positions have moved far enough since the checkpoint was written."""
        moved = sum(abs(offset - max(0, self._offsets.get(changelog, 0))) for changelog, offset in offsets.items())
        return moved > _EVERY_RECORDS and time.monotonic() >= self._next_s

    def write(self, task_directory: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the checkpoint file, unless it has the same content already.

        Each write syncs the file to disk, and the thread's other tasks have to wait for that.

        Raises:
            OSError: The file cannot be written.
        """
        self._next_s = time.monotonic() + _EVERY_S
        if self._is_written and offsets == self._offsets:
            return
        self._is_written = False
        write_checkpoint(task_directory, offsets)
        self._offsets, self._is_written = offsets, True


def read_checkpoint(task_directory: str) -> dict[TopicPartition, int]:
    """Read the offsets from the directory's checkpoint file. Empty without a file.

    Entries with a negative offset other than -4 are skipped with a warning.

    Raises:
        ValueError: The file is malformed.
        StateError: The file cannot be read.
    """
    path = os.path.join(task_directory, CHECKPOINT_FILE)
    try:
        with open(path, "rb", opener=open_file) as file:
            # Never request more than the file's size: Python's buffered reader allocates the requested size.
            content = file.read(min(os.fstat(file.fileno()).st_size, _SIZE_MAX) + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StateError(f"cannot read {path}: {error}; check the permissions of the state directory") from error
    if len(content) > _SIZE_MAX:
        raise ValueError(f"{path} is larger than {_SIZE_MAX} bytes")
    return _parse(content, path)


def has_database(task_directory: str) -> bool:
    """Whether the directory has a database, which a checkpoint refers to."""
    return os.path.exists(os.path.join(task_directory, DATABASE_DIRECTORY, "CURRENT"))


def stored_offsets(task_directory: str) -> dict[TopicPartition, int]:
    """Read the checkpoint, but only if the store files exist.

    If they are missing (deleted by hand, or not included in a copy), an empty store would count as complete. Then the
    result is empty, and a warning is logged.
    """
    offsets = read_checkpoint(task_directory)
    if offsets and not has_database(task_directory):
        _logger.warning("%s has a checkpoint but no store files: ignoring the checkpoint", task_directory)
        return {}
    return offsets


def _parse(content: bytes, path: str) -> dict[TopicPartition, int]:
    lines = content.decode("utf-8").split("\n")  # UnicodeDecodeError is a ValueError
    if lines and not lines[-1]:
        lines.pop()
    if len(lines) < 2 or lines[0].strip() != str(_VERSION):
        raise ValueError(f"{path}: the first line must be the version {_VERSION}")
    count = lines[1].strip()
    entries = lines[2:]
    if not count.isascii() or not count.isdigit() or int(count) != len(entries):
        raise ValueError(f"{path}: expected {count[:20]!r} entries, found {len(entries)}")
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(entries, start=3):
        match = _ENTRY.fullmatch(line.strip())
        if match is None or int(match[3]) > _OFFSET_MAX:
            raise ValueError(f"{path}: line {number} must have the form 'topic partition offset'")
        partition = TopicPartition(match[1], int(match[2]))
        offset = int(match[3])
        if offset < 0 and offset != OFFSET_UNKNOWN:
            _logger.warning("%s: ignoring the invalid offset %d of %s", path, offset, partition)
            continue
        offsets[partition] = offset
    return offsets


def write_checkpoint(task_directory: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the directory's checkpoint file, or delete it if ``offsets`` is empty.

    Raises:
        OSError: The file cannot be written.
        ValueError: An offset is negative, and not -4.
    """
    if not offsets:
        delete_checkpoint(task_directory)
        return
    lines = [str(_VERSION), str(len(offsets))]
    for partition, offset in sorted(offsets.items()):
        if offset < 0 and offset != OFFSET_UNKNOWN:
            raise ValueError(f"offset {offset} of {partition} must not be negative in a checkpoint")
        lines.append(f"{partition.topic} {partition.partition} {offset}")
    replace_file(os.path.join(task_directory, CHECKPOINT_FILE), ("\n".join(lines) + "\n").encode())
    force_to_disk(task_directory)


def delete_checkpoint(task_directory: str) -> None:
    """Delete the checkpoint file, if there is one."""
    try:
        os.unlink(os.path.join(task_directory, CHECKPOINT_FILE))
    except FileNotFoundError:
        return
    force_to_disk(task_directory)


def force_to_disk(path: str) -> None:
    """Sync a file, or the entries of a directory (so that a rename is durable), to disk. OSError if that fails."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
