"""Stores on disk: RocksDB below, what is not committed yet in memory above it."""
