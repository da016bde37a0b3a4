"""The checkpoint file of a task: how far its stores contain their changelogs (Kafka Streams' OffsetCheckpoint).

Text, one line per changelog partition::

    0
    2
    app-counts-changelog 3 1207
    app-names-changelog 3 -4

Line 1 is the format version, line 2 the number of entries. An offset is that of the *last* record contained in the
store, not of the next one; -4 says that nothing is known (an empty changelog, for example).

The file appears whole or not at all: it is written beside, forced to disk, and renamed. It has a name of its own: under
Kafka's, a member in Java that is started with the same ``state.dir`` takes the offsets for those of its own stores,
which it finds empty, and goes on from nothing.
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

__all__ = [
    "CHECKPOINT_FILE",
    "DATABASE_DIRECTORY",
    "CheckpointFile",
    "delete_checkpoint",
    "force_to_disk",
    "has_database",
    "read_checkpoint",
    "stored_offsets",
    "write_checkpoint",
]

CHECKPOINT_FILE: Final = ".py-checkpoint"

DATABASE_DIRECTORY: Final = "rocksdb"
"""Where the stores that a checkpoint speaks of are, beside it."""


_VERSION: Final = 0
_SIZE_MAX: Final = 16 << 20
"""No task has so many changelogs: a file beyond this is not ours to load into memory."""
_ENTRY: Final = re.compile(r"(\S+) +(\d{1,10}) +(-?\d{1,19})")
_OFFSET_MAX: Final = (1 << 63) - 1

_EVERY_RECORDS: Final = 10_000
_EVERY_S: Final = 10.0
"""Without being enforced, a checkpoint is written when positions moved by more records than this in sum (as in Kafka),
and not more often."""

_logger = logging.getLogger(__name__)


class CheckpointFile:
    """The checkpoint of one task, and when it is time to write it."""

    def __init__(self) -> None:
        self._offsets: Mapping[TopicPartition, int] = {}
        self._is_written = False
        self._next_s = 0.0

    def begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The task was opened, with these; the file may say anything."""
        self._offsets, self._is_written = dict(offsets), False

    def is_due(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """True when they have moved far enough since it was written."""
        moved = sum(abs(offset - max(0, self._offsets.get(changelog, 0))) for changelog, offset in offsets.items())
        return moved > _EVERY_RECORDS and time.monotonic() >= self._next_s

    def write(self, task_directory: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace it, unless it says the same: each file is forced to the disk, and the thread's other tasks wait.
        OSError when that is not possible."""
        self._next_s = time.monotonic() + _EVERY_S
        if self._is_written and offsets == self._offsets:
            return
        self._is_written = False
        write_checkpoint(task_directory, offsets)
        self._offsets, self._is_written = offsets, True


def read_checkpoint(task_directory: str) -> dict[TopicPartition, int]:
    """The offsets in the directory's checkpoint file; empty when there is none.

    Entries with another negative offset than -4 are skipped with a warning. ValueError when the file is malformed,
    StateError when it cannot be read.
    """
    path = os.path.join(task_directory, CHECKPOINT_FILE)
    try:
        with open(path, "rb", opener=open_file) as file:
            # Never more than there is: Python's buffered reader allocates what it is asked for.
            content = file.read(min(os.fstat(file.fileno()).st_size, _SIZE_MAX) + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StateError(f"cannot read {path}: {error}; check the permissions of the state directory") from error
    if len(content) > _SIZE_MAX:
        raise ValueError(f"{path} is larger than {_SIZE_MAX} bytes")
    return _parse(content, path)


def has_database(task_directory: str) -> bool:
    """True when there are the store files that a checkpoint speaks of."""
    return os.path.exists(os.path.join(task_directory, DATABASE_DIRECTORY, "CURRENT"))


def stored_offsets(task_directory: str) -> dict[TopicPartition, int]:
    """:func:`read_checkpoint`, if it can be believed: when the store files beside it are gone (deleted by hand, or left
    out by a copy), an empty store would pass for one that contains all of this. Empty then, with a warning."""
    offsets = read_checkpoint(task_directory)
    if offsets and not has_database(task_directory):
        _logger.warning("%s has a checkpoint, but no store files: it is not believed", task_directory)
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
        raise ValueError(f"{path}: {count[:20]!r} entries announced, {len(entries)} found")
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(entries, start=3):
        match = _ENTRY.fullmatch(line.strip())
        if match is None or int(match[3]) > _OFFSET_MAX:
            raise ValueError(f"{path}: line {number} is not 'topic partition offset'")
        partition = TopicPartition(match[1], int(match[2]))
        offset = int(match[3])
        if offset < 0 and offset != OFFSET_UNKNOWN:
            _logger.warning("%s: offset %d of %s makes no sense and is left out", path, offset, partition)
            continue
        offsets[partition] = offset
    return offsets


def write_checkpoint(task_directory: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the directory's checkpoint file. Without entries it is deleted. OSError when that is not possible."""
    if not offsets:
        delete_checkpoint(task_directory)
        return
    lines = [str(_VERSION), str(len(offsets))]
    for partition, offset in sorted(offsets.items()):
        if offset < 0 and offset != OFFSET_UNKNOWN:
            raise ValueError(f"offset {offset} of {partition} cannot stand in a checkpoint")
        lines.append(f"{partition.topic} {partition.partition} {offset}")
    replace_file(os.path.join(task_directory, CHECKPOINT_FILE), ("\n".join(lines) + "\n").encode())
    force_to_disk(task_directory)


def delete_checkpoint(task_directory: str) -> None:
    """Remove the checkpoint file, if there is one."""
    try:
        os.unlink(os.path.join(task_directory, CHECKPOINT_FILE))
    except FileNotFoundError:
        return
    force_to_disk(task_directory)


def force_to_disk(path: str) -> None:
    """A file's content; of a directory which names there are, so that a rename is durable. OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
