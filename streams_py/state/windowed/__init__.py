"""Window and session stores, built on key-value stores whose keys combine a key and a time."""
