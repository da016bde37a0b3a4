"""The properties of a RocksDB database that are metrics of its store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["PROPERTIES"]

PROPERTIES: Final[Mapping[str, str]] = {
    "num-entries-active-mem-table": "Entries in the memtable that is written.",
    "num-deletes-active-mem-table": "Deletions in the memtable that is written.",
    "num-entries-imm-mem-tables": "Entries in memtables that wait to be flushed.",
    "num-deletes-imm-mem-tables": "Deletions in memtables that wait to be flushed.",
    "num-immutable-mem-table": "Memtables that wait to be flushed.",
    "cur-size-active-mem-table": "Bytes of the memtable that is written.",
    "cur-size-all-mem-tables": "Bytes of the memtables that are written or wait.",
    "size-all-mem-tables": "Bytes of all memtables, pinned ones included.",
    "mem-table-flush-pending": "1 while a flush waits.",
    "num-running-flushes": "Flushes that run.",
    "compaction-pending": "1 while a compaction waits.",
    "num-running-compactions": "Compactions that run.",
    "estimate-pending-compaction-bytes": "Bytes that compactions have to rewrite, about.",
    "total-sst-files-size": "Bytes of all files.",
    "live-sst-files-size": "Bytes of the files of the newest version.",
    "num-live-versions": "Versions that somebody still reads.",
    "block-cache-capacity": "Bytes that the block cache, one for the process, may hold.",
    "block-cache-usage": "Bytes in the block cache.",
    "block-cache-pinned-usage": "Bytes pinned in the block cache.",
    "estimate-num-keys": "Keys, about; what waits for a commit is not among them.",
    "estimate-table-readers-mem": "Bytes of filters and indexes outside of the block cache.",
    "background-errors": "Background errors so far.",
}
"""What RocksDB is asked for, under its names without ``rocksdb.``, which are Kafka's too."""
