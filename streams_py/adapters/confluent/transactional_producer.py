"""Write records in transactions: the port ``TransactionalProducer`` on librdkafka.

The producer has one transaction at a time, for all tasks of a stream thread. The transaction begins with the first
record. It ends with a commit, which includes the input offsets of all tasks.

This module does not try to repair a failed transaction. It raises one of three errors:

* TaskCorruptedError without task ids: all tasks of the thread go back to the last commit.
* TaskMigratedError: another producer has replaced this one.
* StreamsError: the thread cannot continue, for example because a right is missing.

After the first two, :meth:`TransactionalProducer.reset` creates a new client. Its first request makes the coordinator
commit or abort the old client's transaction. So the outcome of a transaction is never guessed.

Calls that wait for a broker run on another thread (:mod:`.bounded_calls`), because librdkafka does not always respect
their timeouts. When a call is overdue, its client is abandoned. The client is closed if the call ever returns. Brokers
refuse its further requests, because the new client has a newer epoch.

*Overtaken commits.* A coordinator acknowledges a commit before it writes the markers that end the transaction in each
partition. If its broker is killed in between, the coordinator may never write some markers. The module
:mod:`streams_py.runtime.commit.open_transactions` ends such transactions as the coordinator had decided. If this
producer wrote to such a partition first, the new records would belong to the same transaction as the committed ones.
Aborting it would discard committed records and input offsets. So the client is dropped immediately when the coordinator
is lost after a commit, unless a record written since has been acknowledged. The next client ends open transactions
before it writes.

A transaction belongs to one client, so there is only one. A topic that accepts only small batches makes the batches of
all topics small.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.at_epoch import TransactionalRecordSender
from streams_py.adapters.confluent.bounded_calls import BoundedCalls
from streams_py.adapters.confluent.delivery_reports import Report
from streams_py.adapters.confluent.failures import SPOILED, broker_away, error_of, is_unreachable
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.adapters.confluent.refusals import Failure, LeftOutRecords, named_by_broker
from streams_py.adapters.confluent.transaction_offsets import send_offsets
from streams_py.adapters.confluent.transaction_rights import missing_transaction_right
from streams_py.errors import ProductionError, StreamsError, TaskCorruptedError, TaskMigratedError
from streams_py.ports import GroupMetadata, OffsetAndMetadata

_log = logging.getLogger(__name__)

_STEP_S: Final = 5.0
_RETRY_S: Final = 0.02
_OVERDUE_S: Final = 2.0
"""Time after its timeout in which a call may still return, in seconds. A slow machine must not cost a reset of all
tasks."""
_CLOSE_S: Final = 5.0
_ABORT_TIMEOUT_S: Final = 3.0
_SETTLE_S: Final = 3.0
"""Time to wait for the cause of a failed transaction, in seconds. The cause is the answer to a request in flight."""
_CHECK_S: Final = 0.05
"""Interval between checks for a lost coordinator while waiting for acknowledgements, in seconds."""
_DEFAULT_BATCH_BYTES: Final = 1_000_000

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.PRODUCER_FENCED,
    }
)


class ConfluentTransactionalProducer(ConfluentProducer):
    """A :class:`ConfluentProducer` whose records become visible with :meth:`commit_transaction` only."""

    is_ready = False
    in_transaction = False
    _refusals_end_transactions = True
    make_sender: Callable[[], TransactionalRecordSender] | None = None
    """Creates the client for records with timestamp 0; None where such a client is not available."""
    _elsewhere_written: TransactionalRecordSender | None = None
    _committing: Collection[str] = ()
    """Topics whose offsets are being added to the transaction."""
    _calls: BoundedCalls | None = None
    _lost_before_commit: int | None = None
    """Count of lost coordinator connections when the last commit was requested; None before the first commit."""
    _acked_at_commit: Mapping[TopicPartition, Message] = MappingProxyType({})

    # -- the transaction ----------------------------------------

    def initialize(self, timeout_ms: int) -> None:
        """Fence the previous producer with this transactional id, and end its transaction.

        Raises:
            BrokerUnavailableError: The coordinator could not do it yet; call this again.
            StreamsError: The coordinator refused it.
        """
        if self.is_ready:
            return
        try:
            self._run("preparing for transactions", self._client(None).init_transactions, timeout_ms / 1000)
        except KafkaException as failed:
            error = error_of(failed)
            if error is not None and (error.retriable() or is_unreachable(error)):
                doing = "preparing for transactions"
                raise broker_away(self._bootstrap, doing, timeout_ms, error.str()) from failed
            reason = self._refusal(error, failed)
            raise StreamsError(f"{self._client_id}: the cluster refused transactions: {reason}") from failed
        self.is_ready = True

    def _refusal(self, error: KafkaError | None, failed: KafkaException) -> str:
        if error is None:
            return str(failed)
        match error.code():
            case KafkaError.INVALID_TRANSACTION_TIMEOUT:
                return (
                    f"producer.transaction.timeout.ms = {self._settings['transaction.timeout.ms']} is above the "
                    "broker's transaction.max.timeout.ms (900000 unless it was changed); lower the first or raise the "
                    "second"
                )
            case KafkaError._UNSUPPORTED_FEATURE:
                return "the brokers are too old: exactly_once_v2 needs version 2.5"
            case _:
                return self._missing_right(error) or error.str()

    def _begin(self) -> None:
        if self._lost_before_commit is not None:
            self.poll(0)  # if the coordinator was lost since the last poll, this client must not write
        self._check_barriers()
        self.initialize(self._max_block_ms)
        try:
            self._client(None).begin_transaction()
        except KafkaException as failed:
            raise self._broken("a transaction cannot begin", error_of(failed)) from failed
        self.in_transaction = True

    def commit_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMetadata, timeout_ms: int
    ) -> None:
        """Commit the records sent so far and the input offsets, on behalf of a group member; see the port."""
        self._check_barriers()
        if not self.in_transaction:
            self._begin()
        client = self._client(None)
        deadline_s = time.monotonic() + timeout_ms / 1000
        if offsets:
            self._committing = {at.topic for at in offsets}
            try:
                self._repeat(
                    "offsets were not added to the transaction",
                    lambda left_s: send_offsets(client, offsets, member, left_s),
                    deadline_s,
                )
            finally:
                self._committing = ()
        lost = self._broker_log.coordinators_lost
        self._repeat("the transaction was not committed", client.commit_transaction, deadline_s)
        self.in_transaction = False
        self._left_out.committed()
        if self._elsewhere_written is not None:
            self._elsewhere_written.committed()
        if not self._is_overtaken():  # else markers may be missing in partitions that this commit does not include
            self._lost_before_commit = lost
        self._acked_at_commit = dict(self._acked)

    def _is_overtaken(self) -> bool:
        """Whether markers of the last commit may be missing."""
        lost = self._lost_before_commit
        return lost is not None and self._broker_log.coordinators_lost != lost

    def _drop_overtaken(self) -> None:
        """Drop the client if the coordinator was lost after the last commit.

        The client is kept when a record of the current transaction has been acknowledged. It has reached the
        coordinator again then, so aborting this transaction could discard records of the last commit.
        """
        if not self._is_overtaken() or not self._clients:
            return
        if self.in_transaction and any(
            last is not self._acked_at_commit.get(partition) for partition, last in self._acked.items()
        ):
            return
        clients = self._clients
        self._give_up(
            f"{self._client_id}: the connection to the transaction coordinator was lost after a commit, which may not "
            "have reached all partitions; a new producer completes it, and all tasks go back to that commit"
        )
        for client in clients.values():
            self._elsewhere().run(partial(_end, client), 0, when_late=lambda: None)

    def _give_up(self, reason: str) -> None:
        """Drop the client until :meth:`reset`. The next call raises TaskCorruptedError with ``reason``."""
        self._clients = {}
        self._barriers[TaskCorruptedError] = reason
        self._obstacles.append(StreamsError(reason))

    def _repeat(self, failure: str, step: Callable[[float], object], deadline_s: float) -> None:
        """Repeat a step until it succeeds, as librdkafka requires after a timeout.

        Raises:
            StreamsError: The error that :meth:`_broken` derives from a final error, or from one after the deadline.
        """
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                self._run(failure, step, max(0.1, min(_STEP_S, left_s)))
            except KafkaException as failed:
                error = error_of(failed)
                if error is None or not error.retriable() or error.txn_requires_abort() or left_s <= 0:
                    raise self._broken(failure, error) from failed
                time.sleep(_RETRY_S)
            except SystemError as lost:  # the binding loses the exception of a fatal error
                raise self._broken(failure, None) from lost
            else:
                return

    def _run(self, failure: str, step: Callable[[float], object], timeout_s: float) -> None:
        """Run a step with a timeout. Drop the client and raise TaskCorruptedError when the step exceeds it."""
        client = self._client(None)
        within_s = timeout_s + _OVERDUE_S
        if self._elsewhere().run(lambda: step(timeout_s), within_s, when_late=lambda: _end(client)):
            return
        reason = (
            f"{self._client_id}: {failure}: a call of librdkafka with a timeout of {timeout_s:.1f} s has not returned "
            f"within {within_s:.1f} s; the outcome is unknown, so a new producer replaces this one, and all tasks of "
            "the thread go back to the last commit"
        )
        self._give_up(reason)
        raise TaskCorruptedError(reason, {})

    def _elsewhere(self) -> BoundedCalls:
        if self._calls is None:
            self._calls = BoundedCalls(f"{self._client_id}-calls")
        return self._calls

    def _new_client(self, batch_bytes: int | None) -> Producer:
        self._check_given_up()
        return super()._new_client(batch_bytes)

    def _check_barriers(self) -> None:
        self._check_given_up()
        super()._check_barriers()

    def _check_given_up(self) -> None:
        if TaskCorruptedError in self._barriers:
            raise TaskCorruptedError(self._barriers[TaskCorruptedError], {})

    def _broken(self, failure: str, error: KafkaError | None) -> StreamsError:
        """Return the exception that tells the caller what to do about an error of the transaction."""
        right = self._missing_right(error)
        if right is not None:
            return StreamsError(f"{self._client_id}: {failure}: {right}")
        text = f"{self._client_id}: {failure}: {'the producer has failed' if error is None else error.str()}"
        if error is None or error.fatal() or error.code() in _FENCED:
            return TaskMigratedError(f"{text} (another producer replaced it, or the transaction timed out)")
        if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
            return TaskMigratedError(f"{text} (this member has lost its place in the group)")
        if error.code() == KafkaError.FENCED_INSTANCE_ID:
            # Not a migration: if each of the two members rejoined, they would replace each other indefinitely.
            return StreamsError(
                f"{text} (another member has joined with the same group.instance.id and replaced this one; give every "
                "instance its own)"
            )
        if error.code() == KafkaError.ILLEGAL_GENERATION:
            # A new generation began while the commit was in flight. Heartbeats tell whether this member is part of it.
            return TaskCorruptedError(f"{text}; all tasks of the thread go back to the last commit", {})
        return TaskCorruptedError(f"{text}; all tasks of the thread go back to the last commit", {})

    def _missing_right(self, error: KafkaError | None) -> str | None:
        """Describe the missing right that made the transaction fail; None when that is not the cause.

        Retrying would not help without the right. ``error`` is the error of a record or call. librdkafka may have
        reported the cause to another call only, so this also requests the transaction's own error.
        """
        return missing_transaction_right(
            (error, self._why_it_failed()),
            str(self._settings["transactional.id"]),
            written=self._broker_log.refused_topics,
            committed=self._committing,
        )

    def _why_it_failed(self) -> KafkaError | None:
        """Return librdkafka's error of a failed transaction: it refuses to begin another one, with that error."""
        if not self.in_transaction:
            return None
        try:
            self._client(None).begin_transaction()
        except KafkaException as refused:
            return error_of(refused)
        except SystemError:  # the binding loses the exception of a fatal error
            return None
        return None

    # -- as a producer ----------------------------------------

    @cached_property
    def _left_out(self) -> LeftOutRecords:
        return LeftOutRecords()

    def _make_produce(self) -> Callable[..., None]:
        produce = super()._make_produce()
        left_out = self._left_out

        def produce_in_transaction(
            topic: str,
            value: bytes | None,
            key: bytes | None,
            partition: int = -1,
            on_delivery: Report | None = None,
            timestamp_ms: int = -1,
            headers: list[tuple[str, bytes | None]] | None = None,
        ) -> None:
            if left_out.waiting:
                instead = left_out.take(topic, value, key, timestamp_ms, headers)
                if instead is not None:
                    for letter in instead:
                        produce_in_transaction(*letter)  # type: ignore[arg-type]  # arguments of this function
                    return
            if not self.in_transaction:
                with self.blocked:
                    self._begin()
            sender = self._elsewhere_written
            if sender is not None and any(place.topic == topic for place in sender.partitions):
                if partition < 0:
                    partition = sender.partition_of(key, self.partitions_for(topic))
                place = TopicPartition(topic, partition)
                if place in sender.partitions:
                    self._check_barriers()
                    self.check()
                    with self.blocked:
                        self._send_elsewhere(sender, place, value, key, timestamp_ms, headers)
                    return
            produce(topic, value, key, partition, on_delivery, timestamp_ms, headers)

        return produce_in_transaction

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """Do not send the refused record when the tasks produce it again; see the port."""
        if error.record is not None:
            self._left_out.add(error.record, instead, error)

    def _note_obstacles(self) -> None:
        super()._note_obstacles()
        if not self._obstacles and (
            self._left_out.waiting or (self._elsewhere_written is not None and self._elsewhere_written.partitions)
        ):
            self._obstacles.append(StreamsError("some records are left out, or written by another client"))

    def _refuse(self, refused: KafkaException, topic: str, *record: Any) -> None:
        error = error_of(refused)
        if error is not None and (error.code() in _FENCED | SPOILED or error.fatal()):
            self._raise_first_failure()
            raise self._broken(f"a record for {topic} was not accepted", error) from refused
        super()._refuse(refused, topic, *record)

    def _sort_out(self) -> None:
        # The transaction has failed. librdkafka drops the unsent records and reports them first.
        super()._flush(time.monotonic() + _SETTLE_S)
        for topic in self._refusals.sort(bad_records=self._bad_records):
            _log.warning(
                "%s: a broker refused a record of topic %s, which ends the transaction; all tasks of the thread "
                "reprocess from the last commit in order to find that record",
                self._client_id,
                topic,
            )
        self._note_obstacles()

    def _bad_records(self, topic: str, group: Sequence[Failure]) -> Sequence[Failure] | None:
        """Return the bad records; None until delivery reports of the topic carry whole records."""
        if topic not in self._refusals.isolated:
            return None
        bad = group if self._sends_one_by_one else named_by_broker(group)
        if bad is None:
            self._sends_one_by_one = True  # from the next client on
        return bad

    def _raise_first_failure(self) -> None:
        """Raise the first failure, if any: the cause of a failed transaction may be a report not served yet."""
        self.poll(0)
        self.check()

    def poll(self, timeout_ms: int = 0) -> int:
        """Serve reports, and drop the client if its last commit may be incomplete."""
        served = super().poll(timeout_ms)
        self._drop_overtaken()
        return served

    def _flush(self, deadline_s: float) -> int:
        while True:
            now_s = time.monotonic()
            left = super()._flush(min(deadline_s, now_s + _CHECK_S))
            self._drop_overtaken()
            if not left or now_s >= deadline_s or not self._clients:
                return left

    def check(self) -> None:
        """Raise the first failure; see the port. Errors that a new attempt may fix become TaskCorruptedError."""
        self._check_given_up()
        try:
            super().check()
        except ProductionError as error:
            if error.record is not None:
                raise
            cause = None if error.__cause__ is None else error_of(error.__cause__)
            if error.retriable or (cause is not None and cause.code() in SPOILED):
                right = self._missing_right(cause)
                if right is not None:
                    raise StreamsError(
                        f"{self._client_id}: a record for {error.topic} was not written: {right}"
                    ) from error
                raise TaskCorruptedError(f"{error}; all tasks of the thread go back to the last commit", {}) from error
            raise

    def _out_of_step(self, text: str) -> StreamsError:
        return TaskMigratedError(text)

    def _send_at_epoch(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp_ms: int,
        headers: list[tuple[str, bytes | None]] | None,
    ) -> None:
        if timestamp_ms < 0:
            super()._send_at_epoch(topic, value, key, partition, timestamp_ms, headers)
        if self._elsewhere_written is None:
            if self.make_sender is None:
                raise StreamsError(
                    f"a record for {topic} has the timestamp 0, which this cluster does not accept in a transaction: "
                    "give the source a timestamp_extractor that returns another timestamp, or use at_least_once"
                )
            _log.info("%s: partitions with a record of timestamp 0 are written one by one", self._client_id)
            self._elsewhere_written = self.make_sender()
        sender = self._elsewhere_written
        if partition < 0:
            partition = sender.partition_of(key, self.partitions_for(topic))
        if TopicPartition(topic, partition) not in sender.partitions:
            # librdkafka's records for the partition must be written first, because sequence numbers continue from them.
            if left := self.flush(self._max_block_ms):
                raise broker_away(self._bootstrap, f"{left} records wait to be sent", self._max_block_ms)
            self.check()
        self._send_elsewhere(sender, TopicPartition(topic, partition), value, key, timestamp_ms, headers)

    def _send_elsewhere(
        self,
        sender: TransactionalRecordSender,
        place: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: list[tuple[str, bytes | None]] | None,
    ) -> None:
        try:
            offset = sender.send(place, value, key, timestamp_ms, headers)
        except ProductionError as refused:
            self._refused_elsewhere(refused, place, value, key, timestamp_ms, headers)
        else:
            if place.topic in self._tracked:
                self._written_at_epoch[place] = offset
        self._note_obstacles()

    def _client_of(self, topic: str) -> Producer:
        return self._client(self._batch_limit(topic))

    def _batch_limit(self, topic: str) -> int | None:
        """Apply a topic's smaller limit to all topics, from the next client on: all topics share one client."""
        if topic not in self._limits:
            limit = self._limits[topic] = self._batch_bytes_max(topic)
            if limit is not None and limit < int(self._settings.get("batch.size", _DEFAULT_BATCH_BYTES)):
                self._settings["batch.size"] = limit
                raise TaskCorruptedError(
                    f"{self._client_id}: topic {topic} accepts batches of at most {limit} bytes; starting over", {}
                )
        return None

    def reset(self) -> None:
        """Leave the transaction to the coordinator, and start over with a new client; see the port."""
        self.is_ready = self.in_transaction = False
        self._lost_before_commit = None
        self._barriers.pop(TaskCorruptedError, None)
        self._left_out.go_back()
        if self._elsewhere_written is not None:
            self._elsewhere_written.reset()
        self._sends_one_by_one = self._sends_one_by_one and bool(self._refusals.isolated)
        super().reset()

    def close(self) -> None:
        """Abort the open transaction and close. Otherwise readers would wait until the transaction times out."""
        for client in self._clients.values() if self.in_transaction else ():
            with contextlib.suppress(KafkaException, SystemError, TaskCorruptedError):
                client.purge()
                self._run("the transaction was not aborted", client.abort_transaction, _ABORT_TIMEOUT_S)
        self.in_transaction = False
        super().close()
        if self._elsewhere_written is not None:
            self._elsewhere_written.close()
        self._elsewhere().close()

    def _end(self, client: Producer, *, drop: bool) -> None:
        """Close a client, with a time limit: closing aborts the transaction, for which librdkafka has no timeout."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the binding warns when its abort fails
            self._elsewhere().run(lambda: _end(client, drop=drop), _CLOSE_S, when_late=lambda: None)


def _end(client: Producer, *, drop: bool = True) -> None:
    if drop:
        client.purge()
    client.close()
