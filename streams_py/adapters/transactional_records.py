"""Write records with timestamp 0 to a transaction of librdkafka, using kafka-python.

librdkafka's produce call takes 0 for "now". Brokers identify a transactional producer by its id and epoch, and expect
its records to have consecutive sequence numbers in each partition. So another client can write a record of the same
producer, with the next number. From then on, this client must write all records for that partition, because librdkafka
does not know the new number. A new librdkafka client has a new epoch, whose numbers begin at 0.

The partition's leader returns the current number, which requires the right READ on the topic. All requests use the
older transaction protocol (KIP-890's first part), as librdkafka does: an epoch is valid until it is fenced.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from streams_py.adapters.connection import kafka_answers  # noqa: F401  # isort: skip  # loads the library, before there are threads
from kafka import errors as kafka_errors
from kafka.partitioner import murmur2
from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.structs import TopicPartition as KafkaPartition

from streams_protocol.types import TopicPartition
from streams_py.adapters.connection.direct_requests import DirectRequests
from streams_py.errors import ProductionError, StreamsError, TaskCorruptedError, TaskMigratedError
from streams_py.ports.rights import TOPIC, TRANSACTIONAL_ID, missing_right

_PAUSE_S: Final = 0.05
_COUNTS: Final = 1 << 31
_OLDER_PRODUCE: Final = 11
"""Last version of Produce that requires a separate request to add a partition to the transaction."""
_REFUSALS: Final = (
    kafka_errors.InvalidRecordError,
    kafka_errors.InvalidTimestampError,
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.PolicyViolationError,
)
_FENCED: Final = (
    kafka_errors.ProducerFencedError,
    kafka_errors.InvalidProducerEpochError,
    kafka_errors.InvalidProducerIdMappingError,
)


class TransactionalRecords:
    """Sender of single records of the current producer with ``transactional_id``. Not thread-safe.

    ``timeout_ms`` limits the time for one record.
    """

    def __init__(self, connection: Mapping[str, Any], transactional_id: str, *, timeout_ms: int) -> None:
        self._requests = DirectRequests(connection, timeout_ms=timeout_ms)
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer: tuple[int, int] | None = None
        self._added: set[TopicPartition] = set()
        self.partitions: dict[TopicPartition, int] = {}
        """Sequence number of the next record, for each partition that this sender writes to."""

    def reset(self) -> None:
        """Forget the producer and its sequence numbers, because a new librdkafka client replaces the last one."""
        self._producer = None
        self.committed()
        self.partitions.clear()

    def committed(self) -> None:
        """Note that the transaction has ended."""
        self._added.clear()

    def partition_of(self, key: bytes | None, count: int) -> int:
        """Choose the partition of a record in the same way as librdkafka's murmur2_random."""
        return random.randrange(count) if key is None else (int(murmur2(key)) & 0x7FFFFFFF) % count

    def send(
        self,
        place: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> int:
        """Write one record to the ongoing transaction, and return its offset. ``timestamp_ms`` -1 is the current time.

        Raises:
            ProductionError: The broker refused the record, and the transaction is not affected.
            TaskMigratedError: Another producer has taken over the transactional id.
            StreamsError: A right is missing.
            TaskCorruptedError: Any other failure.
        """
        until_s = time.monotonic() + self._timeout_ms / 1000
        if timestamp_ms < 0:
            timestamp_ms = int(time.time() * 1000)
        while True:
            try:
                return self._send(place, value, key, timestamp_ms, headers or ())
            except _REFUSALS as refused:
                raise ProductionError(
                    f"a record for {place} with timestamp {timestamp_ms} was not written: {refused}",
                    topic=place.topic,
                    partition=place.partition,
                    reason=str(getattr(refused, "message", "")),
                ) from refused
            except kafka_errors.KafkaError as failed:
                self._requests.close()  # its cached coordinators and leaders may be outdated
                if not getattr(failed, "retriable", False) or time.monotonic() > until_s:
                    raise self._failure(place, failed) from failed
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Close the connection. No record is in flight, because each send waits for its response."""
        self._requests.close()

    def _failure(self, place: TopicPartition, failed: kafka_errors.KafkaError) -> StreamsError:
        text = f"a record for {place} with timestamp 0 was not written to the transaction: {failed}"
        match failed:
            case kafka_errors.TopicAuthorizationFailedError():
                rights = (
                    f"{missing_right('WRITE', TOPIC, [place.topic])}, or READ, which records with timestamp 0 require"
                )
                return StreamsError(f"{text} ({rights})")
            case kafka_errors.TransactionalIdAuthorizationFailedError():
                return StreamsError(f"{text} ({missing_right('WRITE', TRANSACTIONAL_ID)})")
        if isinstance(failed, _FENCED):
            return TaskMigratedError(f"{text} (another producer replaced it, or the transaction timed out)")
        return TaskCorruptedError(f"{text}; all tasks of the thread go back to the last commit", {})

    def _send(
        self,
        place: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> int:
        producer_id, epoch = self._known_producer()
        if place not in self.partitions:
            self.partitions[place] = self._next_number(place, producer_id, epoch)
        if place not in self._added:
            self._add(place, producer_id, epoch)
            self._added.add(place)
        number = self.partitions[place]
        size = 1_000 + len(key or b"") + len(value or b"")
        batch = DefaultRecordBatchBuilder(2, 0, 1, producer_id, epoch, number, size)
        batch.append(0, timestamp_ms, key, value, headers)
        topic = ProduceRequest.TopicProduceData
        records = topic.PartitionProduceData(index=place.partition, records=bytes(batch.build()))
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._timeout_ms,
            topic_data=[topic(name=place.topic, partition_data=[records])],
            max_version=_OLDER_PRODUCE,
        )
        ((answer,),) = (of.partition_responses for of in self._ask_leader(place, request).responses)
        _check(answer.error_code)
        self.partitions[place] = (number + 1) % _COUNTS
        return int(answer.base_offset)

    def _known_producer(self) -> tuple[int, int]:
        if self._producer is None:
            request = DescribeTransactionsRequest(transactional_ids=[self._transactional_id])
            (found,) = self._ask_coordinator(request).transaction_states
            _check(found.error_code)
            self._producer = found.producer_id, found.producer_epoch
        return self._producer

    def _next_number(self, place: TopicPartition, producer_id: int, epoch: int) -> int:
        topic = DescribeProducersRequest.TopicRequest(name=place.topic, partition_indexes=[place.partition])
        answer = self._ask_leader(place, DescribeProducersRequest(topics=[topic]))
        ((found,),) = (of.partitions for of in answer.topics)
        _check(found.error_code)
        for one in found.active_producers:
            if (one.producer_id, one.producer_epoch) == (producer_id, epoch):
                return int(one.last_sequence + 1) % _COUNTS
        return 0

    def _add(self, place: TopicPartition, producer_id: int, epoch: int) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic(name=place.topic, partitions=[place.partition])],
            max_version=3,
        )
        for of in self._ask_coordinator(request).results_by_topic_v3_and_below:
            for one in of.results_by_partition:
                _check(one.partition_error_code)

    def _ask_coordinator(self, request: Any) -> Any:
        return self._requests.ask_coordinator(self._transactional_id, request)

    def _ask_leader(self, place: TopicPartition, request: Any) -> Any:
        admin = self._requests.admin
        found = self._requests.run(lambda: admin._async_get_leader_for_partitions([KafkaPartition(*place)]))
        (leader,) = found
        if leader < 0:
            raise kafka_errors.LeaderNotAvailableError()
        return self._requests.ask(request, leader)


def _check(code: int) -> None:
    error = kafka_errors.for_code(code)
    if error is not kafka_errors.NoError:
        raise error()
