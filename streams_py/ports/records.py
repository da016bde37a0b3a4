"""Consumers and producers of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import ProductionError

Headers = Sequence[tuple[str, bytes | None]]

BEGINNING = -2
"""Position: the first existing record."""

END = -1
"""Position: after the last existing record."""


class RawRecord(Protocol):
    """A consumed record, with the methods of confluent-kafka's Message."""

    def topic(self) -> str:
        """Return the topic."""

    def partition(self) -> int:
        """Return the partition."""

    def offset(self) -> int:
        """Return the offset."""

    def key(self) -> bytes | None:
        """Return the key, or None."""

    def value(self) -> bytes | None:
        """Return the value, or None."""

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp, and the timestamp in ms."""

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return the headers in order, or None."""


class RecordConsumer(Protocol):
    """A consumer for explicitly assigned partitions (main, restore and global consumers). Not thread-safe."""

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Replace the whole assignment. Partitions that stay assigned with the position None are not interrupted.

        A position is an offset, BEGINNING or END. None keeps the current position of an assigned partition.
        """

    def pause(self, partitions: Collection[TopicPartition]) -> None: ...
    def resume(self, partitions: Collection[TopicPartition]) -> None: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def poll(self, max_records: int, timeout_ms: int) -> list[RawRecord]:
        """Return up to ``max_records`` records. Empty after ``timeout_ms`` without records.

        Raises:
            OffsetOutOfRangeError: A position does not exist on the broker.
        """

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to be delivered; None if it is not known yet."""

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the cached end offset minus the position; None if unknown. Makes no network call."""

    def close(self) -> None: ...


class DirectSend(NamedTuple):
    """The client library's own function for records of one topic, for callers that send many records.

    ``send(topic, value, key, partition, report, None, timestamp_ms, headers)`` may be called with a timestamp above 0
    and while ``failures`` is empty. For a record with headers, the report must be ``partial(report,
    known=(timestamp_ms, headers))``, because the client does not keep them. If ``send`` raises anything, the record was
    not queued. The caller then calls ``produce``, which waits for space in the queue, or raises an error.
    """

    send: Callable[..., None]
    report: Callable[..., object] | None
    failures: Sequence[Exception]


class RecordProducer(Protocol):
    """A producer. ``produce`` has positional arguments only, because it is called for every record."""

    produce: Callable[..., None]
    """``produce(topic, value, key, partition, on_delivery, timestamp_ms, headers)`` queues a record.

    Partition -1: by murmur2 of the key. Timestamp -1: now. Raises ProductionError for an earlier failed record.
    """
    blocked: AbstractContextManager[None]
    """A context manager that is entered while ``produce`` or ``partitions_for`` waits for a broker."""

    def direct(self, topic: str, partition: int = -1) -> DirectSend | None:
        """Return a faster alternative to ``produce`` for a topic (for one partition, if it is tracked), or None."""

    def poll(self, timeout_ms: int = 0) -> int: ...

    def flush(self, timeout_ms: int) -> int:
        """Wait until all records are acknowledged. Returns the number of records still waiting after ``timeout_ms``."""

    def overdue(self, timeout_ms: int) -> int:
        """Return the number of records that were not written within ``timeout_ms`` and must not be written late.

        Other members may own their tasks now. 0 if late writes do no harm: in a transaction, or if the user has set a
        delivery timeout.
        """

    def check(self) -> None:
        """Raise the first error that neither ``produce`` nor this method has raised before.

        Each failed record is reported once, in the order of its partition. BatchRefusedError stands for all records of
        a batch.
        """

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """Send ``instead`` (arguments of ``produce``) when the record that ended the transaction is produced again."""

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the highest acknowledged offset of each tracked (changelog) partition. Valid after ``flush``."""

    def track(self, topics: Collection[str]) -> None:
        """Track the acknowledged offsets of these topics."""

    def reset(self) -> None:
        """Start over, because this member no longer owns the tasks that wrote. Works after fatal errors too.

        Queued records are dropped and failures are forgotten. Results of earlier ``produce`` and ``direct`` calls are
        no longer valid.
        """

    def halt(self, reason: str) -> None:
        """Make every send raise TaskMigratedError with this reason, until :meth:`reset`. Thread-safe.

        Returns immediately, although the sending thread may be in the middle of a record that it owned when it started
        processing it.
        """

    def hold(self, reason: str | None) -> None:
        """As :meth:`halt`, but with BrokerUnavailableError, and until it is called with None."""

    def partitions_for(self, topic: str) -> int:
        """Return the partition count of a topic. BrokerUnavailableError if no broker responds in time."""

    def close(self) -> None: ...
