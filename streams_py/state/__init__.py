"""State stores: in memory and in RocksDB, their record cache, changelog positions and files."""
