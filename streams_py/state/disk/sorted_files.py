"""Entries of a key-value store as sorted files, which a database takes in whole: in milliseconds, whatever their size.

Whoever makes them need not have the database open, so another process can (:mod:`streams_py.clients.sorter_program`).
Entries come in the order of a changelog; the last one of a key counts, and one without data removes the key from what
the database has already. They are collected in memory, up to a bound; each time that is full, it becomes one file.
Files are to be taken in in their order.
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

__all__ = ["SortedFiles", "place_of", "sorted_folder"]

_FOLDER: Final = "sorted"
"""In the directory of a task, whose next owner removes what is left there."""

_BYTES_MAX: Final = 48 << 20
"""Keys and data of one file, before compression."""
_ENTRIES_MAX: Final = 400_000
"""Of one file: each takes about 150 bytes of memory beside its own."""


def sorted_folder(task_directory: str) -> str:
    """Where the files of a task go: on the disk of the database that takes them in."""
    return os.path.join(task_directory, _FOLDER)


def place_of(builder: StoreBuilder, task_directory: str) -> tuple[str, bool] | None:
    """Where files of a store on disk go, and whether its values are stamped; None when the database has other keys than
    its changelog, or more of them, and files of the latter are of no use."""
    if builder.kind not in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE) or builder.ttl_ms is not None:
        return None
    return sorted_folder(task_directory), builder.kind is StoreKind.TIMESTAMPED_KEY_VALUE


class SortedFiles:
    """Files of one store, in ``folder``, whose names begin with ``name``. ``stamped``: the store keeps the timestamp of
    a record in front of its value. One thread uses it."""

    def __init__(self, folder: str, name: str, *, stamped: bool, bytes_max: int = _BYTES_MAX) -> None:
        self.paths: list[str] = []
        """Those that are complete."""
        self._folder, self._name = folder, name
        self._stamped = stamped
        self._bytes_max = bytes_max
        self._entries: dict[bytes, bytes | None] = {}
        self._bytes = 0
        self._removes = False
        make_folder(folder)  # not what is above it: the task may be gone

    def add(self, entries: ChangelogEntries) -> int:
        """The next records of the changelog; those without a key are left out. Returns the bytes of the others."""
        keys, kept = entries.with_keys()
        self._removes = self._removes or kept.removes
        self._entries.update(zip(keys, kept.stamped() if self._stamped else kept.values, strict=True))
        weight = _weight(keys) + _weight(kept.values)
        self._bytes += weight
        if self._bytes >= self._bytes_max or len(self._entries) >= _ENTRIES_MAX:
            self._write()
        return weight

    def finish(self) -> Sequence[str]:
        """Write what is left, and say which files there are. StateError names the folder when the disk is full, say."""
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
            else:  # without a line of Python for each of them
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
