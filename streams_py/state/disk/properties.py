"""The properties of a RocksDB database that are reported as metrics of its store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROPERTIES: Final[Mapping[str, str]] = {
    "num-entries-active-mem-table": "Entries in the active memtable.",
    "num-deletes-active-mem-table": "Deletions in the active memtable.",
    "num-entries-imm-mem-tables": "Entries in memtables that wait to be flushed.",
    "num-deletes-imm-mem-tables": "Deletions in memtables that wait to be flushed.",
    "num-immutable-mem-table": "Memtables that wait to be flushed.",
    "cur-size-active-mem-table": "Bytes in the active memtable.",
    "cur-size-all-mem-tables": "Bytes in the active memtable and in memtables that wait to be flushed.",
    "size-all-mem-tables": "Bytes in all memtables, including pinned ones.",
    "mem-table-flush-pending": "1 while a flush is pending.",
    "num-running-flushes": "Running flushes.",
    "compaction-pending": "1 while a compaction is pending.",
    "num-running-compactions": "Running compactions.",
    "estimate-pending-compaction-bytes": "Estimated bytes that compactions have to rewrite.",
    "total-sst-files-size": "Bytes in all table files.",
    "live-sst-files-size": "Bytes in the table files of the newest version.",
    "num-live-versions": "Versions that are still being read.",
    "block-cache-capacity": "Capacity in bytes of the block cache, which all stores of the process share.",
    "block-cache-usage": "Bytes in the block cache.",
    "block-cache-pinned-usage": "Bytes pinned in the block cache.",
    "estimate-num-keys": "Estimated number of keys, without uncommitted ones.",
    "estimate-table-readers-mem": "Bytes of filters and indexes outside the block cache.",
    "background-errors": "Background errors since the start.",
}
"""RocksDB property, without the prefix ``rocksdb.`` -> description. Kafka's metrics have the same names."""
