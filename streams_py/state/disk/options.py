"""How RocksDB is set up here, and what its errors mean.

Memory is bounded for the process, not per store as in Kafka Streams: all databases share one block cache, and one
write buffer manager makes them flush when their memtables together grow too large. Arena blocks are small, so that a
hundred tasks that have seen one record each do not hold a hundred megabytes.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from threading import Lock
from typing import Any, Final

import rocksdict

from streams_py.state.disk.library import use_own_library
from streams_py.system.forks import end_without_destructors, keep_undestroyed, when_forked

__all__ = [
    "BUFFERS_WAITING_MAX",
    "LEVEL_0_FILES_MAX",
    "LEVEL_0_FILES_MERGED",
    "LEVEL_0_FILES_MERGED_LATE",
    "RocksMemory",
    "database_options",
    "remedy_for",
    "shared_rocks_memory",
]

_WRITE_BUFFER_BYTES: Final = 8 << 20
"""Per store. Half of Kafka's: a counter that is overwritten leaves a version per write in the buffer, and reading and
writing get slower as it outgrows the processor's cache (10,000 counters: 2.9 us per get and put, 3.8 with 16 MB)."""
_BUFFERS_MAX: Final = 4
_FLUSHES: Final = min(4, os.cpu_count() or 1)
"""So many buffers of the process are brought to the disk at a time. RocksDB's one thread takes about as many entries as
one stream thread restores."""
BUFFERS_WAITING_MAX: Final = _BUFFERS_MAX - 2
LEVEL_0_FILES_MAX: Final = 16
"""So many full buffers and files may wait for RocksDB's own threads. From 3 and 20 on it slows writers down, then stops
them, and rocksdict holds the interpreter's lock meanwhile."""
LEVEL_0_FILES_MERGED: Final = 4
LEVEL_0_FILES_MERGED_LATE: Final = 12
"""So many files are merged into the next level; the latter number while a store is restored in bulk: mostly that ends
before, and there is one merging less."""
_LOG_BYTES_MAX: Final = 64 << 20
"""Of a database's write-ahead log: what has to be read again when the task opens after a crash."""
_KEPT_ENTRIES: Final = 262_144
"""By all stores of the process together, for reading; about 50 MB."""
_KEPT_ENTRIES_MIN: Final = 1_024
_KEPT_ENTRIES_MAX: Final = 16_384
_OPEN_FILES_PER_TASK: Final = "8 to 10"


class RocksMemory:
    """What the databases of this process may hold in memory together, in bytes."""

    def __init__(self, *, block_cache_bytes: int = 64 << 20, write_buffer_bytes: int = 64 << 20) -> None:
        use_own_library()
        self.block_cache = rocksdict.Cache(block_cache_bytes)
        # allow_stall=False: beyond the limit the database being written flushes; writers are never blocked.
        self.write_buffers = rocksdict.WriteBufferManager(write_buffer_bytes, False)
        rocksdict.Env().set_high_priority_background_threads(_FLUSHES)  # of the process
        self._open_stores = 0
        self._counting = Lock()
        when_forked(self, _leave_to_parent)

    def note_opened(self) -> None:
        """One more store is open."""
        with self._counting:
            self._open_stores += 1

    def note_closed(self) -> None:
        """A store was closed."""
        with self._counting:
            self._open_stores -= 1

    @property
    def kept_entries(self) -> int:
        """So many small entries of what was committed lately each store may keep for reading, because what was written
        last is often read next."""
        return max(_KEPT_ENTRIES_MIN, min(_KEPT_ENTRIES_MAX, _KEPT_ENTRIES // max(1, self._open_stores)))


def _leave_to_parent(memory: RocksMemory) -> None:
    """In a forked child: what it opens shares no memory with the parent's databases, which are never closed here."""
    keep_undestroyed(memory)
    shared_rocks_memory.cache_clear()
    end_without_destructors()


@cache
def shared_rocks_memory() -> RocksMemory:
    """The process's one :class:`RocksMemory`."""
    return RocksMemory()


def database_options(memory: RocksMemory, *, loading: bool = False) -> Any:
    """Options of a database and of its column families. ``loading``: for many writes that nobody reads yet: what is
    written is only lined up, and sorted by the threads that bring it to the disk."""
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(memory.block_cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10, False)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_allow_concurrent_memtable_write(False)  # there is one writer
    options.set_level_zero_file_num_compaction_trigger(LEVEL_0_FILES_MERGED_LATE if loading else LEVEL_0_FILES_MERGED)
    if loading:
        options.set_memtable_factory(rocksdict.MemtableFactory.vector())
    # With RocksDB's 2 whoever fills a buffer waits for the one before it to be flushed: restoring would, all the time.
    options.set_max_write_buffer_number(_BUFFERS_MAX)
    # Data and positions reach the files together, also when the machine loses its power and the log its end.
    options.set_atomic_flush(True)
    options.set_max_total_wal_size(_LOG_BYTES_MAX)
    options.set_arena_block_size(64 << 10)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def remedy_for(error: Exception) -> str | None:
    """What to do about an error that comes from the machine, not from the files."""
    text = str(error)
    if os.strerror(errno.EMFILE) in text or os.strerror(errno.ENFILE) in text:
        return (
            f"Each task with a persistent store keeps {_OPEN_FILES_PER_TASK} files open: raise the limit of open files "
            "(ulimit -n, or LimitNOFILE= of a service) and start again"
        )
    if os.strerror(errno.ENOSPC) in text:
        return (
            "Make room on that disk, or set state.dir to another one: the state is restored from the changelog topics"
        )
    return None
