"""Writes records: the port ``RecordProducer`` on librdkafka.

Every record of every task passes :meth:`produce`, so its cost counts: librdkafka's binding needs about 1.0 us for it,
what is added here 0.1 to 0.2 us.

*Delivery reports.* Each record ends in a report. One that says "written" costs 0.3 us even if nobody listens, so only
failures are reported until somebody asks for acknowledged offsets (``track``). Reports are plain functions: a
successful one of a tracked (changelog) partition leaves the record behind, whose offset is what a checkpoint needs, and
*every* failure is remembered, in the order of its partition. Each of them is raised once, by the next call: the
application may let one record go and not another. The binding ignores its argument ``on_delivery`` when ``callback``
is given by position, so reports are passed as ``callback``.

*Refused records.* A broker answers for a batch. :mod:`.refusals` says how the bad records of a batch are found, so that
the others are sent. A broker also refuses a batch that is larger than the topic's ``max.message.bytes``, however small
its records are. So topics with a limit below ours are written by a client of their own whose batches fit
(:mod:`.topic_limits`).

*Records that wait for too long* are given up by librdkafka (``delivery.timeout.ms``), also before it sends anything
when the process goes on after it was frozen. Where that time was chosen by us, because others may have the tasks by
then, it is a RecordsExpiredError (and see :mod:`.send_queue`).

*Back-pressure.* A full queue is no error: ``produce`` waits, serving reports, until there is room.

*Timestamp 0.* librdkafka writes the wall clock for it, but 1970-01-01T00:00Z is a legal time of a record (KIP-32).
Such a record goes out through another client, after a flush, so that the order of its partition is kept.
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
_NOW: Final = -1  # the port's timestamp for "the producer's clock"; librdkafka says 0
_CLOSE_TIMEOUT_S: Final = 5.0
_PARTITION_COUNT_AGE_MAX_S: Final = 300.0
_LOOK_INTERVAL_S: Final = 0.2
_RENEWED_LONG_AGO_S: Final = 60.0
_ONE_BY_ONE: Final = 1
_DEFAULT_BATCH_BYTES: Final = 1_000_000  # librdkafka's batch.size
_NO_SUCH_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


class ConfluentProducer:
    """Not thread-safe: one thread uses it. ``produce`` is an attribute: the hot path calls it without a method lookup.

    ``max_block_ms`` (Kafka's ``max.block.ms``) bounds how long a full queue or missing metadata may hold a caller.
    ``batch_bytes_max`` says how large a batch of a topic may be, None when nobody knows. ``makes_expired_again``: see
    above. ``sends_alone``: each record is a batch, so each answer concerns one record. ``on_refusal`` gets the reports
    of refused records, which are no failures of this producer then.
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
        makes_expired_again: bool = False,
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
        self._queue = SendQueue(settings) if makes_expired_again else None
        self._clients: dict[int | None, Producer] = {}  # by the size of their batches; None: as configured
        self._limits: dict[str, int | None] = {}  # of the topics written so far
        self._acked: dict[TopicPartition, Message] = {}
        self._tracked: dict[str, Reports] = {}
        self._written_at_epoch: dict[TopicPartition, int] = {}
        self._refusals = Refusals(self._batch_limit, all_alone=sends_alone)
        self._failures, self._reported = self._refusals.failures, self._refusals.reported
        self._obstacles: list[Exception] = []  # a reason not to send directly, or nothing
        self._barriers: dict[type[StreamsError], str] = {}  # why nothing may be sent: for good, or for now
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
        """The client whose batches are at most so large."""
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
        """How large batches of the topic may be; None when our own size fits."""
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
            """Queue a record. ``timestamp_ms`` -1 = the producer's clock; ``partition`` -1 = murmur2 of the key, any
            partition for a null key. Raises what an earlier send failed with; this record is then not queued."""
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
        """librdkafka's ``produce`` with what records for ``topic`` need; see the port."""
        reports = self._tracked.get(topic)
        report = self._report if reports is None else reports[partition]
        return DirectSend(self._client(self._batch_limit(topic)).produce, report, self._obstacles)

    def _send_when_there_is_room(self, topic: str, *rest: Any) -> None:
        deadline_s = time.monotonic() + self._max_block_ms / 1000
        while True:
            # Returns as soon as a report has been served, i.e. when there may be room: no busy loop.
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
        """librdkafka did not take the record (too large, no such partition): as if the broker had refused it later."""
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
        """Serve reports; waits up to ``timeout_ms`` for the first. Call it about once for every batch of records."""
        served = 0
        for client in tuple(self._clients.values()):
            try:
                served += client.poll(timeout_ms / 1000 / len(self._clients))
            except FATAL as failed:  # every call raises it from now on
                raise self._out_of_step(f"{self._client_id}: the producer cannot go on: {failed}") from failed
        if self._reported:
            self._sort_out()
        if self._obstacles:
            self._note_obstacles()
        return served

    def flush(self, timeout_ms: int) -> int:
        """Wait until everything is acknowledged or failed; how many records still wait after ``timeout_ms``."""
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
        """Records that must not be written any more; see the port."""
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
        """Count the records that are neither written nor failed, without sending them at once as a flush does."""
        try:
            return sum(map(waiting_records, tuple(self._clients.values())))
        except FATAL as lost:
            raise self._client_failed() from lost

    def _client_failed(self) -> StreamsError:
        return self._out_of_step(f"{self._client_id}: the producer failed and cannot go on")

    def check(self) -> None:
        """Raise the first failure that was not raised before, in the order of its partition; then it is forgotten."""
        self._broker_log.check()
        if self._reported:
            self._sort_out()
        if self._failures:
            failure = self._failures.popleft()
            self._note_obstacles()
            error = failure.raised or send_error(failure.error, failure.topic, failure.partition, failure.record)
            if isinstance(error, ProductionError):
                # A record that the library did not take has never been in the transaction.
                error.ends_transaction = self._refusals_end_transactions and failure.was_sent
            if failure.is_batch:
                raise BatchRefusedError(str(error), topic=failure.topic, partition=failure.partition) from error
            if self._queue is not None and failure.error.code() == KafkaError._MSG_TIMED_OUT:
                self._queue.has_expired = True
                raise RecordsExpiredError(str(error), topic=failure.topic, partition=failure.partition) from error
            raise self._out_of_step(str(error)) if isinstance(error, TaskMigratedError) else error

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """No error ends a transaction here."""

    def _out_of_step(self, text: str) -> StreamsError:
        """What a client that cannot go on comes to: a new one, unless that has not helped a moment ago."""
        self._is_out_of_step = True
        if time.monotonic() - self._renewed_at_s < _RENEWED_LONG_AGO_S:
            return StreamsError(f"{text}; a new producer was made less than a minute ago, and that has not helped")
        return TaskMigratedError(text)

    def _make_report(self) -> Report:
        """The report of an untracked record, and of everything that failed, while its clients are in use: one that was
        given up may still serve reports, on another thread."""
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
            if self._barriers:  # by another thread, perhaps a moment ago
                self._obstacles.append(StreamsError("nothing may be sent"))
        elif not self._obstacles:
            self._obstacles.append(StreamsError("records failed, or go one by one"))

    def _sort_out(self) -> None:
        """Find out what was refused. From now on records of topics that refused a batch are sent one by one."""
        if self._refusals.has_refused_batch():
            # What is under way is refused too, or written, before anything else is sent.
            self._flush(time.monotonic() + self._max_block_ms / 1000)
        for topic in self._refusals.sort():
            _log.warning(
                "%s: a broker refused a batch of topic %s; its tasks process again from the last commit, and its "
                "records are sent one by one for a while, which is slow",
                self._client_id,
                topic,
            )
        self._note_obstacles()

    # -- what is known ----------------------------------------

    def track(self, topics: Collection[str]) -> None:
        """Topics whose acknowledged offsets are wanted. Records for them name their partition. Call it before the first
        record is sent: the first call makes another client, and what ``produce`` and ``direct`` gave is void then."""
        if topics and not self._reports_all:
            self.flush(self._max_block_ms)
            for client in self._clients.values():
                client.close()
            self._open(reports_all=True)
        for topic in topics:
            if topic not in self._tracked:
                self._tracked[topic] = Reports(topic, self._acked, self._report)

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Highest acknowledged offset of each partition of a tracked topic that this producer has written to."""
        acked = dict(self._written_at_epoch)
        for partition, last in self._acked.items():
            offset = last.offset()
            if offset is not None and offset >= 0:  # with acks=0 nobody says where a record is
                acked[partition] = max(offset, acked.get(partition, -1))
        return acked

    def reset(self) -> None:
        """Drop what waits to be sent, forget what failed, and start over with new clients; see the port."""
        if self._is_out_of_step:
            self._renewed_at_s = time.monotonic()
            self._is_out_of_step = False
        if self._queue is not None:
            self._queue.adapt()
        clients, self._clients = self._clients, {}  # what they still report is no matter
        for client in clients.values():
            with contextlib.suppress(KafkaException, SystemError):  # one that has failed has nothing to lose
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
        """Send nothing more until :meth:`reset`; see the port."""
        self._barriers[TaskMigratedError] = reason
        self._obstacles.append(StreamsError(reason))

    def hold(self, reason: str | None) -> None:
        """Send nothing while there is a reason; see the port."""
        if reason is None:
            self._barriers.pop(BrokerUnavailableError, None)  # the obstacle goes with the next poll
        else:
            self._barriers[BrokerUnavailableError] = reason
            self._obstacles.append(StreamsError(reason))

    def _check_barriers(self) -> None:
        barriers = dict(self._barriers)  # others may change it meanwhile
        for kind in (TaskMigratedError, BrokerUnavailableError):
            if kind in barriers:
                raise kind(barriers[kind])

    def partitions_for(self, topic: str) -> int:
        """Partition count, at most 5 minutes old. BrokerUnavailableError after ``max.block.ms`` without an answer."""
        known = self._partition_counts.get(topic)
        now_s = time.monotonic()
        if known is not None and now_s < known[1]:
            return known[0]
        with self.blocked:
            count = self._count_partitions(topic, now_s + self._max_block_ms / 1000)
        self._partition_counts[topic] = (count, now_s + _PARTITION_COUNT_AGE_MAX_S)
        return count

    def _count_partitions(self, topic: str, deadline_s: float) -> int:
        """Ask until a broker knows: one that has just started, or is about to end, leaves topics and partitions out.
        That a topic does not exist is believed when it is said twice."""
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
            time.sleep(_LOOK_INTERVAL_S)

    def _list_topics(self, topic: str, timeout_s: float) -> Any:
        client = self._client(None)
        if self._lists_all_topics:  # the mock cluster creates a topic that is asked for by name
            return client.list_topics(timeout=timeout_s).topics.get(topic)
        return client.list_topics(topic, timeout=timeout_s).topics.get(topic)

    def close(self) -> None:
        """Write what is queued, for a few seconds at most; what is left then is dropped with a warning."""
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
