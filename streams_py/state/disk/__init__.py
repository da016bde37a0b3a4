"""Stores on disk: RocksDB, with uncommitted writes in memory on top."""
