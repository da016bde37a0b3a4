"""Every error of streams_py, on one page.

Four families, by whose turn it is to act:

* *yours*: :class:`ConfigError`, :class:`TopologyError`, :class:`AssignorError`, ... - change your code or settings;
* *theirs*: :class:`TaskAssignmentError` - another member sent something that cannot be used (undecodable bytes raise
  ``streams_protocol``'s ``DecodeError``);
* *the world*: :class:`BrokerUnavailableError`, :class:`StateError`, ... - ``retriable`` says whether waiting may help;
* *control*: :class:`TaskMigratedError`, :class:`TaskCorruptedError` - how the runtime tells itself to rebuild; they
  appear in logs and never reach your code or your uncaught-exception handler.

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
    """Base of all errors that streams_py raises.

    ``retriable`` is True when doing the same again later may work; ``task_id`` is set when one task is concerned;
    ``was_handled`` is True when an exception handler was asked about it: no other one is.
    """

    retriable: ClassVar[bool] = False
    was_handled = False

    def __init__(self, message: str, *, task_id: TaskId | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id


# -- yours ---------------------------------------------------------------------------------------------------


class ConfigError(StreamsError, ValueError):
    """A configuration value cannot be used. Raised when the configuration is read; by ``start`` when the cluster
    refuses login or certificates, or has a certificate that cannot be trusted.

    The message names the key, the value (secrets are masked), and what is allowed.

    What to do: correct the key that the message names.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class ConnectorError(StreamsError):
    """What a connector reads or writes cannot be used: a file, a table, a record.

    The message names it, and where (byte, column; topic, partition, offset), and says what to do.

    What to do: correct what the message names, then restart the connector's task.
    """


class TopologyError(StreamsError, ValueError):
    """The described topology is not valid; raised by the call that made it so, or by ``build``/``start``.

    ``where`` is the line of your program that the message ends with, if one is to blame.

    What to do: correct the call at ``where``, or what the message names.
    """

    where: str | None = None


class AssignorError(StreamsError):
    """``task.assignor.class`` cannot be loaded, raised, returned something that is no assignment, or never returned.

    The message names the class. You do not get it for a :class:`TaskAssignmentError` that the assignor raises itself.

    What to do: correct the assignor, or take ``task.assignor.class`` out. Meanwhile everybody keeps their tasks.
    """


class SerializationError(StreamsError):
    """A serde refused a value: wrong Python type, out of range, or wrong number of bytes.

    What to do: use the serde that fits what the function above makes, or correct that function.
    """


class ProcessingError(StreamsError):
    """Your processor, function or punctuator raised; ``__cause__`` is the original error.

    The message names node, task, topic, partition and offset.

    What to do: correct the function; or pass over such records with ``processing.exception.handler``.
    """


class ChangedInPlaceError(ProcessingError):
    """A function changed a value that others get too, or changed its aggregate and returned None.

    Raised by the test driver, which looks for it; no handler is asked. The message names operator, line and key.

    What to do: return a new value instead.
    """


class HandlerError(StreamsError):
    """Your exception handler raised, or returned something that is no answer. Always stops the stream thread.

    What to do: correct the handler, so that it returns one of its answers for every record.
    """

    was_handled = True


class CallTimeoutError(ProcessingError):
    """An asynchronous function did not answer within its ``timeout``; the processing handler is asked about its record.

    The message names function, node, task, key, topic, partition and offset.

    What to do: give the call more time, or correct what it waits for.
    """


class DeserializationError(StreamsError):
    """A record could not be decoded and the deserialization handler answered FAIL.

    The message names topic, partition, offset, source node, and the serde.

    What to do: use the serde that the topic was written with; or pass over such records with
    ``deserialization.exception.handler``.
    """


class RegistryError(StreamsError):
    """A schema registry refused credentials, or is none. Says nothing about a record, so no handler is asked.

    What to do: correct the registry's address and credentials.
    """


class UnsupportedOperationError(StreamsError):
    """Something was asked for that this object cannot give, e.g. lags that were not requested (KIP-924).

    What to do: ask for it where the message says, or do without.
    """


class IllegalStateError(StreamsError, RuntimeError):
    """A call that is not allowed now, e.g. starting a client twice.

    What to do: make the call in a state that allows it; the message names the present one.
    """


# -- theirs --------------------------------------------------------------------------------------------------


class TaskAssignmentError(StreamsError):
    """The group could not be assigned (protocol error code 3), or an assignor refused on purpose.

    What to do: read the log of the group's leader, which says why; then start the client again.
    """


class MissingSourceTopicError(StreamsError):
    """A source topic does not exist (protocol error code 1).

    What to do: create the topics that the message names, then start the application again.
    """


# -- the world -----------------------------------------------------------------------------------------------


class BrokerUnavailableError(StreamsError):
    """The cluster did not answer in time; the message names the address and the time waited.

    What to do: see that ``bootstrap.servers`` answer, and can be reached from here.
    """

    retriable: ClassVar[bool] = True


class RegistryUnavailableError(BrokerUnavailableError):
    """A schema registry did not answer, or not usefully; the message names its address. The record that needed it is
    tried again, for ``task.timeout.ms`` at most: no handler is asked about it.

    What to do: see that the registry answers, and can be reached from here.
    """


