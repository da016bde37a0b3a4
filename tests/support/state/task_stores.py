"""The stores of one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streams_protocol.types import TaskId, TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.caching.cache import RecordCache
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

TASK = TaskId(0, 3)

DISK = TopicPartition("app-disk-changelog", 3)

SOURCE = TopicPartition("orders", 3)


def builder(name: str, **options: Any) -> StoreBuilder:
    return StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, **options)


BUILDERS = (
    builder("disk", persistent=True, caching=True),
    builder("memory", persistent=False, caching=True),
    builder("source", persistent=True, source_topic="orders"),
    builder("silent", persistent=True, logging=False),
)


class Record:
    """A raw changelog record."""

    def __init__(self, offset: int, key: str | None, value: int | None, timestamp_ms: int = 5) -> None:
        self._offset, self._key, self._value, self._timestamp_ms = offset, key, value, timestamp_ms

    def topic(self) -> str:
        return "any"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None if self._key is None else self._key.encode()

    def value(self) -> bytes | None:
        return None if self._value is None else self._value.to_bytes(8, "big")

    def timestamp(self) -> tuple[int, int]:
        return (1, self._timestamp_ms)

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None


def task_state(
    directory: StateDirectory,
    builders: Sequence[StoreBuilder] = BUILDERS,
    *,
    owner: str = "thread-1",
    cache: RecordCache | None = None,
) -> TaskState:
    return TaskState(TASK, builders, StoreEnvironment(directory, owner, cache=cache), application_id="app")


def opened(directory: StateDirectory, **options: Any) -> TaskState:
    state = task_state(directory, **options)
    state.open()
    return state
