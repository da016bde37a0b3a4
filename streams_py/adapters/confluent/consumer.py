"""Read records of explicitly assigned partitions: the port ``RecordConsumer`` on librdkafka.

The consumer never subscribes and never commits. The group membership, which is another client, decides which partitions
it reads. Four facts about librdkafka shape this module (each has a probe test):

* ``consume(n, timeout)`` waits the whole timeout for ``n`` records. Kafka's poll returns as soon as there is a record.
  So :meth:`ConfluentConsumer.poll` first takes the available records, then waits for *one* event and takes the records
  that came with it.
* Events arrive among the records as messages with an error. The end of a partition is such an event. It is the only
  sign that the end was reached when the last records are not delivered (transaction markers, aborted or compacted
  records).
* ``seek`` is refused in several states. So a position is changed by unassigning and reassigning the partition.
* A pause can overtake the start of a newly assigned partition, which then never delivers a record. So a partition that
  has delivered nothing yet is paused by unassigning it, and ``resume`` assigns it again.

When librdkafka reports an invalid position, the log is checked before the error is raised. A broker that has just
started, or a failed lookup, must not cause a reset that skips records.

A client that delivers nothing although the log has more records is replaced by a new one at the same positions. So is a
client whose own requests are not answered. If one partition delivers nothing while others do, although its log has more
records, it is first reassigned. One cause: a broker that has lost its controller may list no brokers at all. librdkafka
2.16 then forgets the brokers it knew, and may never connect again, without an error (librdkafka issue 5301).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.failures import error_of
from streams_py.adapters.confluent.silence import Doubt, Remedy, Silence, Stalls
from streams_py.errors import IllegalStateError, OffsetOutOfRangeError, StreamsError
from streams_py.ports import BEGINNING, END, RawRecord
from streams_py.ports.rights import TOPIC, missing_right

if TYPE_CHECKING:
    from streams_py.adapters.confluent.settings import Settings

_log = logging.getLogger(__name__)

_METADATA_TIMEOUT_S: Final = 1.0
_FINAL: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION}
)
_INVALID_POSITION: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_CHECK_TIMEOUT_S: Final = 0.5
_CHECK_INTERVAL_S: Final = 0.2
_CHECKS: Final = 5
"""Number of checks that must find a position beyond the end of its log, or find it in the log although librdkafka calls
it invalid, before an error is raised."""

_CHECKED_PARTITIONS: Final = 20
_SILENCE_CHECK_TIMEOUT_S: Final = 1.0
_CHECKS_MAX_S: Final = 2.5
"""Time limit of a check of silence or of invalid positions, in seconds. The thread is blocked and may have an open
transaction."""

_error_of_message: Final = cast("Callable[[Message], KafkaError | None]", Message.error)


class ConfluentConsumer:
    """The record consumer. Not thread-safe."""

    def __init__(self, settings: Settings, *, purpose: str = "consumer") -> None:
        bootstrap, client_id = str(settings["bootstrap.servers"]), str(settings["client.id"])
        self._broker_log = BrokerLog(client_id, bootstrap)
        self._settings, self._purpose = settings, purpose
        self._open()
        self._reads_committed = settings.get("isolation.level") == "read_committed"
        self._client_id = client_id
        self._starts: dict[TopicPartition, int] = {}  # the assignment, with the start offset of each partition
        self._ends: dict[TopicPartition, int] = {}  # offset at which the end of the partition was last seen
        self._paused: set[TopicPartition] = set()
        self._kept_out: set[TopicPartition] = set()  # paused before their first record: not assigned in librdkafka
        self._invalid: set[TopicPartition] = set()  # reported by librdkafka, not raised yet
        self._checks: dict[TopicPartition, int] = {}  # checks of each invalid partition without a clear result
        self._refused: StreamsError | None = None  # reported by a broker, not raised yet
        self._next_check_s = 0.0
        self._first_invalid = TopicPartition("", 0)  # the next check of invalid partitions begins here
        self._known_topics: set[str] = set()
        self._silence, self._stalls = Silence(), Stalls()
        self._next_checked = 0

    def _open(self) -> None:
        settings = {**self._settings, "error_cb": self._broker_log.on_error}
        try:
            self._consumer = Consumer(settings, logger=self._broker_log)
        except KafkaException as refused:
            # Imported here because it takes long to load, and the process that sorts changelogs does not need it.
            from streams_py.adapters.confluent.settings import creation_error

            error = error_of(refused)
            raise creation_error(error.str() if error else str(refused), self._settings, self._purpose) from None
        self._consume = self._consumer.consume
        # Returns None after a timeout, unlike the binding's type.
        self._watermarks: Callable[..., tuple[int, int] | None] = self._consumer.get_watermark_offsets

    # -- assignment ----------------------------------------

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Replace the assignment. An assigned partition with the position None keeps its current position."""
        unknown = [
            partition for partition, start in positions.items() if start is None and partition not in self._starts
        ]
        if unknown:
            raise IllegalStateError(f"{unknown[0]} is not assigned yet and needs a position")
        moved = {partition: start for partition, start in positions.items() if start is not None}
        self._remove([partition for partition in self._starts if partition not in positions or partition in moved])
        self._paused &= positions.keys()
        self._learn_topics({partition.topic for partition in moved})
        self._add(moved)
        if moved:
            self._silence.restart()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset`` (or BEGINNING, END). A paused partition stays paused."""
        if partition not in self._starts:
            raise IllegalStateError(f"{partition} is not assigned")
        self._remove([partition])
        self._add({partition: offset})
        self._silence.restart()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop delivery of these partitions until :meth:`resume`, which fetches prefetched records again."""
        wanted = self._starts.keys() & set(partitions) - self._paused
        fresh = {
            partition: self._starts[partition] if (at := self.position(partition)) is None else at
            for partition in wanted
            if self._delivered(partition) < 0
        }
        if fresh:
            self._remove(fresh)
        self._paused |= wanted
        self._add(fresh)
        if running := wanted - fresh.keys():
            self._consumer.pause(_native(running))
        for partition in wanted:
            self._stalls.forget(partition)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo :meth:`pause`."""
        wanted = self._paused & set(partitions)
        self._paused -= wanted
        kept_out = wanted & self._kept_out
        self._kept_out -= kept_out
        self._add({partition: self._starts[partition] for partition in kept_out})
        if running := wanted - kept_out:
            self._consumer.resume(_native(running))
        if wanted:
            self._silence.restart()
        for partition in wanted:
            self._stalls.forget(partition)

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        in_library = gone - self._kept_out
        if paused := in_library & self._paused:
            self._consumer.resume(_native(paused))  # librdkafka would keep the pause for the next assignment
        if in_library:
            self._consumer.incremental_unassign(_native(in_library))
        self._kept_out -= gone
        for partition in gone:
            self._stalls.forget(partition)
            del self._starts[partition]
            self._ends.pop(partition, None)
            self._invalid.discard(partition)
            self._checks.pop(partition, None)

    def _add(self, positions: Mapping[TopicPartition, int]) -> None:
        assigned = []
        for partition, offset in positions.items():
            if partition not in self._paused:
                self._starts[partition] = offset
                assigned.append(confluent_kafka.TopicPartition(*partition, offset))
                continue
            log = self._log_range(partition) if offset == END else None
            self._starts[partition] = offset if log is None else log[1]  # the end as of now, not as of `resume`
            self._kept_out.add(partition)
        if assigned:
            self._consumer.incremental_assign(assigned)

    def _learn_topics(self, topics: set[str]) -> None:
        """Request the leaders of new topics now. Otherwise librdkafka would find them only after 0.6 s."""
        for topic in sorted(topics - self._known_topics):
            try:
                self._consumer.list_topics(topic, timeout=_METADATA_TIMEOUT_S)
            except KafkaException:
                return  # the broker is unreachable: librdkafka will find the leaders later
            self._known_topics.add(topic)

    # -- records ----------------------------------------

    def poll(self, max_records: int, timeout_ms: int) -> list[RawRecord]:
        """Return up to ``max_records`` records.

        The result is empty after ``timeout_ms``, or earlier when only an event arrived. An unreachable broker is
        logged, not raised.

        Raises:
            OffsetOutOfRangeError: Positions do not exist, as a check of the log has confirmed. These partitions deliver
                nothing until ``seek``.
            StreamsError: The broker refused the request with a final error.
        """
        self._raise_refused()
        if self._invalid:
            self._check_invalid()
        try:
            batch = self._consume(max_records, 0)
            if not batch and timeout_ms > 0:
                batch = self._consume(1, timeout_ms / 1000)
                if batch and max_records > 1:
                    batch += self._consume(max_records - 1, 0)
        except KafkaException as failed:
            raise StreamsError(f"{self._client_id}: reading failed: {failed}") from failed
        all_taken = len(batch) < max_records
        if any(map(_error_of_message, batch)):
            batch = self._without_events(batch)
        if batch:
            self._silence.ended()
            if all_taken and self._stalls.is_due(self._silence.asked_since_s):
                self._check_stalls()
        else:
            self._broker_log.check()
            if self._silence.is_due(timeout_ms / 1000):
                self._check_silence()
        return cast("list[RawRecord]", batch)

    def _without_events(self, batch: list[Message]) -> list[Message]:
        records = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
                continue
            try:
                self._on_event(message, error)
            except StreamsError as refused:
                self._refused = self._refused or refused
        if self._refused is not None and not records:
            self._raise_refused()
        if self._invalid and not records:
            self._check_invalid()
        return records

    def _raise_refused(self) -> None:
        """Raise a broker's final error, if there is one. The records that came with it are delivered first."""
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    def _on_event(self, message: Message, error: KafkaError) -> None:
        partition = TopicPartition(message.topic() or "", message.partition() or 0)
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            end = message.offset()
            if end is not None and end >= 0 and partition in self._starts:
                self._ends[partition] = end
                self._silence.ended()
        elif code in _INVALID_POSITION:
            if partition in self._starts:
                self._invalid.add(partition)
        elif code in _FINAL or error.fatal():
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise StreamsError(f"{partition} cannot be read: {missing_right('READ', TOPIC, [partition.topic])}")
            raise StreamsError(f"{partition} cannot be read: {error.str()}; check the topic's name")
        else:
            self._broker_log.warn(f"{partition}: {error.str()}; retrying")

    def _check_invalid(self) -> None:
        """Check the invalid positions: raise for those not in the log, and reassign the others.

        Partitions are checked later if no broker returns the range of their log. A check has a time limit. The next
        check begins with the partitions that were not reached.
        """
        now_s = time.monotonic()
        if now_s < self._next_check_s:
            return
        gone: dict[TopicPartition, str] = {}  # each with the reason
        deleted: set[TopicPartition] = set()
        for partition in sorted(self._invalid, key=lambda partition: (partition < self._first_invalid, partition)):
            self._first_invalid = partition
            if time.monotonic() - now_s >= _CHECKS_MAX_S:
                break
            if (reason := self._why_gone(partition, deleted)) is not None:
                gone[partition] = reason
        self._next_check_s = time.monotonic() + _CHECK_INTERVAL_S if self._invalid - gone.keys() else 0.0
        if gone:
            self._invalid -= gone.keys()
            for partition in gone:
                self._checks.pop(partition, None)
            raise OffsetOutOfRangeError(gone, "; ".join(gone.values()), deleted=deleted)

    def _why_gone(self, partition: TopicPartition, deleted: set[TopicPartition]) -> str | None:
        """Return why the log lacks the position; None if it has it, or if that is not known yet.

        Adds the partition to ``deleted`` if the log starts after the position.
        """
        position = self.position(partition)
        if position is None:  # the caller must choose a start again
            return f"{partition}: the start or the end of the log was not found"
        log = self._log_range(partition)
        if log is None:
            return None
        low, high = log
        if position < low:
            deleted.add(partition)
            return f"{partition}: the records at offset {position} were deleted; the log starts at {low}"
        checks = self._checks[partition] = self._checks.get(partition, 0) + 1
        if position > high:
            return (
                f"{partition}: offset {position} was never written; the log ends at {high}"
                if checks >= _CHECKS
                else None
            )
        if checks >= _CHECKS:
            return f"{partition}: the broker refuses offset {position} although the log has {low} to {high}"
        self._remove([partition])
        self._add({partition: position})
        self._checks[partition] = checks
        _log.warning("%s: offset %d of %s was refused, but exists; retrying", self._client_id, position, partition)
        return None

    def _check_silence(self) -> None:
        """Check the logs after a long silence. Replace the client if two checks in a row have the same finding.

        There are two findings: a log has more records, or no broker answers. In the second case this client cannot tell
        whether the brokers are unreachable or its own connections are broken. Each check covers a few partitions.
        """
        waiting = sorted(self._starts.keys() - self._paused - self._invalid)
        self._next_checked = first = self._next_checked if self._next_checked < len(waiting) else 0
        until_s = time.monotonic() + _CHECKS_MAX_S
        doubt, reason = None, ""
        is_answered = not waiting
        for partition in waiting[first : first + _CHECKED_PARTITIONS]:
            log = self._log_range(partition, _SILENCE_CHECK_TIMEOUT_S)
            if log is not None:
                is_answered = True
                position = self._position_in(partition, log)
                if position is not None and position < log[1]:
                    doubt, reason = Doubt.HAS_MORE, f"{partition} has records from {position} to {log[1]}"
                    break  # the next check begins with this partition
            self._next_checked += 1
            if time.monotonic() >= until_s:
                break
        if not is_answered:
            doubt, reason = Doubt.UNANSWERED, f"no broker returns the end offset of {waiting[first]}"
        if self._silence.confirms(doubt):
            self._renew(f"nothing has arrived for {self._silence.lasts_s:.0f} s, but {reason}")

    def _check_stalls(self) -> None:
        """Check partitions that have delivered nothing for a long time while others deliver.

        A partition whose log has more records is reassigned. If that does not help, a new client replaces this one.
        Each check covers a few partitions, and stops at the first one for which no broker answers.
        """
        waiting = self._starts.keys() - self._paused - self._invalid
        positions = {partition: self.position(partition) for partition in waiting}
        for partition in self._stalls.suspects(positions):
            log = self._log_range(partition)
            position = None if log is None else self._position_in(partition, log)
            if log is None or position is None or position >= log[1]:
                self._stalls.answered(partition)
                if log is None:
                    return
                continue
            remedy = self._stalls.has_more(partition, positions[partition])
            reason = f"{partition} has records from {position} to {log[1]}, but none has arrived for a long time"
            if remedy is Remedy.NEW_CLIENT:
                self._renew(reason)
                return
            if remedy is Remedy.REASSIGN:
                _log.warning("%s: %s although other partitions deliver; reassigning it", self._client_id, reason)
                start = self._starts[partition] if positions[partition] is None else position
                self._remove([partition])
                self._add({partition: start})

    def _position_in(self, partition: TopicPartition, log: tuple[int, int]) -> int | None:
        position = self.position(partition)
        return log[0] if position is None and self._starts[partition] == BEGINNING else position

    def _renew(self, reason: str) -> None:
        silent = self._consumer
        positions = {
            partition: start if (at := self.position(partition)) is None else at
            for partition, start in self._starts.items()
        }
        self._silence.back_off()
        try:
            self._open()
        except StreamsError as refused:  # the settings are valid: too many threads or open files, or no login token
            _log.warning("%s: %s, and creating a new client failed: %s", self._client_id, reason, refused)
            return
        _log.warning("%s: %s; continuing with a new client", self._client_id, reason)
        self._kept_out.clear()
        self._ends.clear()
        self._checks.clear()
        self._known_topics.clear()
        self._learn_topics({partition.topic for partition in positions})
        self._add(positions)
        # Closing the old client may block forever, so a daemon thread does it.
        threading.Thread(target=_give_up, args=(silent,), name=f"{self._client_id}-given-up", daemon=True).start()

    def _log_range(self, partition: TopicPartition, timeout_s: float = _CHECK_TIMEOUT_S) -> tuple[int, int] | None:
        """Return the first offset and the end offset of a partition; None when no broker answers."""
        try:
            native = confluent_kafka.TopicPartition(*partition)
            low, high = self._watermarks(native, timeout=timeout_s) or (-1, -1)
        except KafkaException:
            return None
        return (low, high) if 0 <= low <= high else None

    # -- positions ----------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to deliver; None before the first answer after BEGINNING or END.

        At the end of a partition, the position also passes records that are never delivered (e.g. transaction markers).
        """
        start = self._starts.get(partition)
        if start is None:
            return None
        reached = max(self._delivered(partition), self._ends.get(partition, -1))
        position = reached if reached >= 0 else start
        return position if position >= 0 else None

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the count of offsets between the position and the end; None before the first fetch.

        The end is as of the last fetch.
        """
        end_seen = self._ends.get(partition, -1)
        reached = max(self._delivered(partition), end_seen)
        if partition not in self._starts or reached < 0:
            return None  # librdkafka keeps the end offset of an earlier assignment, which may be stale
        if self._reads_committed and end_seen == reached:
            return 0  # the following records belong to an open transaction
        native = confluent_kafka.TopicPartition(*partition)
        _, end = self._watermarks(native, cached=True) or (-1, -1)
        return end - reached if end >= reached else None  # an end before our position is out of date

    def _delivered(self, partition: TopicPartition) -> int:
        """Return the offset after the last record delivered since the assignment; negative before the first one."""
        offset: int = self._consumer.position([confluent_kafka.TopicPartition(*partition)])[0].offset
        return offset

    def close(self) -> None:
        """Stop reading. The consumer is not a member of a group, so it does not have to leave one."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._consumer.close()


def _give_up(client: Consumer) -> None:
    with contextlib.suppress(Exception):
        client.close()


def _native(partitions: Iterable[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(topic, number) for topic, number in partitions]
