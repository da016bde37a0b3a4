"""A store of counters."""

from __future__ import annotations

from streams_protocol.types import TopicPartition
from streams_py.state.disk.database import TaskDatabase

COUNTERS = [b"%03d" % number for number in range(100)]


def count(database: TaskDatabase, rounds: int, *, first: int = 0) -> None:
    for number in range(first, first + rounds):
        for key in COUNTERS:
            database.store("s").write(key, b"%d" % number)
        database.commit({TopicPartition("log", 0): number})
