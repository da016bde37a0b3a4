"""librdkafka's errors in the words of :mod:`streams_py.errors`: nothing of the library crosses the border."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from streams_py.errors import BrokerUnavailableError, ProductionError, RefusedRecord, StreamsError, TaskMigratedError
from streams_py.ports import AdminError, AdminErrorKind
from streams_py.ports.rights import CLUSTER, TOPIC, missing_right

__all__ = ["FATAL", "SPOILED", "admin_error", "broker_away", "error_of", "is_refusal", "is_unreachable", "send_error"]

FATAL: Final = (KafkaException, SystemError, AttributeError)
"""What a producer that cannot go on raises when it is asked for reports: the binding may lose the exception, or call a
report while it is pending, in which no attribute is found then."""

# The request reached nobody, or nobody answered.
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

# Kafka's RetriableException, as far as a send can end with it.
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

# No production exception handler is asked about these (Kafka Streams' RecordCollectorImpl.isFatalException).
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

# The broker and an idempotent producer do not agree about what was written: a new producer starts from the last commit
# (as in Kafka Streams' RecordCollectorImpl).
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
"""A record met a transaction that had failed before."""

_PERHAPS_OF_A_NEIGHBOUR: Final = frozenset({KafkaError.INVALID_MSG, KafkaError._INVALID_DIFFERENT_RECORD})
"""Retriable, but the answer for a whole batch: a handler that lets such a record pass would drop all of them."""

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
    # A leader that was elected a moment ago does not know the end yet (KIP-207), or an old one is still asked.
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
    """The KafkaError inside a KafkaException; None for anything else."""
    inner = exception.args[0] if isinstance(exception, KafkaException) and exception.args else None
    return inner if isinstance(inner, KafkaError) else None


def is_unreachable(error: KafkaError | None) -> bool:
    """True when the cluster did not answer: waiting may help."""
    return error is not None and error.code() in _UNREACHABLE


def is_refusal(error: KafkaError) -> bool:
    """Whether a broker refused a record, or the batch of it, for what the record is. Waiting does not help."""
    code = error.code()
    if code in _PERHAPS_OF_A_NEIGHBOUR:
        return True
    return not (error.fatal() or code in _RETRIABLE_SENDS | _FATAL_SENDS | _OUT_OF_STEP | SPOILED)


def broker_away(bootstrap: str, doing: str, waited_ms: int, reason: str = "") -> BrokerUnavailableError:
    """``doing`` completes "while ...", e.g. "creating topics"."""
    why = f" ({reason})" if reason else ""
    return BrokerUnavailableError(
        f"no answer from the Kafka cluster at {bootstrap} within {waited_ms} ms while {doing}{why}; "
        "check bootstrap.servers, the network and security.protocol"
    )


def send_error(
    error: KafkaError, topic: str, partition: int | None, record: RefusedRecord | None = None
) -> StreamsError:
    """Why a record was not written: ProductionError, StreamsError when no handler may let it pass, or
    TaskMigratedError when a new producer has to start from the last commit."""
    where = f"{topic}-{partition}" if partition is not None and partition >= 0 else topic
    text = f"a record for {where} was not written: {error.str()}"
    if error.code() in _FATAL_SENDS:
        result: StreamsError = StreamsError(f"{text} ({_remedy(error, topic)})")
    elif error.fatal() or error.code() in _OUT_OF_STEP:
        result = TaskMigratedError(f"{text} (the producer cannot go on; a new one starts from the last commit)")
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
            return "it is of no use to try again"


def admin_error(error: KafkaError, right: str, topic: str) -> AdminError:
    """One item's failure, as the port says it; ``right`` is what it takes, on ``topic``."""
    if is_unreachable(error):
        return AdminError(AdminErrorKind.TIMED_OUT, error.str())
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return AdminError(AdminErrorKind.NOT_ALLOWED, missing_right(right, TOPIC, [topic]))
    return AdminError(_ADMIN_KINDS.get(error.code(), AdminErrorKind.OTHER), f"{error.name()}: {error.str()}")
