"""Count the records of a range one at a time, to verify code that reads ranges in other ways.

This module shares no code with :mod:`streams_py.adapters.confluent.bulk.range_reader`. ``poll`` returns records and
events in order, so this loop does not handle batches or redelivery. It is slower, and it stores no records.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.settings import Settings
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports.rights import TOPIC, missing_right

_POLL_S: Final = 1.0
_LOOK_UP_S: Final = 10.0
_TRANSIENT: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.GROUP_AUTHORIZATION_FAILED,  # librdkafka requests the coordinator, but never joins the group
    }
)
_INVALID_POSITION: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class PlainCount(NamedTuple):
    """The number of ``records`` from offset ``first`` on. Records before ``first`` were deleted."""

    records: int
    first: int


def count_records(
    settings: Settings,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    before_ms: int | None,
    patience_ms: int,
    from_ms: int | None = None,
) -> PlainCount:
    """Count the records from offset ``start`` up to, not including, ``end``.

    Args:
        settings: Settings of a consumer that reports the end of a partition and stops at offsets that don't exist.
        partition: The partition to count in.
        start: First offset.
        end: End offset, exclusive.
        before_ms: Count only records with an earlier timestamp. None counts all records.
        patience_ms: Longest time without a record or event.
        from_ms: Count only records with this timestamp or a later one. None counts all records.

    Raises:
        BrokerUnavailableError: No record or event arrived for ``patience_ms``.
        StreamsError: The partition cannot be read.
    """
    log = BrokerLog(str(settings["client.id"]), str(settings["bootstrap.servers"]))
    consumer = Consumer({**settings, "error_cb": log.on_error}, logger=log)
    count, position = 0, start
    try:
        _check_right(consumer, partition.topic)
        consumer.assign([confluent_kafka.TopicPartition(*partition, start)])
        heard_s = time.monotonic()
        while position < end:
            message = consumer.poll(_POLL_S)
            log.check()
            error = None if message is None else message.error()
            if message is None or (error is not None and error.code() in _TRANSIENT):
                if time.monotonic() - heard_s > patience_ms / 1000:
                    raise _silent(partition, position, end, patience_ms)
                continue
            heard_s = time.monotonic()
            at = message.offset() or 0
            if error is not None and error.code() in _INVALID_POSITION:
                start = position = _log_start(consumer, partition, position)
                count = 0
                consumer.assign([confluent_kafka.TopicPartition(*partition, start)])
            elif error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise _no_right(partition.topic)
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise StreamsError(f"the records of {partition} cannot be counted at offset {position}: {error.str()}")
            elif at >= end:  # a record after the range, or the end of the partition
                break
            elif error is None and at >= position:
                position = at + 1
                stamp = message.timestamp()[1]
                count += (before_ms is None or stamp < before_ms) and (from_ms is None or stamp >= from_ms)
    finally:
        consumer.close()
    return PlainCount(count, start)


def _check_right(consumer: Consumer, topic: str) -> None:
    """Raise StreamsError if the user may not read the topic. The consumer would wait for it without an error."""
    try:
        found = consumer.list_topics(topic, timeout=_LOOK_UP_S).topics.get(topic)
    except KafkaException:
        return  # the loop waits for the brokers
    if found is not None and found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise _no_right(topic)


def _silent(partition: TopicPartition, position: int, end: int, patience_ms: int) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"counting the records of {partition}: no record arrived for {patience_ms} ms at offset {position}, and the "
        f"range ends at {end}"
    )


def _no_right(topic: str) -> StreamsError:
    return StreamsError(f"the records of {topic} cannot be counted: {missing_right('READ', TOPIC, [topic])}")


def _log_start(consumer: Consumer, partition: TopicPartition, position: int) -> int:
    try:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*partition), timeout=_LOOK_UP_S)
    except KafkaException as failed:
        raise BrokerUnavailableError(f"the first offset of {partition} cannot be looked up: {failed}") from failed
    if not position < low <= high:
        raise StreamsError(
            f"the records of {partition} cannot be counted at offset {position}: its log has offsets {low} to {high}; "
            "was the topic deleted and created again?"
        )
    return low
