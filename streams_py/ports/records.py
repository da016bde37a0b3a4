"""Consumers and producers of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import ProductionError

__all__ = ["BEGINNING", "END", "DirectSend", "Headers", "RawRecord", "RecordConsumer", "RecordProducer"]

Headers = Sequence[tuple[str, bytes | None]]


BEGINNING = -2
"""Position: the first record there is."""


END = -1
"""Position: after the last record there is."""


class RawRecord(Protocol):
    """A record as the consumer delivers it: accessors of confluent-kafka's Message; timestamp: (who gave it, ms)."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class RecordConsumer(Protocol):
    """Reads records of explicitly assigned partitions (main, restore and global consumers). One thread only."""

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Make this the whole assignment. A position is an offset, BEGINNING or END; None keeps the current position
        of an already assigned partition. Partitions that stay are not disturbed."""

    def pause(self, partitions: Collection[TopicPartition]) -> None: ...
    def resume(self, partitions: Collection[TopicPartition]) -> None: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def poll(self, max_records: int, timeout_ms: int) -> list[RawRecord]:
        """Up to ``max_records`` records; empty after ``timeout_ms`` without any. Raises OffsetOutOfRangeError."""

    def position(self, partition: TopicPartition) -> int | None:
        """Offset of the next record to be delivered; None when not known yet."""

    def lag(self, partition: TopicPartition) -> int | None:
        """Cached end offset minus position, no network call; None when unknown."""

    def close(self) -> None: ...


class DirectSend(NamedTuple):
    """The client's own function for records of one topic, for callers that send one record after the other.

    ``send(topic, value, key, partition, report, None, timestamp_ms, headers)`` may be called with a timestamp above 0
    and while ``failures`` is empty; the report of a record with headers is ``partial(report, known=(timestamp_ms,
    headers))``, since the client does not keep them. Whatever it raises, the record was not queued: ``produce`` it,
    which then waits for room or says what is wrong.
    """

    send: Callable[..., None]
    report: Callable[..., object] | None
    failures: Sequence[Exception]


class RecordProducer(Protocol):
    """Writes records. ``produce`` takes its arguments by position: it is on the hot path of every record."""

    produce: Callable[..., None]
    """produce(topic, value, key, partition, on_delivery, timestamp_ms, headers); partition -1 = murmur2 of the key,
    timestamp -1 = now. Raises ProductionError for an earlier failed send."""
    blocked: AbstractContextManager[None]
    """Entered while ``produce`` or ``partitions_for`` waits for a broker. Set by whoever wants to know."""

    def direct(self, topic: str, partition: int = -1) -> DirectSend | None:
        """A way past ``produce`` to a topic (to one partition of it when it is tracked); None when there is none."""

    def poll(self, timeout_ms: int = 0) -> int: ...

    def flush(self, timeout_ms: int) -> int:
        """Wait until everything is acknowledged; number of records still waiting after ``timeout_ms``."""

    def overdue(self, timeout_ms: int) -> int:
        """Records not written after ``timeout_ms`` that must not be, now that others may have their tasks. 0 where that
        is no matter: in a transaction, or when the user says how long they wait."""

    def check(self) -> None:
        """Raise the first send error that was not raised before (by ``produce`` or here): each failed record is told
        once, in the order of its partition. BatchRefusedError stands for all records of a batch."""

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """Send ``instead`` (arguments of ``produce``) when the record that ended the transaction is made again."""

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Highest acknowledged offset of every tracked (changelog) partition; valid after ``flush``."""

    def track(self, topics: Collection[str]) -> None:
        """Topics whose acknowledged offsets are wanted."""

    def reset(self) -> None:
        """Nobody owns any more what was written from: drop what waits to be sent, forget what failed, and start over,
        also after an error that no client recovers from. What ``produce`` and ``direct`` gave before is void."""

    def halt(self, reason: str) -> None:
        """From now on every send raises TaskMigratedError with this reason, until :meth:`reset`. Thread-safe, and
        returns at once: the thread that sends may be in the middle of a record that it owned when it took it up."""

    def hold(self, reason: str | None) -> None:
        """As :meth:`halt`, but with BrokerUnavailableError, and until there is no reason (None) any more."""

    def partitions_for(self, topic: str) -> int:
        """Partition count of a topic; BrokerUnavailableError when it cannot be learnt in time."""

    def close(self) -> None: ...