class TimeoutExceededError(StreamsError):
    """Something retriable kept failing longer than ``task.timeout.ms`` (or the time-out given) allows.

    What to do: end what the message says went wrong, or allow more time.
    """


class RefusedRecord(NamedTuple):
    """A record that a broker or the client library refused, as bytes.

    ``timestamp_ms`` is -1 and ``headers`` is empty where the library no longer tells them.
    """

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class ProductionError(StreamsError):
    """A record could not be written. Names topic and partition; ``retriable`` tells a passing from a final failure.

    ``record`` is the record, if it is known; ``reason`` is Kafka's name of the error, such as ``INVALID_TIMESTAMP``, or
    empty. ``ends_transaction``: the broker aborts the transaction of this record, so
    all tasks that share the transaction go back to their last commit.

    What to do: correct what the broker complains about (size, rights, the topic); or pass over such records with
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
        self.partition = partition
        self.retriable = retriable  # type: ignore[misc]  # narrows the class default per instance
        self.record = record
        self.reason = reason
        self.ends_transaction = ends_transaction


class BatchRefusedError(ProductionError):
    """A broker refused a batch, and it is not known yet for which of its records.

    The records of the batch are to be processed again. From now on the producer isolates the records of this topic, so
    that a broker's answer concerns one record. The production handler is asked about that record only.

    What to do: nothing; the log says which record was refused, if one was.
    """

    def __init__(self, message: str, *, topic: str, partition: int | None) -> None:
        super().__init__(message, topic=topic, partition=partition, retriable=True)


class RecordsExpiredError(ProductionError):
    """Records waited for their broker for so long that other members may have their task meanwhile, and were not sent.

    They are to be made again, by whoever has the task then; nobody asks the production handler about them, because
    nothing is wrong with them. What a process that was frozen or cut off had on its way would be written behind what
    others have written since, and a store restored from its changelog would have the older value.

    What to do: nothing, unless it comes often: then the brokers take records too slowly. ``session.timeout.ms`` bounds
    the time, unless ``producer.delivery.timeout.ms`` is set.
    """

    def __init__(self, message: str, *, topic: str, partition: int | None) -> None:
        super().__init__(message, topic=topic, partition=partition, retriable=True)


class OffsetOutOfRangeError(StreamsError):
    """The positions of these partitions do not exist on the broker (any more).

    What to do: keep records for longer than the application may stand still (``retention.ms``);
    ``auto.offset.reset`` says where it goes on.
    """

    def __init__(
        self, partitions: Collection[TopicPartition], message: str = "", *, deleted: Collection[TopicPartition] = ()
    ) -> None:
        self.partitions = frozenset(partitions)
        self.deleted = frozenset(deleted)
        """The partitions whose logs begin behind the position: the records in between were deleted."""
        names = ", ".join(map(str, sorted(self.partitions)))
        super().__init__(message or f"no such offset (deleted or never written): {names}")


class StateError(StreamsError):
    """A state store or the state directory failed (Kafka: ProcessorStateException).

    What to do: see that ``state.dir`` can be written, and has room left.
    """


class SnapshotError(StateError):
    """A snapshot of state is not whole, or is not of this application, cluster, task or topology; it is passed over.

    What to do: nothing: another snapshot or the changelog is used.
    """


class LockError(StateError):
    """A task directory cannot be used yet: another thread has it, or the cluster has not said whose state it is.

    What to do: nothing: it is tried again until the directory is free.
    """


class InvalidStateStoreError(StreamsError):
    """The store cannot be read now: closed, migrated, still restoring, or of another type.

    What to do: ask ``KafkaStreams.store`` for a new view, of the kind that the store has.
    """


class StateStoreMigratedError(InvalidStateStoreError):
    """The tasks behind this view have moved, or are closing: ask ``KafkaStreams.store`` for a new view."""

    retriable: ClassVar[bool] = True


class StateStoreNotAvailableError(InvalidStateStoreError):
    """No task with this store can be read here now: they are elsewhere, or still restoring; or a global store is being
    filled. Ask again later, or another instance."""

    retriable: ClassVar[bool] = True


class UnknownStateStoreError(InvalidStateStoreError):
    """No sub-topology has a store of that name; the message lists the names that exist.

    What to do: ask for one of those.
    """


class InvalidStateStorePartitionError(StateStoreNotAvailableError):
    """The asked partition of the store cannot be read on this client now."""


class StreamsNotStartedError(InvalidStateStoreError):
    """Stores can be read only after ``start``.

    What to do: call ``start`` first.
    """


# -- control: never shown to users ---------------------------------------------------------------------------


class TaskMigratedError(StreamsError):
    """This member does not own its tasks any more (fenced, expired, kicked out).

    What to do: nothing: the tasks are dropped without committing, and the member joins again.
    """


class TaskCorruptedError(StreamsError):
    """Local state of these tasks cannot be trusted. Maps each task to its bad changelogs.

    What to do: nothing: the state is wiped and restored.
    """

    def __init__(self, message: str, tasks: Mapping[TaskId, Collection[TopicPartition]]) -> None:
        super().__init__(message)
        self.tasks = {task: frozenset(changelogs) for task, changelogs in tasks.items()}
