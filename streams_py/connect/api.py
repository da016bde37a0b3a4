"""Kafka Connect's plug-in API for Python. Authors of connectors import this module.

A :class:`Connector` defines its tasks. A :class:`SourceTask` fetches records, which the worker writes to topics. A
:class:`SinkTask` receives records of topics and writes them elsewhere. Delivery is at least once.

* ``start`` runs on the job's own thread.
* ``SourceTask.poll`` must wait only for a bounded time, and return None or an empty list without records, so that
  a task can be paused. ``SourceTask.stop`` is called from **another** thread and must make ``poll`` return soon.
* All calls of a :class:`SinkTask` come from one thread. ``stop`` is the last call, after a final ``pre_commit`` and
  ``close``.
* After a :class:`RetriableError` from ``put``, the worker puts the same batch again after a delay. After one from
  ``poll``, it polls again. Any other exception fails the job, which remains failed until it is restarted.
* Source partitions and offsets are maps with string keys and JSON values.
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
"""A map with string keys. Its values are text, numbers, booleans or None."""

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Names and values, in order. Names may repeat."""


class RetriableError(Exception):
    """Raised by a task for an error that may disappear, so that the worker tries again."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record for a topic, and its place in the source.

    Attributes:
        source_partition: The partition of the source that contains the record.
        source_offset: Where to continue *after* this record in ``source_partition``.
        topic: The topic to write to.
        value: JSON-like object, text or bytes, as the value converter requires.
        key: JSON-like object, text or bytes, as the key converter requires.
        partition: The partition to write to. None: the hash of the key decides (murmur2).
        timestamp: In ms since the epoch. None: the present time.
        headers: Names and values.
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
    """A converted record of a topic.

    ``timestamp`` is in ms since the epoch, or None if the record has none.
    """

    topic: str
    """Topic of the record."""
    partition: int
    """Partition of the record."""
    offset: int
    """Offset of the record."""
    key: Any
    """The converted key."""
    value: Any
    """The converted value. None: the record is a tombstone."""
    timestamp: int | None = None
    """Time in ms since the epoch, or None."""
    headers: Headers = ()
    """Headers of the record."""


class OffsetReader(Protocol):
    """Reads the committed positions of a source connector, by source partition."""

    def offset(self, partition: JsonMap) -> dict[str, Any] | None:
        """Return the committed source offset, or None if nothing is committed."""
        ...

    def offsets(self, partitions: Iterable[JsonMap]) -> list[dict[str, Any] | None]:
        """Return the committed source offsets, in the order of ``partitions``."""
        ...


class ConnectorContext(Protocol):
    """Services of the worker for a connector. Can be called on any thread."""

    def request_task_reconfiguration(self) -> None:
        """Request a new call of ``task_configs``, because the source or sink has changed."""
        ...

    def raise_error(self, error: BaseException) -> None:
        """Fail the connector because of an error outside its methods."""
        ...

    @property
    def offset_reader(self) -> OffsetReader:
        """The committed offsets. Source connectors only."""
        ...


class SourceTaskContext(Protocol):
    """Services of the worker for a source task."""

    def configs(self) -> Mapping[str, str]:
        """Return the task's current configuration."""
        ...

    @property
    def offset_reader(self) -> OffsetReader:
        """The committed source offsets, by partition of the source."""
        ...


