"""RocksDB options, and advice for RocksDB errors.

Memory is bounded per process, not per store as in Kafka Streams: all databases share one block cache, and one write
buffer manager makes them flush when their memtables together grow too large. Arena blocks are small, so that a hundred
tasks with one record each do not use a hundred megabytes.
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

_WRITE_BUFFER_BYTES: Final = 8 << 20
"""Size of a store's write buffer (memtable) in bytes: half of Kafka's.

Every write of an overwritten counter leaves a version in the buffer. Reads and writes get slower as the buffer outgrows
the processor's cache (10,000 counters: 2.9 us per get and put; 3.8 us with 16 MB).
"""
_BUFFERS_MAX: Final = 4
"""Maximum number of write buffers of a store, full ones included."""
_FLUSHES: Final = min(4, os.cpu_count() or 1)
"""Number of write buffers of the process that are flushed concurrently.

RocksDB's default, one thread, writes about as many entries per second as one stream thread restores.
"""
BUFFERS_WAITING_MAX: Final = _BUFFERS_MAX - 2
"""Number of full write buffers from which on a bulk restore pauses.

From 3 full buffers or 20 level-0 files on, RocksDB delays writers and finally blocks them, while rocksdict holds the
interpreter's lock.
"""
LEVEL_0_FILES_MAX: Final = 16
"""Number of level-0 files from which on a bulk restore pauses; see :data:`BUFFERS_WAITING_MAX`."""
LEVEL_0_FILES_MERGED: Final = 4
"""Number of level-0 files that triggers their compaction into the next level."""
LEVEL_0_FILES_MERGED_LATE: Final = 12
"""The same trigger during a bulk restore. Most restores end before it is reached, which saves one compaction."""
_LOG_BYTES_MAX: Final = 64 << 20
"""Maximum size of a database's write-ahead log in bytes, which is read again when a task opens after a crash."""
_KEPT_ENTRIES: Final = 262_144
"""Number of recently committed entries that all stores of the process together keep for reading; about 50 MB."""
_KEPT_ENTRIES_MIN: Final = 1_024
"""Minimum of :attr:`RocksMemory.kept_entries`."""
_KEPT_ENTRIES_MAX: Final = 16_384
"""Maximum of :attr:`RocksMemory.kept_entries`."""
_OPEN_FILES_PER_TASK: Final = "8 to 10"


class RocksMemory:
    """The memory limits that all databases of this process share, in bytes."""

    def __init__(self, *, block_cache_bytes: int = 64 << 20, write_buffer_bytes: int = 64 << 20) -> None:
        use_own_library()
        self.block_cache = rocksdict.Cache(block_cache_bytes)
        # allow_stall=False: above the limit, the database that is written to flushes; writers are never blocked.
        self.write_buffers = rocksdict.WriteBufferManager(write_buffer_bytes, False)
        rocksdict.Env().set_high_priority_background_threads(_FLUSHES)  # for the whole process
        self._open_stores = 0
        self._counting = Lock()
        when_forked(self, _leave_to_parent)

    def note_opened(self) -> None:
        """Count a store that was opened."""
        with self._counting:
            self._open_stores += 1

    def note_closed(self) -> None:
        """Count a store that was closed."""
        with self._counting:
            self._open_stores -= 1

    @property
    def kept_entries(self) -> int:
        """Number of recently committed small entries that each store may keep in memory for reading.

        Recently written entries are often read next.
        """
        return max(_KEPT_ENTRIES_MIN, min(_KEPT_ENTRIES_MAX, _KEPT_ENTRIES // max(1, self._open_stores)))


def _leave_to_parent(memory: RocksMemory) -> None:
    """In a forked child, use a new :class:`RocksMemory`, and never close the parent's databases."""
    keep_undestroyed(memory)
    shared_rocks_memory.cache_clear()
    end_without_destructors()


@cache
def shared_rocks_memory() -> RocksMemory:
    """The process's one :class:`RocksMemory`."""
    return RocksMemory()


def database_options(memory: RocksMemory, *, loading: bool = False) -> Any:
    """Return the options of a database and of its column families.

    Args:
        memory: The shared memory limits.
        loading: Whether to optimise for many writes without reads. Writes are only appended to the memtable, and the
            flush threads sort them.
    """
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
    # With RocksDB's default of 2, a writer that fills a buffer waits until the previous one is flushed. A restore would
    # wait all the time.
    options.set_max_write_buffer_number(_BUFFERS_MAX)
    # Data and positions must reach the files together, even if a power failure truncates the write-ahead log.
    options.set_atomic_flush(True)
    options.set_max_total_wal_size(_LOG_BYTES_MAX)
    options.set_arena_block_size(64 << 10)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def remedy_for(error: Exception) -> str | None:
    """Return advice for an error that the machine causes (open files, disk space). None for other errors."""
    text = str(error)
    if os.strerror(errno.EMFILE) in text or os.strerror(errno.ENFILE) in text:
        return (
            f"Each task with a persistent store keeps {_OPEN_FILES_PER_TASK} files open: raise the limit of open files "
            "(ulimit -n, or LimitNOFILE= of a service) and start again"
        )
    if os.strerror(errno.ENOSPC) in text:
        return (
            "Free space on that disk, or set state.dir to another disk: the state is restored from the changelog topics"
        )
    return None
