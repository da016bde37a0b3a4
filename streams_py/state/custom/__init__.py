"""Custom stores, whose code users supply, as stores of a task; and the LRU map, a custom store of this library."""
