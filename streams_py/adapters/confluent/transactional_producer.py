"""Writes records in transactions: the port ``TransactionalProducer`` on librdkafka.

One transaction at a time, for all tasks of a stream thread. It begins with the first record, and ends with the input
offsets of all of them. What cannot be committed is never repaired here: the caller learns that its tasks go back to
the last commit (TaskCorruptedError, naming none: it is all of them), or that somebody else has taken its place
(TaskMigratedError); :meth:`TransactionalProducer.reset` then makes a new client, whose first request ends the old
one's transaction on the broker, one way or the other. So no outcome is ever guessed.

Calls that wait for a broker are made on another thread (:mod:`.bounded_calls`), since librdkafka does not always keep
to their time-outs. When one is overdue its client is given up: it is closed when the call returns, if ever, and what it
still does is refused, since the new client has a newer epoch.

*Overtaken commits.* A coordinator answers a commit before it has written the markers that end the transaction in each
partition. If its broker is killed in between, it may come back and leave markers out (:mod:`streams_py.runtime.
open_transactions` ends such transactions, as they were decided). What this producer writes next into such a partition
would become one transaction with what was committed there; and were that aborted, committed records and input offsets
would be gone. So when the coordinator is lost after a commit, and before anything written since has been acknowledged,
the client is dropped at once: the next one settles what is open before it begins.

There is one client, since a transaction belongs to one; a topic that takes only small batches makes all of them small.
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

__all__ = ["ConfluentTransactionalProducer"]

_log = logging.getLogger(__name__)

_STEP_S: Final = 5.0
_RETRY_S: Final = 0.02
_OVERDUE_S: Final = 2.0
"""How long after its time-out a call may return: machines are slow at times, and all tasks start over without it."""
_CLOSE_S: Final = 5.0
_ABORT_TIMEOUT_S: Final = 3.0
_SETTLE_S: Final = 3.0
"""How long a failed transaction waits for the reason, which is the answer to a request that is under way."""
_LOOK_S: Final = 0.05
"""How soon a lost coordinator is noticed while acknowledgements are waited for."""
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
    """A :class:`ConfluentProducer` whose records become visible with :meth:`commit_transaction`, or never."""

    is_ready = False
    in_transaction = False
    _refusals_end_transactions = True
    make_sender: Callable[[], TransactionalRecordSender] | None = None
    """Makes the client for records with timestamp 0; None when there cannot be one."""
    _elsewhere_written: TransactionalRecordSender | None = None
    _committing: Collection[str] = ()
    """Topics whose offsets are being added to the transaction."""
    _calls: BoundedCalls | None = None
    _lost_before_commit: int | None = None
    """How often the coordinator had been lost when the last commit was asked for; None: nothing has been committed."""
    _acked_at_commit: Mapping[TopicPartition, Message] = MappingProxyType({})

    # -- the transaction ----------------------------------------

    def initialize(self, timeout_ms: int) -> None:
        """Take the place of whoever had the transactional id, and end its transaction. BrokerUnavailableError when that
        has to be asked for again, StreamsError when it is refused."""
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
            raise StreamsError(f"{self._client_id}: transactions are refused: {reason}") from failed
        self.is_ready = True

    def _refusal(self, error: KafkaError | None, failed: KafkaException) -> str:
        if error is None:
            return str(failed)
        match error.code():
            case KafkaError.INVALID_TRANSACTION_TIMEOUT:
                return (
                    f"producer.transaction.timeout.ms = {self._settings['transaction.timeout.ms']} is above the "
                    "broker's transaction.max.timeout.ms (900000 unless it was changed); lower the one or raise the "
                    "other"
                )
            case KafkaError._UNSUPPORTED_FEATURE:
                return "the brokers are too old: exactly_once_v2 needs version 2.5"
            case _:
                return self._missing_right(error) or error.str()

    def _begin(self) -> None:
        if self._lost_before_commit is not None:
            self.poll(0)  # the coordinator may have been lost while nobody did: then this client writes no more
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
        """Commit what was sent, with the input offsets of a member of the group; see the port."""
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
        if not self._is_overtaken():  # else this commit has ended what was open in its own partitions only
            self._lost_before_commit = lost
        self._acked_at_commit = dict(self._acked)

    def _is_overtaken(self) -> bool:
        """True when the markers of the last commit may be missing."""
        lost = self._lost_before_commit
        return lost is not None and self._broker_log.coordinators_lost != lost

    def _drop_overtaken(self) -> None:
        """Drop the client before it reaches the coordinator again, unless it has done so already: then what it writes
        had better be committed, too."""
        if not self._is_overtaken() or not self._clients:
            return
        if self.in_transaction and any(
            last is not self._acked_at_commit.get(partition) for partition, last in self._acked.items()
        ):
            return
        clients = self._clients
        self._give_up(
            f"{self._client_id}: the coordinator of transactions was lost after a commit, which may not have "
            "reached all partitions; a new producer looks after that, and all tasks go back to that commit"
        )
        for client in clients.values():
            self._elsewhere().run(partial(_end, client), 0, when_late=lambda: None)

    def _give_up(self, reason: str) -> None:
        """No client any more, until :meth:`reset`; the next call says why."""
        self._clients = {}
        self._barriers[TaskCorruptedError] = reason
        self._obstacles.append(StreamsError(reason))

    def _repeat(self, failure: str, step: Callable[[float], object], deadline_s: float) -> None:
        """Do a step until it is done, as librdkafka wants it after a time-out; or say what follows from its error."""
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
        """Do a step that has this time-out; TaskCorruptedError, and no client any more, when it does not keep to it."""
        client = self._client(None)
        within_s = timeout_s + _OVERDUE_S
        if self._elsewhere().run(lambda: step(timeout_s), within_s, when_late=lambda: _end(client)):
            return
        reason = (
            f"{self._client_id}: {failure}: librdkafka was asked for {timeout_s:.1f} s at most, and has not answered "
            f"within {within_s:.1f} s; the outcome is unknown, so a new producer takes the place of this one, and all "
            "tasks of the thread go back to the last commit"
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
        """What the caller has to do about an error of the transaction."""
        right = self._missing_right(error)
        if right is not None:
            return StreamsError(f"{self._client_id}: {failure}: {right}")
        text = f"{self._client_id}: {failure}: {'the producer has failed' if error is None else error.str()}"
        if error is None or error.fatal() or error.code() in _FENCED:
            return TaskMigratedError(f"{text} (another producer took its place, or the transaction took too long)")
        if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
            return TaskMigratedError(f"{text} (this member has lost its place in the group)")
        if error.code() == KafkaError.FENCED_INSTANCE_ID:
            # Not a migration: who joins again takes the place back, and so does the other one, for ever.
            return StreamsError(
                f"{text} (another member has joined with the same group.instance.id and replaced this one; give every "
                "instance its own)"
            )
        if error.code() == KafkaError.ILLEGAL_GENERATION:
            # The next one began while the commit was on its way. Whether this member is in it, its heartbeats tell.
            return TaskCorruptedError(f"{text}; all tasks of the thread go back to the last commit", {})
        return TaskCorruptedError(f"{text}; all tasks of the thread go back to the last commit", {})

    def _missing_right(self, error: KafkaError | None) -> str | None:
        """The right whose lack has spoiled the transaction, if it is that: doing it again would not help. ``error`` is
        what a record or a call met; the library may have told the reason to another one only."""
        return missing_transaction_right(
            (error, self._why_it_failed()),
            str(self._settings["transactional.id"]),
            written=self._broker_log.refused_topics,
            committed=self._committing,
        )

    def _why_it_failed(self) -> KafkaError | None:
        """The library's error of a transaction that has failed. It refuses to begin another one, and says why."""
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
        """Do not send the refused record again when the tasks make it again; see the port."""
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
            raise self._broken(f"a record for {topic} was not taken", error) from refused
        super()._refuse(refused, topic, *record)

    def _sort_out(self) -> None:
        # The transaction has failed. The library drops what it has not sent, and reports that first.
        super()._flush(time.monotonic() + _SETTLE_S)
        for topic in self._refusals.sort(told=self._told):
            _log.warning(
                "%s: a broker refused a record of topic %s, which ends the transaction; all tasks of the thread "
                "process again from the last commit in order to find that record",
                self._client_id,
                topic,
            )
        self._note_obstacles()

    def _told(self, topic: str, group: Sequence[Failure]) -> Sequence[Failure] | None:
        """The bad records, once reports of the topic's records know them whole."""
        if topic not in self._refusals.isolated:
            return None
        bad = group if self._sends_one_by_one else named_by_broker(group)
        if bad is None:
            self._sends_one_by_one = True  # from the next client on
        return bad

    def _raise_first_failure(self) -> None:
        """The reason of a broken transaction may be a report that waits to be served."""
        self.poll(0)
        self.check()

    def poll(self, timeout_ms: int = 0) -> int:
        served = super().poll(timeout_ms)
        self._drop_overtaken()
        return served

    def _flush(self, deadline_s: float) -> int:
        while True:
            now_s = time.monotonic()
            left = super()._flush(min(deadline_s, now_s + _LOOK_S))
            self._drop_overtaken()
            if not left or now_s >= deadline_s or not self._clients:
                return left

    def check(self) -> None:
        """As for every producer. What a new attempt may mend takes all tasks back to the last commit."""
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
                    f"a record for {topic} has the timestamp 0, which this cluster does not take in a transaction: "
                    "give the source a timestamp_extractor that makes another one, or use at_least_once"
                )
            _log.info("%s: partitions with a record of timestamp 0 are written one by one", self._client_id)
            self._elsewhere_written = self.make_sender()
        sender = self._elsewhere_written
        if partition < 0:
            partition = sender.partition_of(key, self.partitions_for(topic))
        if TopicPartition(topic, partition) not in sender.partitions:
            # What librdkafka has sent to the partition comes first, and its number is that of the last one.
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
        """No topic has a client of its own: a smaller limit is one for all topics, from the next client on."""
        if topic not in self._limits:
            limit = self._limits[topic] = self._batch_bytes_max(topic)
            if limit is not None and limit < int(self._settings.get("batch.size", _DEFAULT_BATCH_BYTES)):
                self._settings["batch.size"] = limit
                raise TaskCorruptedError(
                    f"{self._client_id}: topic {topic} takes batches of {limit} bytes only; starting over", {}
                )
        return None

    def reset(self) -> None:
        """Leave the transaction to the broker, and start over with a new client; see the port."""
        self.is_ready = self.in_transaction = False
        self._lost_before_commit = None
        self._barriers.pop(TaskCorruptedError, None)
        self._left_out.go_back()
        if self._elsewhere_written is not None:
            self._elsewhere_written.begin_again()
        self._sends_one_by_one = self._sends_one_by_one and bool(self._refusals.isolated)
        super().reset()

    def close(self) -> None:
        """Abort what is not committed: readers would wait for its end until it has timed out."""
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
        """Closing aborts, for which librdkafka sets no limit."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the binding says when its abort was of no use
            self._elsewhere().run(lambda: _end(client, drop=drop), _CLOSE_S, when_late=lambda: None)


def _end(client: Producer, *, drop: bool = True) -> None:
    if drop:
        client.purge()
    client.close()
