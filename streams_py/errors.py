"""All errors of streams_py.

There are four families, by where the cause is:

* *Your application*: :class:`ConfigError`, :class:`TopologyError`, :class:`AssignorError`, ... Change your code or
  settings.
* *Other members*: :class:`TaskAssignmentError`. Another member sent data that cannot be used (undecodable bytes raise
  ``streams_protocol``'s ``DecodeError``).
* *The environment*: :class:`BrokerUnavailableError`, :class:`StateError`, ... ``retriable`` tells whether a later retry
  may succeed.
* *Control flow*: :class:`TaskMigratedError`, :class:`TaskCorruptedError`. The runtime uses them internally to rebuild
  tasks. They appear in logs, and never reach your code or your uncaught-exception handler.

Names follow Apache Kafka Streams without the word "Exception".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, NamedTuple

from streams_protocol.types import TaskId, TopicPartition

__all__ = [
    "AssignorError",
    "BatchRefusedError",
    "BrokerUnavailableError",
    "CallTimeoutError",
    "ConfigError",
    "ConnectorError",
    "DeserializationError",
    "HandlerError",
    "IllegalStateError",
    "InvalidStateStoreError",
    "InvalidStateStorePartitionError",
    "LockError",
    "MissingSourceTopicError",
    "OffsetOutOfRangeError",
    "ProcessingError",
    "ProductionError",
    "RecordsExpiredError",
    "RegistryError",
    "RegistryUnavailableError",
    "SerializationError",
    "SnapshotError",
    "StateError",
    "StateStoreMigratedError",
    "StateStoreNotAvailableError",
    "StreamsError",
    "StreamsNotStartedError",
    "TaskAssignmentError",
    "TaskCorruptedError",
    "TaskMigratedError",
    "TimeoutExceededError",
    "TopologyError",
    "UnknownStateStoreError",
    "UnsupportedOperationError",
]


class StreamsError(Exception):
    """The base class of all errors that streams_py raises.

    ``retriable`` is True if the same operation may succeed later. ``task_id`` is set if the error concerns one task.
    ``was_handled`` is True if an exception handler was already called for the error, so that no other one is.
    """

    retriable: ClassVar[bool] = False
    """Whether the same operation may succeed later."""
    was_handled = False
    """Whether an exception handler was already called for the error."""

    def __init__(self, message: str, *, task_id: TaskId | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id
        """The task that the error concerns, or None."""


# -- your application ----------------------------------------------------------------------------------------


class ConfigError(StreamsError, ValueError):
    """A configuration value is not valid.

    Raised when the configuration is read. Also raised by ``start`` if the cluster refuses the login or the client's
    certificate, or if the cluster's certificate is not trusted. The message names the key, the value (secrets are
    masked), and the valid values.

    What to do: correct the key that the message names.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        """The key of the wrong setting, if the error concerns one."""


class ConnectorError(StreamsError):
    """A connector cannot use the data that it reads or writes: a file, a table, a record.

    The message names the data and the position (byte, column; topic, partition, offset), and says what to do.

    What to do: correct what the message names, then restart the connector's task.
    """


class TopologyError(StreamsError, ValueError):
    """The topology is not valid. Raised by the call that is wrong, or by ``build`` or ``start``.

    ``where`` is the line of your program that caused the error, if known. The message ends with it.

    What to do: correct the call at ``where``, or the part of the topology that the message names.
    """

    where: str | None = None
    """The line of your program that caused the error, or None."""


class AssignorError(StreamsError):
    """``task.assignor.class`` cannot be loaded, raised an error, returned an invalid assignment, or never returned.

    The message names the class. Not raised if the assignor itself raises a :class:`TaskAssignmentError`.

    What to do: correct the assignor, or remove ``task.assignor.class``. Meanwhile all members keep their tasks.
    """


class SerializationError(StreamsError):
    """A serde refused a value: wrong Python type, out of range, or wrong number of bytes.

    What to do: use a serde for the type that the previous function returns, or correct that function.
    """


class ProcessingError(StreamsError):
    """Your processor, function or punctuator raised an error, which is the ``__cause__``.

    The message names node, task, topic, partition and offset.

    What to do: correct the function, or skip such records with ``processing.exception.handler``.
    """


