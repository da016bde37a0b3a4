"""Write entries of a key-value store to sorted files (SST files), which a database ingests whole.

Ingesting a file takes milliseconds, whatever its size. Writing the files does not need the open database, so another
process can do it (:mod:`streams_py.clients.sorter_program`).

Entries are added in the order of the changelog. The last entry of a key wins. An entry without data (a tombstone)
deletes the key from the data that the database already has. Entries are collected in memory up to a limit. Whenever the
limit is reached, they are written as one file. The files must be ingested in the order in which they were written.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import rocksdict

from streams_py.errors import StateError
from streams_py.state.disk.options import RocksMemory, database_options, remedy_for
from streams_py.state.stores.changelog_entries import ChangelogEntries
from streams_py.system.printable import text_of
from streams_py.system.private_files import make_folder
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

_FOLDER: Final = "sorted"
"""Folder in a task's directory. The next owner of the task deletes files that are left in it."""

_BYTES_MAX: Final = 48 << 20
"""Size limit of the keys and values of one file, in bytes before compression."""
_ENTRIES_MAX: Final = 400_000
"""Entry limit of one file. In memory, each entry costs about 150 bytes in addition to its key and value."""


def sorted_folder(task_directory: str) -> str:
    """Return the folder for a task's sorted files, on the same disk as the database that ingests them."""
    return os.path.join(task_directory, _FOLDER)


def sorted_files_target(builder: StoreBuilder, task_directory: str) -> tuple[str, bool] | None:
    """Return the folder for a store's sorted files, and whether its values start with a timestamp.

    None when the keys in the database are not exactly the keys in the changelog. Files made from the changelog are of
    no use then.
    """
    if builder.kind not in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE) or builder.ttl_ms is not None:
        return None
    return sorted_folder(task_directory), builder.kind is StoreKind.TIMESTAMPED_KEY_VALUE


class SortedFiles:
    """The sorted files of one store. Not thread-safe.

    Args:
        folder: Folder to write to.
        name: Start of the file names.
        stamped: Whether the store keeps the timestamp of a record in front of its value.
        bytes_max: Size limit of the keys and values of one file.
    """

    def __init__(self, folder: str, name: str, *, stamped: bool, bytes_max: int = _BYTES_MAX) -> None:
        self.paths: list[str] = []
        """The complete files, in the order in which they were written."""
        self._folder, self._name = folder, name
        self._stamped = stamped
        self._bytes_max = bytes_max
        self._entries: dict[bytes, bytes | None] = {}
        self._bytes = 0
        self._removes = False
        make_folder(folder)  # not its parents: the task may have been deleted

    def add(self, entries: ChangelogEntries) -> int:
        """Add the next records of the changelog. Records without a key are skipped.

        Returns:
            The size of the keys and values that were added, in bytes.
        """
        keys, kept = entries.with_keys()
        self._removes = self._removes or kept.removes
        self._entries.update(zip(keys, kept.stamped() if self._stamped else kept.values, strict=True))
        weight = _weight(keys) + _weight(kept.values)
        self._bytes += weight
        if self._bytes >= self._bytes_max or len(self._entries) >= _ENTRIES_MAX:
            self._write()
        return weight

    def finish(self) -> Sequence[str]:
        """Write the remaining entries, and return the paths of all files.

        Raises:
            StateError: A file cannot be written, for example because the disk is full.
        """
        if self._entries:
            self._write()
        return self.paths

    def _write(self) -> None:
        entries, self._entries, self._bytes = self._entries, {}, 0
        path = os.path.join(self._folder, f"{self._name}-{len(self.paths)}.sst")
        try:
            writer = rocksdict.SstFileWriter(database_options(RocksMemory(block_cache_bytes=0)))
            writer.open(path)
            keys = sorted(entries)
            if self._removes:
                for key in keys:
                    data = entries[key]
                    if data is None:
                        del writer[key]
                    else:
                        writer[key] = data
            else:  # map() runs no Python code per entry
                deque(map(writer.__setitem__, keys, map(entries.__getitem__, keys)), maxlen=0)
            writer.finish()
        except Exception as error:
            raise StateError(f"cannot write {path}: {text_of(error)}. {remedy_for(error) or ''}".rstrip()) from error
        self.paths.append(path)


def _weight(column: Iterable[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:  # some are null
        return sum(len(data) for data in column if data is not None)
