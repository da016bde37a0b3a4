"""What authors of connectors import: Kafka Connect's plug-in API, for Python.

A :class:`Connector` says which tasks there are; a :class:`SourceTask` fetches records that the worker writes to topics,
a :class:`SinkTask` gets records of topics to put elsewhere. Delivery is at least once.

* ``start`` runs on the job's own thread.
* ``SourceTask.poll`` waits for a bounded time only, and returns None or an empty list when there is nothing, so that a
  task can be paused. ``SourceTask.stop`` is called from **another** thread and must make ``poll`` return soon.
* All calls of a :class:`SinkTask` come from one thread; ``stop`` is the last, after a final ``pre_commit`` and
  ``close``.
* :class:`RetriableError` from ``put``: the same batch again after a while; from ``poll``: it is called again. Any other
  exception fails the job, which then stays where it is until it is restarted.
* Source partitions and offsets are maps with string keys and values that JSON has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from streams_protocol.types import TopicPartition

__all__ = [
    "Connector",
    "ConnectorContext",
    "Headers",
    "JsonMap",
    "OffsetReader",
    "RetriableError",
    "SinkConnector",
    "SinkRecord",
    "SinkTask",
    "SinkTaskContext",
    "SourceConnector",
    "SourceRecord",
    "SourceTask",
    "SourceTaskContext",
    "TopicPartition",
]

JsonMap: TypeAlias = Mapping[str, Any]
"""String keys; values are text, numbers, booleans or None."""

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class RetriableError(Exception):
    """Raised by a task: the same thing may work later."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record for a topic, and where it came from.

    ``source_offset`` is where to go on *after* this record in ``source_partition``. Without ``partition`` the key
    decides (murmur2), without ``timestamp`` (ms since the epoch) it is now. Key and value are what the converters take:
    JSON-like objects, text or bytes.
    """

    source_partition: JsonMap
    source_offset: JsonMap
    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A record of a topic, converted. ``timestamp`` is ms since the epoch, None when it has none."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int | None = None
    headers: Headers = ()


class OffsetReader(Protocol):
    """Where a source connector left off, by source partition."""

    def offset(self, partition: JsonMap) -> dict[str, Any] | None:
        """The committed source offset; None when there is none."""
        ...

    def offsets(self, partitions: Iterable[JsonMap]) -> list[dict[str, Any] | None]:
        """The committed source offsets, in the order asked for."""
        ...


class ConnectorContext(Protocol):
    """What a connector can ask of its worker. Any thread."""

    def request_task_reconfiguration(self) -> None:
        """Have ``task_configs`` called again: the source or sink has changed."""
        ...

    def raise_error(self, error: BaseException) -> None:
        """Fail the connector, for what happens outside its methods."""
        ...

    @property
    def offset_reader(self) -> OffsetReader:
        """Source connectors only."""
        ...


class SourceTaskContext(Protocol):
    """What a source task can ask of its worker."""

    def configs(self) -> Mapping[str, str]:
        """The task's current configuration."""
        ...

    @property
    def offset_reader(self) -> OffsetReader:
        """The source offsets that were committed before, by partition of the source."""
        ...


class SinkTaskContext(Protocol):
    """What a sink task can ask of its worker. Called on the task's thread, inside its methods."""

    def configs(self) -> Mapping[str, str]:
        """The task's current configuration."""
        ...

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this task reads now."""
        ...

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on reading at these offsets."""
        ...

    def timeout(self, timeout_ms: int) -> None:
        """How long to wait before the next try, when ``put`` raises RetriableError."""
        ...

    def pause(self, *partitions: TopicPartition) -> None:
        """Read nothing of these partitions until ``resume``."""
        ...

    def resume(self, *partitions: TopicPartition) -> None:
        """Read these partitions again."""
        ...

    def request_commit(self) -> None:
        """Commit offsets after this ``put``."""
        ...


class Connector(ABC):
    """Named by ``connector.class`` (``package.module:Class``), and made without arguments."""

    version: ClassVar[str] = "0"
    path_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of the configuration that name files or folders of the worker's host: the worker allows only those below
    its ``file.connectors.allowed.paths``."""
    secret_keys: ClassVar[tuple[str, ...]] = ()
    """Keys whose values the worker never shows, beside those whose name tells (``...password``, ``...secret``)."""
    context: ConnectorContext

    def initialize(self, context: ConnectorContext) -> None:
        """Called before ``start``."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begin; called once per instance."""

    @abstractmethod
    def task_class(self) -> type[SourceTask] | type[SinkTask]:
        """The class of its tasks."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One configuration per task, at most ``max_tasks``; none is allowed."""

    @abstractmethod
    def stop(self) -> None:
        """End; ``start`` is not called again."""

    def validate(self, props: Mapping[str, str]) -> dict[str, list[str]]:
        """What is wrong with a configuration: sentences by key."""
        return {}

    def alter_offsets(self, props: Mapping[str, str], offsets: Sequence[tuple[JsonMap, JsonMap | None]]) -> bool:
        """Check offsets that a user sets while the connector is stopped (KIP-875), before the worker writes them.

        Args:
            props: The connector's configuration. ``start`` was not called on this instance.
            offsets: (partition, offset) pairs; an offset of None is to be removed.

        Returns:
            Whether the connector has also changed offsets that it keeps outside Kafka.

        Raises:
            Exception: Any exception refuses the request with its text.
        """
        return False


class SourceConnector(Connector):
    """Brings records into Kafka."""

    @abstractmethod
    def task_class(self) -> type[SourceTask]: ...


class SinkConnector(Connector):
    """Brings records of Kafka elsewhere. Its configuration has ``topics`` or ``topics.regex``."""

    @abstractmethod
    def task_class(self) -> type[SinkTask]: ...


class SourceTask(ABC):
    """A part of a source connector's work: fetches records from its share of the source."""

    path_keys: ClassVar[tuple[str, ...]] = ()
    """See :attr:`Connector.path_keys`."""
    context: SourceTaskContext

    def initialize(self, context: SourceTaskContext) -> None:
        """Called before ``start``."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Open the source, and find out where to go on (``context.offset_reader``)."""

    @abstractmethod
    def poll(self) -> list[SourceRecord] | None:
        """The next records; None or an empty list after a bounded wait without any."""

    @abstractmethod
    def stop(self) -> None:
        """Called from another thread: make ``poll`` return soon, for the last time."""

    def commit(self) -> None:  # noqa: B027  # not every source keeps an account
        """Offsets up to here are committed."""

    def commit_record(self, record: SourceRecord, metadata: TopicPartition | None) -> None:  # noqa: B027  # as above
        """A record is in its topic (in partition ``metadata``), or was skipped (None). Called between polls."""


class SinkTask(ABC):
    """Puts records elsewhere."""

    path_keys: ClassVar[tuple[str, ...]] = ()
    """See :attr:`Connector.path_keys`."""
    context: SinkTaskContext

    def initialize(self, context: SinkTaskContext) -> None:
        """Called before ``start``."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Open the sink."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take records, in the order of their partitions; may be empty. They may be kept until :meth:`flush`."""

    @abstractmethod
    def stop(self) -> None:
        """Close the sink."""

    def open(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027  # most sinks need no preparation
        """These partitions will be read from now on."""

    def close(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027  # as above
        """These partitions are somebody else's from now on; their offsets are committed."""

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:  # noqa: B027  # as above
        """Make sure that everything before these offsets has arrived."""

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offsets that may be committed, of those that were put: by default all, once :meth:`flush` returns."""
        self.flush(offsets)
        return offsets
