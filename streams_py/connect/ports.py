"""The Kafka clients that workers need.

:mod:`streams_py.adapters.confluent.connect_clients` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.connect.group.coordinator import Coordinator, GroupHandler
from streams_py.ports import Admin, Headers, RawRecord, RecordConsumer

Delivered: TypeAlias = Callable[[Exception | None, TopicPartition], None]
"""Called with the result of a send: None or the error, and the partition (-1 if unknown)."""


class Producer(Protocol):
    """Writes with acks=all, in order.

    Any thread may call :meth:`close`; one thread calls all other methods.
    """

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        on_delivery: Delivered,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Queue a record.

        Waits while the queue is full. Calls ``on_delivery`` in :meth:`poll` and :meth:`flush`.

        Raises ProductionError for a record that can never be sent.
        """
        ...

    def poll(self, timeout_ms: int = 0) -> None:
        """Report completed sends."""
        ...

    def flush(self, timeout_ms: int) -> int:
        """Wait for queued records. Returns the number of records that are still queued."""
        ...

    def close(self) -> None:
        """Drop queued records and send nothing more."""
        ...


class SinkListener(Protocol):
    """Called inside :meth:`SinkConsumer.poll` and :meth:`SinkConsumer.close`."""

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None: ...
    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit now, because other members take over these partitions afterwards."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Handle that other members have taken over these partitions. They cannot be committed."""


class SinkConsumer(Protocol):
    """Reads topics as a member of a consumer group.

    Starts at the beginning of partitions without a commit.
    """

    def poll(self, max_records: int, timeout_ms: int) -> Sequence[RawRecord]: ...
    def assignment(self) -> frozenset[TopicPartition]: ...
    def pause(self, partitions: Collection[TopicPartition]) -> None: ...
    def resume(self, partitions: Collection[TopicPartition]) -> None: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets. Raises BrokerUnavailableError if they could not be committed."""
        ...

    def close(self) -> None:
        """Leave the group.

        Any thread may call it. Later calls of other threads raise IllegalStateError.
        """
        ...


class SinkOffsets(Protocol):
    """The offsets of sink connectors' consumer groups.

    Methods raise BrokerUnavailableError, or StreamsError with the broker's refusal.
    """

    def committed(self, group: str) -> Mapping[TopicPartition, int]: ...
    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...
    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None: ...
    def delete_group(self, group: str) -> None: ...


class ConnectClients(Protocol):
    """Creates the clients of one worker.

    Thread-safe. ``overrides`` are Kafka's dotted client keys.
    """

    def admin(self) -> Admin: ...
    def log_consumer(self, client_id: str) -> RecordConsumer: ...
    def producer(self, client_id: str, overrides: Mapping[str, str]) -> Producer: ...

    def sink_consumer(
        self,
        client_id: str,
        group: str,
        topics: Collection[str],
        pattern: str | None,
        listener: SinkListener,
        overrides: Mapping[str, str],
    ) -> SinkConsumer:
        """Create a consumer for ``topics``, or for a ``pattern`` that matches whole names."""
        ...

    def coordinator(self, handler: GroupHandler) -> Coordinator: ...
    def sink_offsets(self) -> AbstractContextManager[SinkOffsets]:
        """Return a client for a few requests. Its connection closes with the ``with`` block."""
        ...

    def topic_cleanup_policy(self, topic: str) -> str:
        """Return ``cleanup.policy`` of a topic."""
        ...
