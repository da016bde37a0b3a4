"""Writes records: the port ``RecordProducer`` on librdkafka.

Every record of every task passes :meth:`produce`, so its cost counts: librdkafka's binding needs about 1.0 us for it,
what is added here 0.1 to 0.2 us.

*Delivery reports.* Each record ends in a report. One that says "written" costs 0.3 us even if nobody listens, so only
failures are reported until somebody asks for acknowledged offsets (``track``). And a report into a Python function
would cost as much as sending. So reports go straight into a C method of a dict, keyed by the error, which is None when
all is well:

* ``outcomes.setdefault``: None is there from the beginning, so successes leave nothing behind, and the first failure
  of each kind stays with its record;
* for tracked (changelog) partitions ``outcome.__setitem__``: the entry for None is always the *last* acknowledged
  record, whose offset is what a checkpoint needs. Failures become further entries.

More than one entry means that something failed; ``poll`` looks for that. The binding ignores its argument
``on_delivery`` when ``callback`` is given by position, so reports are passed as ``callback``.

*Back-pressure.* A full queue is no error: ``produce`` waits, serving reports, until there is room.

*Timestamp 0.* librdkafka writes the wall clock for it, but 1970-01-01T00:00Z is a legal time of a record (KIP-32).
Such a record goes out through another client, after a flush, so that the order of its partition is kept.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.failures import broker_away, error_of, send_error
from streams_py.adapters.confluent.settings import Settings, rejected_setting
from streams_py.errors import StreamsError
from streams_py.ports import DirectSend

__all__ = ["ConfluentProducer", "EpochRecordSender"]

_log = logging.getLogger(__name__)

_Outcome = dict[KafkaError | None, Message | None]
_Headers = list[tuple[str, bytes | None]] | None
_Report = Callable[[KafkaError | None, Message], Any]

_NOW: Final = -1  # the port's timestamp for "the producer's clock"; librdkafka says 0
_CLOSE_TIMEOUT_S: Final = 5.0
_PARTITION_COUNT_AGE_MAX_S: Final = 300.0


class EpochRecordSender(Protocol):
    """Another client that can write a record with timestamp 0 and waits for the acknowledgement."""

    def send(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: _Headers
    ) -> tuple[int, int]:
        """Partition and offset of the written record; ``partition`` -1 leaves the choice to the default rule."""

    def close(self) -> None: ...


class _Reports(dict[int, _Report]):
    """Report functions of a tracked topic by partition, made at first use."""

    def __init__(self, topic: str, outcomes: dict[TopicPartition, _Outcome], untracked: _Report) -> None:
        super().__init__()
        self._topic = topic
        self._outcomes = outcomes
        self._untracked = untracked

    def __missing__(self, partition: int) -> _Report:
        if partition < 0:
            return self._untracked  # the library chooses: nobody can say which partition a report is for
        outcome: _Outcome = {None: None}
        self._outcomes[TopicPartition(self._topic, partition)] = outcome
        self[partition] = outcome.__setitem__
        return self[partition]


class ConfluentProducer:
    """Not thread-safe: one thread uses it. ``produce`` is an attribute: the hot path calls it without a method lookup.

    ``max_block_ms`` (Kafka's ``max.block.ms``) bounds how long a full queue or missing metadata may hold a caller.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        epoch_sender: Callable[[], EpochRecordSender],
        max_block_ms: int = 60_000,
        lists_all_topics: bool = False,
    ) -> None:
        self._bootstrap, client_id = str(settings["bootstrap.servers"]), str(settings["client.id"])
        self._client_id = client_id
        self._broker_log = BrokerLog(client_id, self._bootstrap)
        self._settings = settings
        self._make_epoch_sender = epoch_sender
        self._epoch_sender: EpochRecordSender | None = None
        self._max_block_ms = max_block_ms
        self._lists_all_topics = lists_all_topics
        self._outcomes: _Outcome = {None: None}
        self._tracked_outcomes: dict[TopicPartition, _Outcome] = {}
        self._tracked: dict[str, _Reports] = {}
        self._written_at_epoch: dict[TopicPartition, int] = {}
        self._failures: list[StreamsError] = []  # the first one, or nothing
        self._partition_counts: dict[str, tuple[int, float]] = {}
        self._open(reports_all=False)

    def _open(self, *, reports_all: bool) -> None:
        self._reports_all = reports_all
        settings = {
            "delivery.report.only.error": not reports_all,
            **self._settings,
            "error_cb": self._broker_log.on_error,
        }
        try:
            self._producer = Producer(settings, logger=self._broker_log)
        except KafkaException as refused:
            error = error_of(refused)
            raise rejected_setting(error.str() if error else str(refused), self._settings, "producer") from None
        self.produce = self._make_produce()

    # -- sending ----------------------------------------

    def _make_produce(self) -> Callable[..., None]:
        send: Callable[..., None] = self._producer.produce
        untracked = self._outcomes.setdefault
        tracked = self._tracked
        failures = self._failures

        def produce(
            topic: str,
            value: bytes | None,
            key: bytes | None,
            partition: int = -1,
            on_delivery: _Report | None = None,
            timestamp_ms: int = _NOW,
            headers: _Headers = None,
        ) -> None:
            """Queue a record. ``timestamp_ms`` -1 = the producer's clock; ``partition`` -1 = murmur2 of the key, any
            partition for a null key. Raises what an earlier send failed with; this record is then not queued."""
            if failures:
                self.check()
            if on_delivery is None:
                reports = tracked.get(topic)
                on_delivery = untracked if reports is None else reports[partition]
            if timestamp_ms <= 0:
                if timestamp_ms != _NOW:
                    self._send_at_epoch(topic, value, key, partition, timestamp_ms, headers)
                    return
                timestamp_ms = 0
            try:
                send(topic, value, key, partition, on_delivery, None, timestamp_ms, headers)
            except BufferError:
                self._send_when_there_is_room(topic, value, key, partition, on_delivery, None, timestamp_ms, headers)
            except KafkaException as refused:
                self._refuse(refused, topic, partition)

        return produce

    def direct(self, topic: str, partition: int = -1) -> DirectSend:
        """librdkafka's ``produce`` with what records for ``topic`` need; see the port."""
        reports = self._tracked.get(topic)
        report = self._outcomes.setdefault if reports is None else reports[partition]
        return DirectSend(self._producer.produce, report, self._failures)

    def _send_when_there_is_room(self, topic: str, *rest: Any) -> None:
        deadline_s = time.monotonic() + self._max_block_ms / 1000
        while True:
            # Returns as soon as a report has been served, i.e. when there may be room: no busy loop.
            self.poll(100)
            self.check()
            try:
                self._producer.produce(topic, *rest)
            except BufferError:
                if time.monotonic() >= deadline_s:
                    doing = f"{len(self._producer)} records wait to be sent"
                    raise broker_away(self._bootstrap, doing, self._max_block_ms) from None
            except KafkaException as refused:
                self._refuse(refused, topic, None)
                return
            else:
                return

    def _refuse(self, refused: KafkaException, topic: str, partition: int | None) -> None:
        """librdkafka did not take the record (too large, no such partition): as if the broker had refused it later."""
        error = error_of(refused)
        if error is None:
            raise StreamsError(f"a record for {topic} was not written: {refused}") from refused
        self._remember(send_error(error, topic, partition))

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
        partition, offset = self._epoch_sender.send(topic, value, key, partition, headers)
        if topic in self._tracked:
            self._written_at_epoch[TopicPartition(topic, partition)] = offset

    # -- reports ----------------------------------------

    def poll(self, timeout_ms: int = 0) -> int:
        """Serve reports; waits up to ``timeout_ms`` for the first. Call it about once for every batch of records."""
        served = self._producer.poll(timeout_ms / 1000)
        if served:
            self._look_for_failures()
        return served

    def flush(self, timeout_ms: int) -> int:
        """Wait until everything is acknowledged or failed; how many records still wait after ``timeout_ms``."""
        try:
            left = self._producer.flush(timeout_ms / 1000)
        except SystemError as lost:  # the binding loses the exception of a fatal error
            raise StreamsError(f"{self._client_id}: the producer failed and cannot go on") from lost
        self._look_for_failures()
        return left

    def check(self) -> None:
        """Raise the first failure since the last check, and forget it."""
        self._broker_log.check()
        if self._failures:
            raise self._failures.pop()

    def _look_for_failures(self) -> None:
        if len(self._outcomes) > 1:
            self._collect(self._outcomes)
        for outcome in self._tracked_outcomes.values():
            if len(outcome) > 1:
                self._collect(outcome)

    def _collect(self, outcome: _Outcome) -> None:
        for error in [error for error in outcome if error is not None]:
            message = outcome.pop(error)
            topic = (message.topic() if message else None) or "?"
            self._remember(send_error(error, topic, message.partition() if message else None))

    def _remember(self, failure: StreamsError) -> None:
        if self._failures:
            _log.warning("%s: also failed: %s", self._client_id, failure)
        else:
            self._failures.append(failure)

    # -- what is known ----------------------------------------

    def track(self, topics: Collection[str]) -> None:
        """Topics whose acknowledged offsets are wanted. Records for them name their partition. Call it before the first
        record is sent: the first call makes another client, and what ``produce`` and ``direct`` gave is void then."""
        if topics and not self._reports_all:
            self._producer.flush(self._max_block_ms / 1000)
            self._look_for_failures()
            self._producer.close()
            self._open(reports_all=True)
        for topic in topics:
            if topic not in self._tracked:
                self._tracked[topic] = _Reports(topic, self._tracked_outcomes, self._outcomes.setdefault)

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Highest acknowledged offset of each partition of a tracked topic that this producer has written to."""
        acked = dict(self._written_at_epoch)
        for partition, outcome in self._tracked_outcomes.items():
            last = outcome[None]
            if last is not None:
                acked[partition] = max(last.offset() or 0, acked.get(partition, -1))
        return acked

    def partitions_for(self, topic: str) -> int:
        """Partition count, at most 5 minutes old. BrokerUnavailable after ``max.block.ms`` without an answer."""
        known = self._partition_counts.get(topic)
        now_s = time.monotonic()
        if known is not None and now_s < known[1]:
            return known[0]
        try:
            listed = self._list_topics(topic)
        except KafkaException as failed:
            raise broker_away(self._bootstrap, f"looking up topic {topic}", self._max_block_ms) from failed
        found = listed.topics.get(topic)
        if found is None or not found.partitions:
            reason = f" ({found.error.str()})" if found is not None and found.error is not None else ""
            raise StreamsError(f"topic {topic} does not exist{reason}: create it first")
        self._partition_counts[topic] = (len(found.partitions), now_s + _PARTITION_COUNT_AGE_MAX_S)
        return len(found.partitions)

    def _list_topics(self, topic: str) -> Any:
        timeout_s = self._max_block_ms / 1000
        if self._lists_all_topics:  # the mock cluster creates a topic that is asked for by name
            return self._producer.list_topics(timeout=timeout_s)
        return self._producer.list_topics(topic, timeout=timeout_s)

    def close(self) -> None:
        """Write what is queued, for a few seconds at most; what is left then is dropped with a warning."""
        left = 0
        with contextlib.suppress(SystemError):
            left = self._producer.flush(_CLOSE_TIMEOUT_S)
        if left:
            _log.warning("%s: %d records were not written before the producer was closed", self._client_id, left)
            self._producer.purge()
        self._producer.close()
        if self._epoch_sender is not None:
            self._epoch_sender.close()
            self._epoch_sender = None
