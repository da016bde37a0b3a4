"""Translate librdkafka's errors to :mod:`streams_py.errors`, so that no other package depends on them."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from streams_py.errors import BrokerUnavailableError, ProductionError, RefusedRecord, StreamsError, TaskMigratedError
from streams_py.ports import AdminError, AdminErrorKind
from streams_py.ports.rights import CLUSTER, TOPIC, missing_right

FATAL: Final = (KafkaException, SystemError, AttributeError)
"""Exceptions that ``poll`` and ``flush`` of a failed producer raise. The binding may lose the KafkaException
(SystemError), or call a report function while the exception is pending, where attribute access fails (AttributeError).
"""

# No broker received the request, or no broker answered it.
_UNREACHABLE: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

# Errors of a send for which Kafka raises a RetriableException.
_RETRIABLE_SENDS: Final = _UNREACHABLE | {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.INVALID_MSG,  # Kafka's CORRUPT_MESSAGE
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
}

# Errors that are never passed to a production exception handler (Kafka Streams' RecordCollectorImpl.isFatalException).
_FATAL_SENDS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SECURITY_DISABLED,
        KafkaError.TOPIC_EXCEPTION,  # Kafka's INVALID_TOPIC_EXCEPTION
        KafkaError.UNKNOWN,  # Kafka's UNKNOWN_SERVER_ERROR
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError._UNKNOWN_TOPIC,
    }
)

# The broker and an idempotent producer disagree about the records written so far. A new producer starts from the last
# commit (as in Kafka Streams' RecordCollectorImpl).
_OUT_OF_STEP: Final = frozenset(
    {
        KafkaError._FATAL,
        KafkaError._FENCED,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.PRODUCER_FENCED,
    }
)

_TRANSACTION_ABORTABLE: Final = 120
SPOILED: Final = frozenset({KafkaError._STATE, KafkaError.INVALID_TXN_STATE, _TRANSACTION_ABORTABLE})
"""Errors of a record whose transaction had already failed."""

_WHOLE_BATCH: Final = frozenset({KafkaError.INVALID_MSG, KafkaError._INVALID_DIFFERENT_RECORD})
"""Errors that a broker returns for a whole batch because of any of its records. They count as refusals, although
INVALID_MSG is retriable: a handler that skips such records would drop the good records of the batch too."""

_TOO_LARGE: Final = (
    "raise max.message.bytes of the topic, and max.request.size (message.max.bytes) of the producer, above the size of "
    "the record; or make it smaller"
)

_TIMESTAMP: Final = (
    "see message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic, or give the source a "
    "timestamp_extractor that corrects such timestamps"
)

_ADMIN_KINDS: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: AdminErrorKind.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_TOPIC: AdminErrorKind.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION: AdminErrorKind.UNKNOWN_TOPIC,
    KafkaError._NOENT: AdminErrorKind.LEADER_NOT_AVAILABLE,  # list_offsets: "No leaders found"
    KafkaError.LEADER_NOT_AVAILABLE: AdminErrorKind.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION: AdminErrorKind.LEADER_NOT_AVAILABLE,
    # A newly elected leader does not know the end offset yet (KIP-207), or the request went to an old leader.
    KafkaError.OFFSET_NOT_AVAILABLE: AdminErrorKind.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH: AdminErrorKind.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH: AdminErrorKind.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE: AdminErrorKind.LEADER_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR: AdminErrorKind.LEADER_NOT_AVAILABLE,
    KafkaError.TOPIC_ALREADY_EXISTS: AdminErrorKind.ALREADY_EXISTS,
    KafkaError._UNSUPPORTED_FEATURE: AdminErrorKind.UNSUPPORTED,
    KafkaError.UNSUPPORTED_VERSION: AdminErrorKind.UNSUPPORTED,
}


def error_of(exception: BaseException) -> KafkaError | None:
    """Return the KafkaError inside a KafkaException; None for any other exception."""
    inner = exception.args[0] if isinstance(exception, KafkaException) and exception.args else None
    return inner if isinstance(inner, KafkaError) else None


def is_unreachable(error: KafkaError | None) -> bool:
    """Whether the cluster did not answer, so that waiting may help."""
    return error is not None and error.code() in _UNREACHABLE


def is_refusal(error: KafkaError) -> bool:
    """Whether a broker refused a record or its batch because of the content. Waiting does not help."""
    code = error.code()
    if code in _WHOLE_BATCH:
        return True
    return not (error.fatal() or code in _RETRIABLE_SENDS | _FATAL_SENDS | _OUT_OF_STEP | SPOILED)


def broker_away(bootstrap: str, doing: str, waited_ms: int, reason: str = "") -> BrokerUnavailableError:
    """Build the error for an unreachable cluster. ``doing`` completes "while ...", e.g. "creating topics"."""
    why = f" ({reason})" if reason else ""
    return BrokerUnavailableError(
        f"no answer from the Kafka cluster at {bootstrap} within {waited_ms} ms while {doing}{why}; "
        "check bootstrap.servers, the network and security.protocol"
    )


def send_error(
    error: KafkaError, topic: str, partition: int | None, record: RefusedRecord | None = None
) -> StreamsError:
    """Build the error for a record that was not written.

    Returns:
        StreamsError when no production exception handler may skip the record, TaskMigratedError when a new producer
        has to start from the last commit, ProductionError otherwise.
    """
    where = f"{topic}-{partition}" if partition is not None and partition >= 0 else topic
    text = f"a record for {where} was not written: {error.str()}"
    if error.code() in _FATAL_SENDS:
        result: StreamsError = StreamsError(f"{text} ({_remedy(error, topic)})")
    elif error.fatal() or error.code() in _OUT_OF_STEP:
        result = TaskMigratedError(f"{text} (the producer cannot continue; a new one starts from the last commit)")
    else:
        retriable = error.code() in _RETRIABLE_SENDS
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            text = f"{text} (create the topic first)"
        elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            text = f"{text} ({_TOO_LARGE})"
        elif error.code() == KafkaError.INVALID_RECORD and record is not None and record.key is None:
            text = f"{text} (the record has no key: does the topic have cleanup.policy = compact?)"
        elif error.code() == KafkaError.INVALID_TIMESTAMP:
            text = f"{text} ({_TIMESTAMP})"
        result = ProductionError(
            text, topic=topic, partition=partition, retriable=retriable, record=record, reason=error.name()
        )
    result.__cause__ = KafkaException(error)
    return result


def _remedy(error: KafkaError, topic: str) -> str:
    match error.code():
        case KafkaError._UNKNOWN_TOPIC:
            return "create the topic first"
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return missing_right("WRITE", TOPIC, [topic])
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return missing_right("IDEMPOTENT_WRITE", CLUSTER)
        case KafkaError._AUTHENTICATION | KafkaError.SASL_AUTHENTICATION_FAILED | KafkaError.SECURITY_DISABLED:
            return "check sasl.mechanism, user name and password, and security.protocol"
        case _:
            return "retrying does not help"


def admin_error(error: KafkaError, right: str, topic: str) -> AdminError:
    """Translate the error of one item of a request. ``right`` is the operation on ``topic`` that it requires."""
    if is_unreachable(error):
        return AdminError(AdminErrorKind.TIMED_OUT, error.str())
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return AdminError(AdminErrorKind.NOT_ALLOWED, missing_right(right, TOPIC, [topic]))
    return AdminError(_ADMIN_KINDS.get(error.code(), AdminErrorKind.OTHER), f"{error.name()}: {error.str()}")
