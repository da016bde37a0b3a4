"""Write records: the port ``RecordProducer`` on librdkafka.

Every record of every task passes :meth:`produce`, so its cost matters. librdkafka's binding takes about 1.0 us per
record; the code here adds 0.1 to 0.2 us.

*Delivery reports.* librdkafka can report the outcome of each record. A report of success costs 0.3 us even without a
callback, so only failures are reported until a caller needs acknowledged offsets (``track``). Report functions are
plain functions. A successful report of a tracked (changelog) partition stores the record, whose offset goes into the
checkpoint. *Every* failure is stored, in the order of its partition. The next call raises one stored failure, so the
application can decide about each record. The binding ignores its argument ``on_delivery`` when ``callback`` is given by
position, so report functions are passed as ``callback``.

*Refused records.* A broker accepts or refuses a batch as a whole. :mod:`.refusals` explains how the bad records of a
batch are found, so that the others can be sent. A broker also refuses a batch that is larger than the topic's
``max.message.bytes``, however small its records are. So a separate client with smaller batches writes to topics with a
limit below the configured batch size (:mod:`.topic_limits`).

*Expired records.* librdkafka drops records that wait longer than ``delivery.timeout.ms``. When a frozen process
resumes, it drops them before it sends anything. If this library has chosen that timeout, because other members may have
the tasks by then, an expired record is a RecordsExpiredError (see also :mod:`.send_queue`).

*Back-pressure.* A full queue is not an error: ``produce`` serves reports and waits until there is room.

*Timestamp 0.* librdkafka replaces it with the current time, but 1970-01-01T00:00Z is a valid record timestamp (KIP-32).
So another client writes such a record. The queue is flushed before, to keep the order of the partition.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial as bound
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.answers import whole_partitions
from streams_py.adapters.confluent.at_epoch import EpochRecordSender
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.delivery_reports import Report, Reports
from streams_py.adapters.confluent.failures import FATAL, broker_away, error_of, is_refusal, send_error
from streams_py.adapters.confluent.refusals import Failure, Known, Refusals
from streams_py.adapters.confluent.send_queue import SendQueue, waiting_records
from streams_py.adapters.confluent.settings import Settings, rejected_setting
from streams_py.errors import (
    BatchRefusedError,
    BrokerUnavailableError,
    ProductionError,
    RecordsExpiredError,
    RefusedRecord,
    StreamsError,
    TaskMigratedError,
)
from streams_py.ports import DirectSend

__all__ = ["ConfluentProducer", "EpochRecordSender"]

_log = logging.getLogger(__name__)

_Headers = list[tuple[str, bytes | None]] | None
_NOW: Final = -1  # the port's timestamp for "the producer's clock"; librdkafka's is 0
_CLOSE_TIMEOUT_S: Final = 5.0
_PARTITION_COUNT_AGE_MAX_S: Final = 300.0
_LOOKUP_INTERVAL_S: Final = 0.2
_RENEWED_LONG_AGO_S: Final = 60.0
_ONE_BY_ONE: Final = 1
_DEFAULT_BATCH_BYTES: Final = 1_000_000  # librdkafka's batch.size
_NO_SUCH_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


class ConfluentProducer:
    """The record producer. Not thread-safe. ``produce`` is an attribute, to save the hot path a method lookup.

    Args:
        settings: librdkafka settings.
        epoch_sender: Creates the client that writes records with timestamp 0.
        max_block_ms: Longest time that a full queue or missing metadata may block a caller (Kafka's ``max.block.ms``).
        lists_all_topics: Whether to find a topic in a list of all topics, instead of requesting it by name.
        batch_bytes_max: Returns the largest batch of a topic in bytes; None when it is unknown.
        reprocesses_expired: Whether expired records raise RecordsExpiredError, so that the tasks produce them again.
        sends_alone: Whether each record is sent in a separate batch, so that each answer concerns one record.
        on_refusal: Receives the reports of refused records, which then don't count as failures of this producer.
    """

    _sends_one_by_one = False
    _refusals_end_transactions = False

    def __init__(
        self,
        settings: Settings,
        *,
        epoch_sender: Callable[[], EpochRecordSender],
        max_block_ms: int = 60_000,
        lists_all_topics: bool = False,
        batch_bytes_max: Callable[[str], int | None] = lambda topic: None,
        reprocesses_expired: bool = False,
        sends_alone: bool = False,
        on_refusal: Callable[[KafkaError, Message], None] | None = None,
    ) -> None:
        self._bootstrap, client_id = str(settings["bootstrap.servers"]), str(settings["client.id"])
        self._client_id = client_id
        self._broker_log = BrokerLog(client_id, self._bootstrap)
        self._settings = settings
        self._make_epoch_sender = epoch_sender
        self._epoch_sender: EpochRecordSender | None = None
        self._max_block_ms = max_block_ms
        self._lists_all_topics = lists_all_topics
        self._batch_bytes_max = batch_bytes_max
        self._on_refusal = on_refusal
        self._sends_one_by_one = sends_alone or self._sends_one_by_one
        self._queue = SendQueue(settings) if reprocesses_expired else None
        self._clients: dict[int | None, Producer] = {}  # by largest batch size; None: as configured
        self._limits: dict[str, int | None] = {}  # of the topics written so far
        self._acked: dict[TopicPartition, Message] = {}
        self._tracked: dict[str, Reports] = {}
        self._written_at_epoch: dict[TopicPartition, int] = {}
        self._refusals = Refusals(self._batch_limit, all_alone=sends_alone)
        self._failures, self._reported = self._refusals.failures, self._refusals.reported
        self._obstacles: list[Exception] = []  # not empty: records must not bypass `produce`
        self._barriers: dict[type[StreamsError], str] = {}  # reasons why no record may be sent
        self._partition_counts: dict[str, tuple[int, float]] = {}
        self._is_out_of_step = False
        self._renewed_at_s = -float("inf")
        self.blocked: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        self._open(reports_all=False)

    def _open(self, *, reports_all: bool) -> None:
        self._reports_all = reports_all
        self._clients = {}
        self._report = self._make_report()
        self._client(None)
        self.produce = self._make_produce()

    def _client(self, batch_bytes: int | None) -> Producer:
        """Return the client whose batches have at most ``batch_bytes``."""
        client = self._clients.get(batch_bytes)
        return self._new_client(batch_bytes) if client is None else client

    def _new_client(self, batch_bytes: int | None) -> Producer:
        settings = {
            "delivery.report.only.error": not self._reports_all,
            **self._settings,
            **({} if self._queue is None else self._queue.settings),
            "error_cb": self._broker_log.on_error,
        }
        if batch_bytes == _ONE_BY_ONE or self._sends_one_by_one:
            settings["batch.num.messages"] = 1
        elif batch_bytes is not None:
            settings["batch.size"] = batch_bytes
        try:
            client = self._clients[batch_bytes] = Producer(settings, logger=self._broker_log)
        except KafkaException as refused:
            error = error_of(refused)
            raise rejected_setting(error.str() if error else str(refused), self._settings, "producer") from None
        return client

    def _client_of(self, topic: str) -> Producer:
        return self._client(_ONE_BY_ONE if topic in self._refusals.isolated else self._batch_limit(topic))

    def _batch_limit(self, topic: str) -> int | None:
        """Return the largest batch size of the topic; None when the configured batch size fits."""
        if topic not in self._limits:
            limit = self._batch_bytes_max(topic)
            ours = int(self._settings.get("batch.size", _DEFAULT_BATCH_BYTES))
            self._limits[topic] = limit if limit is not None and limit < ours else None
        return self._limits[topic]

    # -- sending ----------------------------------------

    def _make_produce(self) -> Callable[..., None]:
        client_of = self._client_of
        untracked = self._report
        tracked = self._tracked
        failures, reported, barriers = self._failures, self._reported, self._barriers
        isolated = self._refusals.isolated

        def produce(
            topic: str,
            value: bytes | None,
            key: bytes | None,
            partition: int = -1,
            on_delivery: Report | None = None,
            timestamp_ms: int = _NOW,
            headers: _Headers = None,
        ) -> None:
            """Queue a record. Raises the error of an earlier record, if any; then this record is not queued.

            ``timestamp_ms`` -1 means the producer's clock. ``partition`` -1 means murmur2 of the key, or any partition
            for a null key.
            """
            if barriers:
                self._check_barriers()
            if reported:
                self._sort_out()
            if failures:
                self.check()
            if on_delivery is None:
                reports = tracked.get(topic)
                on_delivery = untracked if reports is None else reports[partition]
                if headers or topic in isolated:
                    on_delivery = bound(on_delivery, known=(timestamp_ms, headers))
            if timestamp_ms <= 0:
                if timestamp_ms != _NOW:
                    with self.blocked:
                        self._send_at_epoch(topic, value, key, partition, timestamp_ms, headers)
                    return
                timestamp_ms = 0
            try:
                client_of(topic).produce(topic, value, key, partition, on_delivery, None, timestamp_ms, headers)  # type: ignore[arg-type]  # stubs: a callback has a message
            except BufferError:
                self._send_when_there_is_room(topic, value, key, partition, on_delivery, None, timestamp_ms, headers)
            except KafkaException as refused:
                self._refuse(refused, topic, value, key, partition, timestamp_ms, headers)

        return produce

    def direct(self, topic: str, partition: int = -1) -> DirectSend:
        """Return librdkafka's ``produce`` with the report function for records of ``topic``; see the port."""
        reports = self._tracked.get(topic)
        report = self._report if reports is None else reports[partition]
        return DirectSend(self._client(self._batch_limit(topic)).produce, report, self._obstacles)

    def _send_when_there_is_room(self, topic: str, *rest: Any) -> None:
        deadline_s = time.monotonic() + self._max_block_ms / 1000
        while True:
            # Returns as soon as a report was served, i.e. when there may be room, so this is not a busy loop.
            with self.blocked:
                self.poll(100)
            self.check()
            self._check_barriers()
            try:
                self._client_of(topic).produce(topic, *rest)
            except BufferError:
                if time.monotonic() >= deadline_s:
                    doing = f"{waiting_records(self._client_of(topic))} records wait to be sent"
                    raise broker_away(self._bootstrap, doing, self._max_block_ms) from None
            except KafkaException as refused:
                value, key, partition, _, _, timestamp_ms, headers = rest
                self._refuse(refused, topic, value, key, partition, timestamp_ms, headers)
                return
            else:
                return

    def _refuse(self, refused: KafkaException, topic: str, *record: Any) -> None:
        """Store a record that librdkafka rejected (too large, unknown partition), as if a broker had refused it."""
        value, key, partition, timestamp_ms, headers = record
        error = error_of(refused)
        if error is None:
            raise StreamsError(f"a record for {topic} was not written: {refused}") from refused
        known = RefusedRecord(topic, partition, key, value, timestamp_ms or _NOW, tuple(headers or ()))
        self._failures.append(Failure(error, topic, partition, known, was_sent=False))
        self._note_obstacles()

    def _send_at_epoch(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, timestamp_ms: int, headers: _Headers
    ) -> None:
        if timestamp_ms < 0:
            raise StreamsError(
                f"a record for {topic} has the timestamp {timestamp_ms}; it must be 0 or more milliseconds since 1970"
            )
        left = self.flush(self._max_block_ms)
        if left:
            raise broker_away(self._bootstrap, f"{left} records wait to be sent", self._max_block_ms)
        if self._epoch_sender is None:
            _log.info("%s: records with timestamp 0 are written one by one", self._client_id)
            self._epoch_sender = self._make_epoch_sender()
        try:
            partition, offset = self._epoch_sender.send(topic, value, key, partition, headers)
        except ProductionError as refused:  # as if the broker had refused an earlier record
            place = TopicPartition(topic, partition)
            self._refused_elsewhere(refused, place, value, key, timestamp_ms, headers)
            return
        if topic in self._tracked:
            self._written_at_epoch[TopicPartition(topic, partition)] = offset

    def _refused_elsewhere(self, refused: ProductionError, place: TopicPartition, *record: Any) -> None:
        value, key, timestamp_ms, headers = record
        refused.record = RefusedRecord(*place, key, value, timestamp_ms, tuple(headers or ()))
        cause = KafkaError(KafkaError._FAIL)
        self._failures.append(Failure(cause, *place, refused.record, was_sent=False, raised=refused))
        self._note_obstacles()

    # -- reports ----------------------------------------

    def poll(self, timeout_ms: int = 0) -> int:
        """Serve reports; wait up to ``timeout_ms`` for the first one. Call this about once per batch of records."""
        served = 0
        for client in tuple(self._clients.values()):
            try:
                served += client.poll(timeout_ms / 1000 / len(self._clients))
            except FATAL as failed:  # from now on, every call raises it
                raise self._out_of_step(f"{self._client_id}: the producer cannot continue: {failed}") from failed
        if self._reported:
            self._sort_out()
        if self._obstacles:
            self._note_obstacles()
        return served

    def flush(self, timeout_ms: int) -> int:
        """Wait until all records are acknowledged or have failed.

        Returns:
            Number of records that are still queued after ``timeout_ms``.
        """
        deadline_s = time.monotonic() + timeout_ms / 1000
        had_some = self._queue is not None and self.waiting() > 0
        left = self._flush(deadline_s)
        if self._reported:
            self._sort_out()
        if not (left or self._failures):
            if self._queue is not None and had_some:
                self._queue.note_flush()
            self._refusals.release()
        return left

    def overdue(self, timeout_ms: int) -> int:
        """Return the number of queued records that must no longer be written; see the port."""
        return 0 if self._queue is None else self.flush(timeout_ms)

    def _flush(self, deadline_s: float) -> int:
        left = 0
        for client in tuple(self._clients.values()):
            try:
                if client.flush(max(0.0, deadline_s - time.monotonic())):
                    left += waiting_records(client)
            except FATAL as lost:
                raise self._client_failed() from lost
        return left

    def waiting(self) -> int:
        """Count the records that are neither written nor failed. Unlike a flush, this does not end their lingering."""
        try:
            return sum(map(waiting_records, tuple(self._clients.values())))
        except FATAL as lost:
            raise self._client_failed() from lost

    def _client_failed(self) -> StreamsError:
        return self._out_of_step(f"{self._client_id}: the producer failed and cannot continue")

    def check(self) -> None:
        """Raise the first failure that was not raised before, if any. Failures are in the order of their partition."""
        self._broker_log.check()
        if self._reported:
            self._sort_out()
        if self._failures:
            failure = self._failures.popleft()
            self._note_obstacles()
            error = failure.raised or send_error(failure.error, failure.topic, failure.partition, failure.record)
            if isinstance(error, ProductionError):
                # A record that librdkafka rejected was never part of the transaction.
                error.ends_transaction = self._refusals_end_transactions and failure.was_sent
            if failure.is_batch:
                raise BatchRefusedError(str(error), topic=failure.topic, partition=failure.partition) from error
            if self._queue is not None and failure.error.code() == KafkaError._MSG_TIMED_OUT:
                self._queue.has_expired = True
                raise RecordsExpiredError(str(error), topic=failure.topic, partition=failure.partition) from error
            raise self._out_of_step(str(error)) if isinstance(error, TaskMigratedError) else error

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """Do nothing: without transactions, the tasks do not produce the refused record again."""

    def _out_of_step(self, text: str) -> StreamsError:
        """Return the error for a client that cannot continue.

        Returns:
            TaskMigratedError, so that a new client is created. StreamsError when that was done less than a minute ago.
        """
        self._is_out_of_step = True
        if time.monotonic() - self._renewed_at_s < _RENEWED_LONG_AGO_S:
            return StreamsError(f"{text}; a new producer was created less than a minute ago, which did not help")
        return TaskMigratedError(text)

    def _make_report(self) -> Report:
        """Create the report function for untracked records and for all failures.

        It ignores reports of clients that are no longer in use: an abandoned client may still serve reports, on another
        thread.
        """
        clients, refusals, on_refusal = self._clients, self._refusals, self._on_refusal

        def report(error: KafkaError | None, message: Message, known: Known | None = None) -> None:
            if error is not None and on_refusal is not None and is_refusal(error):
                on_refusal(error, message)
            elif error is not None and clients is self._clients:
                refusals.note(error, message, known)
                if not self._obstacles:
                    self._note_obstacles()

        return report

    def _note_obstacles(self) -> None:
        if not (self._failures or self._reported or self._refusals.isolated):
            self._obstacles.clear()
            if self._barriers:  # another thread may have just set one
                self._obstacles.append(StreamsError("no record may be sent"))
        elif not self._obstacles:
            self._obstacles.append(StreamsError("records failed, or are sent one by one"))

    def _sort_out(self) -> None:
        """Process the reported failures. From now on, records of topics with a refused batch are sent one by one."""
        if self._refusals.has_refused_batch():
            # Records in flight must be written or refused before any other record is sent.
            self._flush(time.monotonic() + self._max_block_ms / 1000)
        for topic in self._refusals.sort():
            _log.warning(
                "%s: a broker refused a batch of topic %s; the tasks reprocess from the last commit, and the topic's "
                "records are sent one by one for a while, which is slow",
                self._client_id,
                topic,
            )
        self._note_obstacles()

    # -- offsets and metadata ----------------------------------------

    def track(self, topics: Collection[str]) -> None:
        """Start to record the acknowledged offsets of ``topics``. Records for them must name their partition.

        Call this before the first record is sent. The first call creates another client, so ``produce`` and the results
        of ``direct`` that a caller has kept are no longer valid.
        """
        if topics and not self._reports_all:
            self.flush(self._max_block_ms)
            for client in self._clients.values():
                client.close()
            self._open(reports_all=True)
        for topic in topics:
            if topic not in self._tracked:
                self._tracked[topic] = Reports(topic, self._acked, self._report)

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the highest acknowledged offset of each partition of tracked topics written by this producer."""
        acked = dict(self._written_at_epoch)
        for partition, last in self._acked.items():
            offset = last.offset()
            if offset is not None and offset >= 0:  # with acks=0, brokers don't return offsets
                acked[partition] = max(offset, acked.get(partition, -1))
        return acked

    def reset(self) -> None:
        """Drop queued records, forget failures, and start over with new clients; see the port."""
        if self._is_out_of_step:
            self._renewed_at_s = time.monotonic()
            self._is_out_of_step = False
        if self._queue is not None:
            self._queue.adapt()
        clients, self._clients = self._clients, {}  # from now on, their reports are ignored
        for client in clients.values():
            with contextlib.suppress(KafkaException, SystemError):  # errors of a failed client don't matter
                self._end(client, drop=True)
        self._refusals.forget()
        self._barriers.pop(TaskMigratedError, None)
        self._written_at_epoch.clear()
        self._obstacles.clear()
        topics = tuple(self._tracked)
        self._acked, self._tracked = {}, {}
        self._open(reports_all=self._reports_all)
        self.track(topics)
        self._note_obstacles()

    def _end(self, client: Producer, *, drop: bool) -> None:
        if drop:
            client.purge()
        client.close()

    def halt(self, reason: str) -> None:
        """Send no more records until :meth:`reset`; see the port."""
        self._barriers[TaskMigratedError] = reason
        self._obstacles.append(StreamsError(reason))

    def hold(self, reason: str | None) -> None:
        """Send no records while there is a reason; see the port."""
        if reason is None:
            self._barriers.pop(BrokerUnavailableError, None)  # the next poll removes the obstacle
        else:
            self._barriers[BrokerUnavailableError] = reason
            self._obstacles.append(StreamsError(reason))

    def _check_barriers(self) -> None:
        barriers = dict(self._barriers)  # other threads may change it meanwhile
        for kind in (TaskMigratedError, BrokerUnavailableError):
            if kind in barriers:
                raise kind(barriers[kind])

    def partitions_for(self, topic: str) -> int:
        """Return the partition count of a topic, at most 5 minutes old.

        Raises:
            BrokerUnavailableError: No valid answer within ``max.block.ms``.
            StreamsError: The topic does not exist or cannot be written.
        """
        known = self._partition_counts.get(topic)
        now_s = time.monotonic()
        if known is not None and now_s < known[1]:
            return known[0]
        with self.blocked:
            count = self._count_partitions(topic, now_s + self._max_block_ms / 1000)
        self._partition_counts[topic] = (count, now_s + _PARTITION_COUNT_AGE_MAX_S)
        return count

    def _count_partitions(self, topic: str, deadline_s: float) -> int:
        """Request the partition count until a broker returns a complete answer.

        A broker that has just started or is stopping may omit topics and partitions. So an unknown topic must be
        confirmed by a second answer.
        """
        absent = 0
        while True:
            try:
                found = self._list_topics(topic, max(0.1, deadline_s - time.monotonic()))
            except KafkaException as failed:
                raise broker_away(self._bootstrap, f"looking up topic {topic}", self._max_block_ms) from failed
            count = None if found is None else whole_partitions(found)
            if count is not None:
                return count
            error: KafkaError | None = None if found is None else found.error
            if error is not None and not error.retriable() and error.code() not in _NO_SUCH_TOPIC:
                raise StreamsError(f"topic {topic} cannot be written: {error.str()}")
            absent += error is not None and error.code() in _NO_SUCH_TOPIC
            if absent > 1 or (self._lists_all_topics and found is None):
                reason = "not listed" if error is None else error.str()
                raise StreamsError(f"topic {topic} does not exist ({reason}): create it first")
            if time.monotonic() >= deadline_s:
                raise broker_away(self._bootstrap, f"looking up topic {topic}", self._max_block_ms)
            time.sleep(_LOOKUP_INTERVAL_S)

    def _list_topics(self, topic: str, timeout_s: float) -> Any:
        client = self._client(None)
        if self._lists_all_topics:  # the mock cluster creates a topic that is requested by name
            return client.list_topics(timeout=timeout_s).topics.get(topic)
        return client.list_topics(topic, timeout=timeout_s).topics.get(topic)

    def close(self) -> None:
        """Write queued records for a few seconds, then drop the rest with a warning, and close."""
        left = 0
        with contextlib.suppress(StreamsError):
            left = self.flush(int(1000 * _CLOSE_TIMEOUT_S))
        if left:
            _log.warning("%s: %d records were not written before the producer was closed", self._client_id, left)
        for client in self._clients.values():
            self._end(client, drop=left > 0)
        if self._epoch_sender is not None:
            self._epoch_sender.close()
            self._epoch_sender = None
