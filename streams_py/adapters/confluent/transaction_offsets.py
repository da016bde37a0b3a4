"""Input offsets in a transaction (KIP-447), through librdkafka's C API.

confluent-kafka's ``send_offsets_to_transaction`` is unsuitable for two reasons:

* It includes the NUL byte at the end of C strings in the metadata of an offset. A Java member cannot decode that
  metadata, so stream time is lost when a task moves from Python to Java.
* It accepts only the group metadata of confluent-kafka's own consumers. Our group member is a kafka-python client.

The C functions that it calls accept exact bytes and any member. They require librdkafka's handle, which the binding
stores as the first field of its producer object. :func:`check_access` verifies that with a test producer, and rejects
exactly-once when the layout differs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.library import Signatures, librdkafka
from streams_py.errors import ConfigError, UnsupportedOperationError
from streams_py.ports import GroupMetadata, OffsetAndMetadata


class _Entry(ctypes.Structure):
    """``rd_kafka_topic_partition_t``, public in librdkafka's header."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


_Handle: Final = ctypes.c_void_p
_Text: Final = ctypes.c_char_p
_HANDLE_AT: Final = object.__basicsize__
_PROBE: Final = "streams-py-probe"

_SIGNATURES: Final[Signatures] = {
    "rd_kafka_name": (_Text, [_Handle]),
    "rd_kafka_mem_malloc": (_Handle, [_Handle, ctypes.c_size_t]),
    "rd_kafka_topic_partition_list_new": (_Handle, [ctypes.c_int]),
    "rd_kafka_topic_partition_list_add": (ctypes.POINTER(_Entry), [_Handle, _Text, ctypes.c_int32]),
    "rd_kafka_topic_partition_list_destroy": (None, [_Handle]),
    "rd_kafka_consumer_group_metadata_new_with_genid": (_Handle, [_Text, ctypes.c_int32, _Text, _Text]),
    "rd_kafka_consumer_group_metadata_destroy": (None, [_Handle]),
    "rd_kafka_send_offsets_to_transaction": (_Handle, [_Handle, _Handle, _Handle, ctypes.c_int]),
    "rd_kafka_error_code": (ctypes.c_int, [_Handle]),
    "rd_kafka_error_string": (_Text, [_Handle]),
    "rd_kafka_error_is_fatal": (ctypes.c_int, [_Handle]),
    "rd_kafka_error_is_retriable": (ctypes.c_int, [_Handle]),
    "rd_kafka_error_txn_requires_abort": (ctypes.c_int, [_Handle]),
    "rd_kafka_error_destroy": (None, [_Handle]),
}


@cache
def _library() -> Any:
    return librdkafka(_SIGNATURES)


@cache
def check_access() -> None:
    """Check that the installed confluent-kafka can commit offsets in transactions.

    Raises:
        ConfigError: It cannot.
    """
    refused = (
        "processing.guarantee = exactly_once_v2 does not work with this confluent-kafka: {}. Install the version that "
        "streams-py was tested with, or use at_least_once"
    )
    producer = Producer({"bootstrap.servers": "", "client.id": _PROBE, "log_level": 0})
    try:
        name = _library().rd_kafka_name(_handle(producer)) or b""
    except (UnsupportedOperationError, KafkaException) as missing:
        raise ConfigError(refused.format(missing), key="processing.guarantee") from None
    finally:
        producer.close()
    if not name.startswith(_PROBE.encode()):
        raise ConfigError(refused.format("its producer objects have an unknown layout"), key="processing.guarantee")


def send_offsets(
    producer: Producer, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMetadata, timeout_s: float
) -> None:
    """Add ``offsets`` to the producer's transaction, for a group member and its generation.

    The metadata of each offset is sent without changes.

    Raises:
        KafkaException: As raised by confluent-kafka's ``send_offsets_to_transaction``.
    """
    library, handle = _library(), _handle(producer)
    positions = library.rd_kafka_topic_partition_list_new(len(offsets))
    who = library.rd_kafka_consumer_group_metadata_new_with_genid(
        member.group_id.encode(),
        member.generation,
        member.member_id.encode(),
        None if member.instance_id is None else member.instance_id.encode(),
    )
    try:
        for (topic, number), at in offsets.items():
            entry = library.rd_kafka_topic_partition_list_add(positions, topic.encode(), number).contents
            entry.offset = at.offset
            text = at.metadata.encode()
            if text:
                entry.metadata = library.rd_kafka_mem_malloc(handle, len(text))  # freed with the list
                entry.metadata_size = len(text)
                ctypes.memmove(entry.metadata, text, len(text))
        failed = library.rd_kafka_send_offsets_to_transaction(handle, positions, who, max(0, int(timeout_s * 1000)))
    finally:
        library.rd_kafka_consumer_group_metadata_destroy(who)
        library.rd_kafka_topic_partition_list_destroy(positions)
    if failed:
        raise KafkaException(_error(library, failed))


def _error(library: Any, failed: int) -> KafkaError:
    try:
        return KafkaError(
            library.rd_kafka_error_code(failed),
            library.rd_kafka_error_string(failed).decode(errors="replace"),
            bool(library.rd_kafka_error_is_fatal(failed)),
            bool(library.rd_kafka_error_is_retriable(failed)),
            bool(library.rd_kafka_error_txn_requires_abort(failed)),
        )
    finally:
        library.rd_kafka_error_destroy(failed)


def _handle(producer: Producer) -> int:
    """Return librdkafka's handle of an open producer. Raises KafkaException when it is closed."""
    handle = ctypes.c_void_p.from_address(id(producer) + _HANDLE_AT).value
    if handle is None:
        raise KafkaException(KafkaError(KafkaError._STATE, "the producer is closed"))
    return handle