class SinkTaskContext(Protocol):
    """Services of the worker for a sink task. Called on the task's thread, inside its methods."""

    def configs(self) -> Mapping[str, str]:
        """Return the task's current configuration."""
        ...

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this task reads now."""
        ...

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue reading at these offsets."""
        ...

    def timeout(self, timeout_ms: int) -> None:
        """Set the delay before the next try after ``put`` raises RetriableError."""
        ...

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading these partitions until ``resume``."""
        ...

    def resume(self, *partitions: TopicPartition) -> None:
        """Read these partitions again."""
        ...

    def request_commit(self) -> None:
        """Request a commit of offsets after this ``put``."""
        ...


class Connector(ABC):
    """Base class of connectors.

    ``connector.class`` names the class (``package.module:Class``). The worker creates it without arguments.
    """

    version: ClassVar[str] = "0"
    """Version of the connector, as the REST API shows it."""
    path_keys: ClassVar[tuple[str, ...]] = ()
    """Configuration keys whose values are files or folders of the worker's host.

    The worker allows only paths below its ``file.connectors.allowed.paths``.
    """
    secret_keys: ClassVar[tuple[str, ...]] = ()
    """Keys whose values the worker never shows.

    Names such as ``...password`` and ``...secret`` are always included.
    """
    context: ConnectorContext
    """The worker's side of the connector. Set by :meth:`initialize`."""

    def initialize(self, context: ConnectorContext) -> None:
        """Store the context. Called before ``start``."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Start. Called once per instance."""

    @abstractmethod
    def task_class(self) -> type[SourceTask] | type[SinkTask]:
        """Return the class of the tasks."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return one configuration per task, at most ``max_tasks``. The list may be empty."""

    @abstractmethod
    def stop(self) -> None:
        """Stop. ``start`` is not called again."""

    def validate(self, props: Mapping[str, str]) -> dict[str, list[str]]:
        """Return sentences about what is wrong with a configuration, by key."""
        return {}

    def alter_offsets(self, props: Mapping[str, str], offsets: Sequence[tuple[JsonMap, JsonMap | None]]) -> bool:
        """Check offsets that a user sets (KIP-875), before the worker writes them.

        The connector is stopped.

        Args:
            props: The connector's configuration. ``start`` has not been called on this instance.
            offsets: (partition, offset) pairs. None removes the offset.

        Returns:
            Whether the connector has also changed offsets that it keeps outside Kafka.

        Raises:
            Exception: Any exception. The worker refuses the request with its text.
        """
        return False


class SourceConnector(Connector):
    """A connector that reads records from a source into Kafka."""

    @abstractmethod
    def task_class(self) -> type[SourceTask]:
        """Return the class of the connector's tasks."""


class SinkConnector(Connector):
    """A connector that writes records of Kafka elsewhere.

    Configured with ``topics`` or ``topics.regex``.
    """

    @abstractmethod
    def task_class(self) -> type[SinkTask]:
        """Return the class of the connector's tasks."""


class SourceTask(ABC):
    """A part of a source connector's work. Fetches records from its share of the source."""

    path_keys: ClassVar[tuple[str, ...]] = ()
    """See :attr:`Connector.path_keys`."""
    context: SourceTaskContext
    """The worker's side of the task. Set by :meth:`initialize`."""

    def initialize(self, context: SourceTaskContext) -> None:
        """Store the context. Called before ``start``."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Open the source, and find the position to continue from (``context.offset_reader``)."""

    @abstractmethod
    def poll(self) -> list[SourceRecord] | None:
        """Return the next records. Returns None or an empty list after a bounded wait without any."""

    @abstractmethod
    def stop(self) -> None:
        """Make ``poll`` return soon, for the last time. Called from another thread."""

    def commit(self) -> None:  # noqa: B027  # not every source needs it
        """Handle that the offsets of all records so far are committed."""

    def commit_record(self, record: SourceRecord, metadata: TopicPartition | None) -> None:  # noqa: B027  # as above
        """Handle that a record is in its topic (partition ``metadata``), or was skipped (None).

        Called between polls.
        """


class SinkTask(ABC):
    """A part of a sink connector's work. Writes records elsewhere."""

    path_keys: ClassVar[tuple[str, ...]] = ()
    """See :attr:`Connector.path_keys`."""
    context: SinkTaskContext
    """The worker's side of the task. Set by :meth:`initialize`."""

    def initialize(self, context: SinkTaskContext) -> None:
        """Store the context. Called before ``start``."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Open the sink."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Process records, in the order of their partitions.

        May be empty. May buffer them until :meth:`flush`.
        """

    @abstractmethod
    def stop(self) -> None:
        """Close the sink."""

    def open(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027  # most sinks need no preparation
        """Prepare for records of these partitions."""

    def close(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027  # as above
        """Release these partitions, which another task takes over. Their offsets are committed."""

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:  # noqa: B027  # as above
        """Return when all records before these offsets have arrived."""

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets that may be committed. Default: all, after :meth:`flush`."""
        self.flush(offsets)
        return offsets
