"""Input records of a history, and columns of its output records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from streams_protocol.types import TopicPartition
from streams_py.errors import ProductionError, StreamsError
from streams_py.history.fold import Fold
from streams_py.ports import DirectSend

ANY_PARTITION: Final = -1
"""The partition number of a record whose key decides the partition."""

_Headers = list[tuple[str, bytes | None]]


class HistoryRecord(tuple[Any, ...]):
    """A record (topic, partition, offset, key, value, (type, ms), headers) with the accessors of a raw record.

    It is a tuple because ``zip`` creates millions of them quickly.
    """

    __slots__ = ()

    def topic(self) -> str:
        """Topic name."""
        return self[0]  # type: ignore[no-any-return]

    def partition(self) -> int:
        """Partition number."""
        return self[1]  # type: ignore[no-any-return]

    def offset(self) -> int:
        """Offset in the partition."""
        return self[2]  # type: ignore[no-any-return]

    def key(self) -> bytes | None:
        """Key bytes."""
        return self[3]  # type: ignore[no-any-return]

    def value(self) -> bytes | None:
        """Value bytes."""
        return self[4]  # type: ignore[no-any-return]

    def timestamp(self) -> tuple[int, int]:
        """(type, ms)."""
        return self[5]  # type: ignore[no-any-return]

    def headers(self) -> _Headers | None:
        """Headers, or None when the record has none."""
        return self[6]  # type: ignore[no-any-return]


class Columns:
    """Records for one topic, in the order in which they were written. Timestamps are in ms.

    ``headers`` and ``partitions`` contain only the records that have headers or an explicit partition, by index. For
    other records the key decides the partition.
    """

    __slots__ = ("headers", "keys", "partitions", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, _Headers] = {}
        self.partitions: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def clear(self) -> None:
        """Remove all records."""
        for column in (self.keys, self.values, self.timestamps, self.headers, self.partitions):
            column.clear()


class HistoryProducer:
    """A ``RecordProducer`` that keeps a task's output: changelog records in folds, other records in columns by topic.

    ``counts`` has the partition counts of the topics that the task may write to. Every record is acknowledged
    immediately.
    """

    def __init__(self, counts: Mapping[str, int], folds: Mapping[str, Fold]) -> None:
        self._counts = counts
        self._folds = folds
        self.columns: dict[str, Columns] = {}
        self._sends: dict[str, DirectSend] = {}
        self.blocked: AbstractContextManager[None] = nullcontext()
        self.produce = self._produce

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = ANY_PARTITION,
        on_delivery: object = None,
        timestamp_ms: int = -1,
        headers: _Headers | None = None,
    ) -> None:
        """Keep a record. Raises StreamsError for a topic with an unknown partition count."""
        self.direct(topic).send(topic, value, key, partition, None, None, timestamp_ms, headers)

    def direct(self, topic: str, partition: int = ANY_PARTITION) -> DirectSend:
        """Return the function that keeps records of a topic."""
        found = self._sends.get(topic)
        if found is None:
            fold = self._folds.get(topic)
            send = self._writer(topic) if fold is None else fold.put
            found = self._sends[topic] = DirectSend(send, None, ())
        return found

    def _writer(self, topic: str) -> Any:
        self.partitions_for(topic)
        columns = self.columns[topic] = Columns()
        keys, values, timestamps = columns.keys.append, columns.values.append, columns.timestamps.append
        all_headers, partitions = columns.headers, columns.partitions

        def send(
            topic: str,
            value: bytes | None,
            key: bytes | None,
            partition: int,
            report: object,
            _: object,
            timestamp_ms: int,
            headers: _Headers | None,
        ) -> None:
            if headers:
                all_headers[len(columns)] = headers
            if partition != ANY_PARTITION:
                partitions[len(columns)] = partition
            keys(key)
            values(value)
            timestamps(timestamp_ms)

        return send

    def partitions_for(self, topic: str) -> int:
        """Return the partition count of a topic. Raises StreamsError when it is unknown."""
        count = self._counts.get(topic)
        if count is None:
            raise StreamsError(
                f"a function or exception handler chose topic {topic} for a record, which is not among the outputs; "
                "add it (--output, or partitions= with its partition count). If the topology also reads this topic, it "
                "cannot run over a history: use repartition()"
            )
        return count

    def poll(self, timeout_ms: int = 0) -> int:
        """Return 0: no record is ever pending."""
        return 0

    def flush(self, timeout_ms: int) -> int:
        """Return 0: no record is ever pending."""
        return 0

    def overdue(self, timeout_ms: int) -> int:
        """Return 0: no record is ever pending."""
        return 0

    def check(self) -> None:
        """Do nothing: no record is ever refused."""

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """Do nothing: this producer has no transactions."""

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Return an empty mapping: changelog records have no offsets here."""
        return {}

    def track(self, topics: Collection[str]) -> None:
        """Do nothing: records have no offsets here."""

    def reset(self) -> None:
        """Do nothing: no record is ever pending."""

    def halt(self, reason: str) -> None:
        """Do nothing: no other process can take over the task."""

    def hold(self, reason: str | None) -> None:
        """Do nothing: no record leaves this process."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
