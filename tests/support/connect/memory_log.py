"""A topic in memory, instead of a TopicLog. It reads sent records immediately, or fails on request."""

from __future__ import annotations

from collections.abc import Callable, Collection

from streams_protocol.types import TopicPartition
from streams_py.connect.ports import Delivered
from streams_py.ports import RawRecord
from streams_py.testing.memory_clients import MemoryRecord


class MemoryLog:
    """``records`` contains (key, value) of each sent record. Call it with the reader's function to connect it."""

    def __init__(self, records: Collection[tuple[bytes, bytes | None]] = ()) -> None:
        self.records = list(records)
        self.failures: list[Exception] = []
        self._read: Callable[[RawRecord], None] = lambda record: None

    def __call__(self, on_record: Callable[[RawRecord], None]) -> MemoryLog:
        self._read = on_record
        return self

    def start(self, partitions: int) -> None:
        for offset in range(len(self.records)):
            self._deliver(offset)

    def stop(self) -> None:
        pass

    def read_to_end(self, timeout_s: float) -> bool:
        return True

    def flush(self, timeout_s: float) -> bool:
        return True

    def send(self, key: bytes, value: bytes | None, on_delivery: Delivered) -> None:
        if self.failures:
            on_delivery(self.failures.pop(0), TopicPartition("log", -1))
            return
        self.records.append((key, value))
        self._deliver(len(self.records) - 1)
        on_delivery(None, TopicPartition("log", 0))

    def write(self, key: bytes, value: bytes | None, timeout_s: float) -> None:
        self.write_all([(key, value)], timeout_s)

    def write_all(self, records: Collection[tuple[bytes, bytes | None]], timeout_s: float) -> None:
        for key, value in records:
            if self.failures:
                raise self.failures.pop(0)
            self.records.append((key, value))
            self._deliver(len(self.records) - 1)

    def append(self, key: bytes, value: bytes | None) -> None:
        """Simulate a write of another worker."""
        self.records.append((key, value))
        self._deliver(len(self.records) - 1)

    def _deliver(self, offset: int) -> None:
        key, value = self.records[offset]
        self._read(MemoryRecord("log", 0, offset, key, value))
