"""What workers need of Kafka clients; :mod:`streams_py.adapters.confluent.connect_clients` has them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.connect.group.coordinator import Coordinator, GroupHandler
from streams_py.ports import Admin, Headers, RawRecord, RecordConsumer

__all__ = ["ConnectClients", "Delivered", "Producer", "SinkConsumer", "SinkListener", "SinkOffsets"]

Delivered: TypeAlias = Callable[[Exception | None, TopicPartition], None]
"""Told how a send ended: None for success, and the partition (-1 when it never got one)."""


class Producer(Protocol):
    """Writes with acks=all, in order. :meth:`close` may be called by any thread, the rest by one."""

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
        """Queue a record; waits while the queue is full. ``on_delivery`` is called in :meth:`poll` and :meth:`flush`.

        Raises ProductionError for a record that can never be sent.
        """
        ...

    def poll(self, timeout_ms: int = 0) -> None:
        """Report what has ended."""
        ...

    def flush(self, timeout_ms: int) -> int:
        """Wait for what is queued; how many records still wait."""
        ...

    def close(self) -> None:
        """Drop what is queued and send nothing more."""
        ...


class SinkListener(Protocol):
    """Called inside :meth:`SinkConsumer.poll` and :meth:`SinkConsumer.close`."""

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None: ...
    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit now; afterwards they are somebody else's."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """They are somebody else's already: nothing can be committed."""


class SinkConsumer(Protocol):
    """Reads topics as a member of a consumer group, from the beginning of what was never committed."""

    def poll(self, max_records: int, timeout_ms: int) -> Sequence[RawRecord]: ...
    def assignment(self) -> frozenset[TopicPartition]: ...
    def pause(self, partitions: Collection[TopicPartition]) -> None: ...
    def resume(self, partitions: Collection[TopicPartition]) -> None: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises BrokerUnavailableError when they could not be committed."""
        ...

    def close(self) -> None:
        """Leave the group. Any thread; every later call of another thread raises IllegalStateError."""
        ...


class SinkOffsets(Protocol):
    """The offsets of sink connectors' consumer groups. BrokerUnavailableError, or StreamsError with the refusal."""

    def committed(self, group: str) -> Mapping[TopicPartition, int]: ...
    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...
    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None: ...
    def delete_group(self, group: str) -> None: ...


class ConnectClients(Protocol):
    """Makes the clients of one worker. Thread-safe. ``overrides`` are Kafka's dotted client keys."""

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
        """Either ``topics`` or a ``pattern`` (a regular expression for whole names)."""
        ...

    def coordinator(self, handler: GroupHandler) -> Coordinator: ...
    def sink_offsets(self) -> AbstractContextManager[SinkOffsets]:
        """For a few requests; the connection is closed at the end of the ``with`` block."""
        ...

    def topic_cleanup_policy(self, topic: str) -> str:
        """``cleanup.policy`` of a topic."""
        ...