class ChangedInPlaceError(ProcessingError):
    """A function modified a value that other functions get too, or modified its aggregate and returned None.

    Raised only by the test driver, which checks for it. No handler is called. The message names operator, line and key.

    What to do: return a new value instead.
    """


class HandlerError(StreamsError):
    """Your exception handler raised an error, or returned an invalid response. Always stops the stream thread.

    What to do: correct the handler, so that it returns a valid response for every record.
    """

    was_handled = True
    """True: no further handler is called."""


class CallTimeoutError(ProcessingError):
    """An asynchronous function did not return within its ``timeout``. The processing handler is called for its record.

    The message names function, node, task, key, topic, partition and offset.

    What to do: increase the timeout, or correct what the function waits for.
    """


class DeserializationError(StreamsError):
    """A record could not be decoded, and the deserialization handler returned FAIL.

    The message names topic, partition, offset, source node, and the serde.

    What to do: use the serde that the topic was written with, or skip such records with
    ``deserialization.exception.handler``.
    """


class RegistryError(StreamsError):
    """The schema registry rejected the credentials, or the URL is not a schema registry.

    The error does not concern a record, so no handler is called.

    What to do: correct the registry's URL and credentials.
    """


class UnsupportedOperationError(StreamsError):
    """The object does not support the operation, for example reading lags that were not requested (KIP-924).

    What to do: follow the message, or avoid the operation.
    """


class IllegalStateError(StreamsError, RuntimeError):
    """The call is not allowed in the current state, for example starting a client twice.

    What to do: call it in a state that allows it. The message names the current state.
    """


# -- other members -------------------------------------------------------------------------------------------


class TaskAssignmentError(StreamsError):
    """The assignment failed (protocol error code 3), or an assignor refused it deliberately.

    What to do: find the reason in the log of the group leader, then restart the client.
    """


class MissingSourceTopicError(StreamsError):
    """A source topic does not exist (protocol error code 1).

    What to do: create the topics that the message names, then restart the application.
    """


# -- the environment -----------------------------------------------------------------------------------------


class BrokerUnavailableError(StreamsError):
    """The cluster did not respond in time. The message names the address and the time waited.

    What to do: check that ``bootstrap.servers`` are running and reachable from this machine.
    """

    retriable: ClassVar[bool] = True
    """True: the cluster may respond later."""


class RegistryUnavailableError(BrokerUnavailableError):
    """A schema registry did not respond, or its response was not usable. The message names its address.

    The record that needed the registry is retried for at most ``task.timeout.ms``. No handler is called for it.

    What to do: check that the registry is running and reachable from this machine.
    """


class TimeoutExceededError(StreamsError):
    """A retriable operation kept failing for longer than ``task.timeout.ms`` (or the given timeout).

    What to do: fix the failure that the message names, or increase the timeout.
    """


class RefusedRecord(NamedTuple):
    """A record that a broker or the client library refused, as bytes.

    ``timestamp_ms`` is -1 and ``headers`` is empty if the library no longer has them.
    """

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class ProductionError(StreamsError):
    """A record could not be written. The message names topic and partition.

    * ``retriable``: whether the failure is temporary.
    * ``record``: the record, if known.
    * ``reason``: Kafka's name of the error, such as ``INVALID_TIMESTAMP``, or empty.
    * ``ends_transaction``: whether the broker aborts the transaction of this record, so that all tasks in the
      transaction return to their last commit.

    What to do: correct the cause in the message (size, rights, the topic), or skip such records with
    ``production.exception.handler``.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int | None,
        retriable: bool = False,
        record: RefusedRecord | None = None,
        reason: str = "",
        ends_transaction: bool = False,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        """Topic of the record."""
        self.partition = partition
        """Partition of the record, or None if it was not chosen yet."""
        self.retriable = retriable  # type: ignore[misc]  # narrows the class default per instance
        """Whether the failure is temporary."""
        self.record = record
        """The record, or None if it is not known."""
        self.reason = reason
        """Kafka's name of the error, or ""."""
        self.ends_transaction = ends_transaction
        """Whether the broker aborts the transaction of this record."""


class BatchRefusedError(ProductionError):
    """A broker refused a batch, and it is not known yet because of which of its records.

    The records of the batch must be processed again. From now on the producer sends each record of this topic in a
    separate batch, so that a response concerns only one record. The production handler is called for that record only.

    What to do: nothing. If a single record is refused, the log names it.
    """

    def __init__(self, message: str, *, topic: str, partition: int | None) -> None:
        super().__init__(message, topic=topic, partition=partition, retriable=True)


class RecordsExpiredError(ProductionError):
    """Records were dropped, because another member may own their task after the long wait for a broker.

    The owner of the task must produce them again. The production handler is not called, because the records are valid.
    If a process that was frozen or disconnected sent its old records, they would be written after newer records of
    other members, and a store restored from its changelog would get old values.

    What to do: nothing. If it happens often, the brokers accept records too slowly. The limit is
    ``session.timeout.ms``, unless ``producer.delivery.timeout.ms`` is set.
    """

    def __init__(self, message: str, *, topic: str, partition: int | None) -> None:
        super().__init__(message, topic=topic, partition=partition, retriable=True)


class OffsetOutOfRangeError(StreamsError):
    """The positions of these partitions do not exist on the broker, or no longer.

    What to do: keep records for longer than the application may be stopped (``retention.ms``). ``auto.offset.reset``
    determines where it continues.
    """

    def __init__(
        self, partitions: Collection[TopicPartition], message: str = "", *, deleted: Collection[TopicPartition] = ()
    ) -> None:
        self.partitions = frozenset(partitions)
        self.deleted = frozenset(deleted)
        """The partitions whose logs start after the position, because the records in between were deleted."""
        names = ", ".join(map(str, sorted(self.partitions)))
        super().__init__(message or f"no such offset (deleted or never written): {names}")


class StateError(StreamsError):
    """An operation on a state store or on the state directory failed (Kafka: ProcessorStateException).

    What to do: check that ``state.dir`` is writable and has free space.
    """


class SnapshotError(StateError):
    """A snapshot of state is incomplete, or belongs to another application, cluster, task or topology. It is skipped.

    What to do: nothing. Another snapshot or the changelog is used.
    """


class LockError(StateError):
    """A task directory cannot be used yet: another thread has locked it, or the id of the cluster is not known yet.

    What to do: nothing. The runtime retries until the directory is free.
    """


class InvalidStateStoreError(StreamsError):
    """The store cannot be read now: it is closed, has moved, is still restoring, or has another type.

    What to do: call ``KafkaStreams.store`` for a new view, with the type of the store.
    """


class StateStoreMigratedError(InvalidStateStoreError):
    """The tasks of this view have moved, or are closing.

    What to do: call ``KafkaStreams.store`` for a new view.
    """

    retriable: ClassVar[bool] = True
    """True: a new view may work."""


class StateStoreNotAvailableError(InvalidStateStoreError):
    """No task with this store can be read on this instance now.

    The tasks are on other instances or still restoring, or a global store is being filled.

    What to do: retry later, or query another instance.
    """

    retriable: ClassVar[bool] = True
    """True: a task with the store may start later."""


class UnknownStateStoreError(InvalidStateStoreError):
    """No sub-topology has a store with that name. The message lists the existing names.

    What to do: use one of the existing names.
    """


class InvalidStateStorePartitionError(StateStoreNotAvailableError):
    """The requested partition of the store cannot be read on this client now.

    What to do: retry later, or query another instance.
    """


class StreamsNotStartedError(InvalidStateStoreError):
    """Stores can be read only after ``start``.

    What to do: call ``start`` first.
    """


# -- control flow: never shown to users ----------------------------------------------------------------------


class TaskMigratedError(StreamsError):
    """This member no longer owns its tasks (fenced, expired, or removed from the group).

    What to do: nothing. The tasks are closed without a commit, and the member rejoins.
    """


class TaskCorruptedError(StreamsError):
    """The local state of these tasks cannot be trusted. ``tasks`` maps each task to its corrupted changelogs.

    What to do: nothing. The state is deleted and restored.
    """

    def __init__(self, message: str, tasks: Mapping[TaskId, Collection[TopicPartition]]) -> None:
        super().__init__(message)
        self.tasks = {task: frozenset(changelogs) for task, changelogs in tasks.items()}
