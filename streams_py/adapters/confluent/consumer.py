"""Reads records of explicitly assigned partitions: the port ``RecordConsumer`` on librdkafka.

The consumer never subscribes and never commits: which partitions it reads is decided by the group membership, which is
another client. Three facts about librdkafka shape it (each has a probe test):

* ``consume(n, timeout)`` waits the whole time-out for ``n`` records. Kafka's poll returns as soon as there is anything,
  so :meth:`ConfluentConsumer.poll` first takes what is there, then waits for *one* event and takes what came with it.
* Events arrive among the records as messages with an error. The end of a partition is one of them: it is the only sign
  that a partition whose last records are invisible (transaction markers, aborted or compacted records) has been read to
  its end.
* ``seek`` is refused in several states, so a position is changed by taking the partition out and putting it back.
* A pause can overtake the start of a partition that was put in a moment ago, and then it is silent for ever. So a
  partition that has delivered nothing yet is paused by keeping it out, and put in by ``resume``.

A position that librdkafka calls invalid is looked at again before anybody resets it: a broker that has just started,
or a look-up that failed, must not cost records.

A client that delivers nothing, although the log goes on, is replaced by a new one at the same positions; so is one that
gets no answer to its own questions. A partition that delivers nothing while others do, although its log goes on, is put
in again first. A broker that has lost its controller may list no brokers at all; librdkafka 2.16
forgets those that it has then, and may never connect again, without an error (its issue 5301).
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
from streams_py.errors import ConfigError, IllegalStateError, OffsetOutOfRangeError, StreamsError
from streams_py.ports import BEGINNING, END, RawRecord
from streams_py.ports.rights import TOPIC, missing_right

if TYPE_CHECKING:
    from streams_py.adapters.confluent.settings import Settings

__all__ = ["ConfluentConsumer"]

_log = logging.getLogger(__name__)

_METADATA_TIMEOUT_S: Final = 1.0
_FINAL: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION}
)
_INVALID_POSITION: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_LOOK_TIMEOUT_S: Final = 0.5
_LOOK_INTERVAL_S: Final = 0.2
_LOOKS: Final = 5
"""So often a position must be found beyond the end of its log, or be called invalid although the log has it, before it
is reported."""

_PARTITIONS_LOOKED_AT: Final = 20
_SILENCE_LOOK_TIMEOUT_S: Final = 1.0
_SILENCE_LOOKS_S: Final = 2.5
"""How long a look at silence, or at invalid positions, goes on asking. The thread does nothing else meanwhile, and may
be in a transaction."""

_error_of_message: Final = cast("Callable[[Message], KafkaError | None]", Message.error)


class ConfluentConsumer:
    """Not thread-safe: one thread uses it."""

    def __init__(self, settings: Settings, *, purpose: str = "consumer") -> None:
        bootstrap, client_id = str(settings["bootstrap.servers"]), str(settings["client.id"])
        self._broker_log = BrokerLog(client_id, bootstrap)
        self._settings, self._purpose = settings, purpose
        self._open()
        self._reads_committed = settings.get("isolation.level") == "read_committed"
        self._client_id = client_id
        self._starts: dict[TopicPartition, int] = {}  # the assignment, and where each partition started
        self._ends: dict[TopicPartition, int] = {}  # offset at which the end of the partition was last seen
        self._paused: set[TopicPartition] = set()
        self._kept_out: set[TopicPartition] = set()  # paused before they delivered anything: not in the library
        self._invalid: set[TopicPartition] = set()  # reported by librdkafka, not raised yet
        self._looks: dict[TopicPartition, int] = {}  # how often an invalid one was looked at without a clear result
        self._refused: StreamsError | None = None  # reported by a broker, not raised yet
        self._next_look_s = 0.0
        self._first_invalid = TopicPartition("", 0)  # the next look at invalid ones begins here
        self._known_topics: set[str] = set()
        self._silence, self._stalls = Silence(), Stalls()
        self._next_in_doubt = 0

    def _open(self) -> None:
        settings = {**self._settings, "error_cb": self._broker_log.on_error}
        try:
            self._consumer = Consumer(settings, logger=self._broker_log)
        except KafkaException as refused:
            # The process that sorts changelogs has no use for it, and it takes long to load.
            from streams_py.adapters.confluent.settings import rejected_setting

            error = error_of(refused)
            raise rejected_setting(error.str() if error else str(refused), self._settings, self._purpose) from None
        self._consume = self._consumer.consume
        # None when it timed out, whatever the binding's type says.
        self._watermarks: Callable[..., tuple[int, int] | None] = self._consumer.get_watermark_offsets

    # -- what is read ----------------------------------------

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Make this the whole assignment; None keeps the position of a partition that is assigned already."""
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
            self._silence.begins()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset`` (or BEGINNING, END). A paused partition stays paused."""
        if partition not in self._starts:
            raise IllegalStateError(f"{partition} is not assigned")
        self._remove([partition])
        self._add({partition: offset})
        self._silence.begins()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver nothing of these until :meth:`resume`. Prefetched records are fetched again then."""
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
            self._stalls.begins(partition)

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
            self._silence.begins()
        for partition in wanted:
            self._stalls.begins(partition)

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        in_library = gone - self._kept_out
        if paused := in_library & self._paused:
            self._consumer.resume(_native(paused))  # the library remembers a pause beyond the assignment
        if in_library:
            self._consumer.incremental_unassign(_native(in_library))
        self._kept_out -= gone
        for partition in gone:
            self._stalls.begins(partition)
            del self._starts[partition]
            self._ends.pop(partition, None)
            self._invalid.discard(partition)
            self._looks.pop(partition, None)

    def _add(self, positions: Mapping[TopicPartition, int]) -> None:
        put_in = []
        for partition, offset in positions.items():
            if partition not in self._paused:
                self._starts[partition] = offset
                put_in.append(confluent_kafka.TopicPartition(*partition, offset))
                continue
            log = self._look_at_log(partition) if offset == END else None
            self._starts[partition] = offset if log is None else log[1]  # its end as it is now, not at `resume`
            self._kept_out.add(partition)
        if put_in:
            self._consumer.incremental_assign(put_in)

    def _learn_topics(self, topics: set[str]) -> None:
        """Ask for the leaders of new topics: librdkafka would find them by itself, but only after 0.6 s."""
        for topic in sorted(topics - self._known_topics):
            try:
                self._consumer.list_topics(topic, timeout=_METADATA_TIMEOUT_S)
            except KafkaException:
                return  # the broker is away: nothing is lost but that time
            self._known_topics.add(topic)

    # -- records ----------------------------------------

    def poll(self, max_records: int, timeout_ms: int) -> list[RawRecord]:
        """Up to ``max_records`` records; empty after ``timeout_ms``, or earlier when only an event came.

        Raises OffsetOutOfRangeError for positions that do not exist, after another look at the log: these partitions
        deliver nothing until ``seek``.
        Raises StreamsError when the broker refuses for good. A broker that is away is logged, not raised.
        """
        self._raise_refused()
        if self._invalid:
            self._look_at_invalid()
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
            self._silence.over()
            if all_taken and self._stalls.is_due(self._silence.asked_since_s):
                self._look_at_stalls()
        else:
            self._broker_log.check()
            if self._silence.is_due(timeout_ms / 1000):
                self._look_at_silence()
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
            self._look_at_invalid()
        return records

    def _raise_refused(self) -> None:
        """Raise what a broker has refused, after the records that came with it."""
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
                self._silence.over()
        elif code in _INVALID_POSITION:
            if partition in self._starts:
                self._invalid.add(partition)
        elif code in _FINAL or error.fatal():
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise StreamsError(f"{partition} cannot be read: {missing_right('READ', TOPIC, [partition.topic])}")
            raise StreamsError(f"{partition} cannot be read: {error.str()}; check the topic's name")
        else:
            self._broker_log.warn(f"{partition}: {error.str()}; trying again")

    def _look_at_invalid(self) -> None:
        """Raise for positions that the log does not have; put in again those that it has. Nothing happens while no
        broker says where the log begins and ends; of many, those that there is no time for are looked at next."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        gone: set[TopicPartition] = set()
        deleted: set[TopicPartition] = set()
        for partition in sorted(self._invalid, key=lambda partition: (partition < self._first_invalid, partition)):
            self._first_invalid = partition
            if time.monotonic() - now_s >= _SILENCE_LOOKS_S:
                break
            if self._is_gone(partition, deleted):
                gone.add(partition)
        self._next_look_s = time.monotonic() + _LOOK_INTERVAL_S if self._invalid - gone else 0.0
        if gone:
            self._invalid -= gone
            for partition in gone:
                self._looks.pop(partition, None)
            raise OffsetOutOfRangeError(gone, deleted=deleted)

    def _is_gone(self, partition: TopicPartition, deleted: set[TopicPartition]) -> bool:
        """Whether the log does not have the position. Adds to ``deleted`` a partition whose log begins behind it."""
        position = self.position(partition)
        if position is None:
            return True  # not even the beginning or the end could be found: the caller says again where to start
        log = self._look_at_log(partition)
        if log is None:
            return False
        low, high = log
        if position < low:
            deleted.add(partition)
            return True
        looks = self._looks[partition] = self._looks.get(partition, 0) + 1
        if looks >= _LOOKS:
            return True
        if position <= high:
            self._remove([partition])
            self._add({partition: position})
            self._looks[partition] = looks
            _log.warning("%s: offset %d of %s was refused, but exists; again", self._client_id, position, partition)
        return False

    def _look_at_silence(self) -> None:
        """Nothing has arrived for long. Go on with a new client if there is something to read, or if no broker answers
        this one again and again: it cannot know whether they are away or its own connections are the cause. A few
        partitions are asked for each time."""
        waiting = sorted(self._starts.keys() - self._paused - self._invalid)
        self._next_in_doubt = first = self._next_in_doubt if self._next_in_doubt < len(waiting) else 0
        until_s = time.monotonic() + _SILENCE_LOOKS_S
        doubt, reason = None, ""
        is_answered = not waiting
        for partition in waiting[first : first + _PARTITIONS_LOOKED_AT]:
            log = self._look_at_log(partition, _SILENCE_LOOK_TIMEOUT_S)
            if log is not None:
                is_answered = True
                position = self._position_in(partition, log)
                if position is not None and position < log[1]:
                    doubt, reason = Doubt.GOES_ON, f"{partition} goes on from {position} to {log[1]}"
                    break  # the next look begins with this one
            self._next_in_doubt += 1
            if time.monotonic() >= until_s:
                break
        if not is_answered:
            doubt, reason = Doubt.UNANSWERED, f"no broker says where {waiting[first]} ends"
        if self._silence.looked(doubt):
            self._renew(f"nothing has arrived for {self._silence.lasts_s:.0f} s, but {reason}")

    def _look_at_stalls(self) -> None:
        """Others deliver. Put partitions in again that have not for long, although their logs go on; go on with a new
        client when that has not helped. Only a few are asked for each time, and none after one that nobody knows."""
        waiting = self._starts.keys() - self._paused - self._invalid
        positions = {partition: self.position(partition) for partition in waiting}
        for partition in self._stalls.suspects(positions):
            log = self._look_at_log(partition)
            position = None if log is None else self._position_in(partition, log)
            if log is None or position is None or position >= log[1]:
                self._stalls.answered(partition)
                if log is None:
                    return
                continue
            remedy = self._stalls.goes_on(partition, positions[partition])
            reason = f"{partition} goes on from {position} to {log[1]}, and nothing of it has arrived for long"
            if remedy is Remedy.NEW_CLIENT:
                self._renew(reason)
                return
            if remedy is Remedy.PUT_IN_AGAIN:
                _log.warning("%s: %s, but of others; reading it again from there", self._client_id, reason)
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
        self._silence.tried()
        try:
            self._open()
        except ConfigError as refused:  # these settings were taken before: there is no room for its threads or files
            _log.warning("%s: %s, and no new client can be made: %s", self._client_id, reason, refused)
            return
        _log.warning("%s: %s; reading on with a new client", self._client_id, reason)
        self._kept_out.clear()
        self._ends.clear()
        self._looks.clear()
        self._known_topics.clear()
        self._learn_topics({partition.topic for partition in positions})
        self._add(positions)
        # It may never end: nobody waits for it.
        threading.Thread(target=_give_up, args=(silent,), name=f"{self._client_id}-given-up", daemon=True).start()

    def _look_at_log(self, partition: TopicPartition, timeout_s: float = _LOOK_TIMEOUT_S) -> tuple[int, int] | None:
        """First offset and end of a partition; None when no broker says."""
        try:
            native = confluent_kafka.TopicPartition(*partition)
            low, high = self._watermarks(native, timeout=timeout_s) or (-1, -1)
        except KafkaException:
            return None
        return (low, high) if 0 <= low <= high else None

    # -- where it stands ----------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Offset of the next record to be delivered; None before the first answer when it started at BEGINNING/END.

        It also passes what is never delivered at the end of a partition.
        """
        start = self._starts.get(partition)
        if start is None:
            return None
        reached = max(self._delivered(partition), self._ends.get(partition, -1))
        position = reached if reached >= 0 else start
        return position if position >= 0 else None

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between position and end as the last fetch reported it; None when no fetch has told yet."""
        end_seen = self._ends.get(partition, -1)
        reached = max(self._delivered(partition), end_seen)
        if partition not in self._starts or reached < 0:
            return None  # the library keeps the end offset of an earlier assignment: it may be stale
        if self._reads_committed and end_seen == reached:
            return 0  # what follows belongs to an open transaction
        native = confluent_kafka.TopicPartition(*partition)
        _, end = self._watermarks(native, cached=True) or (-1, -1)
        return end - reached if end >= reached else None  # an end before our position is out of date

    def _delivered(self, partition: TopicPartition) -> int:
        """Offset after the last delivered record; negative when none was since the assignment."""
        offset: int = self._consumer.position([confluent_kafka.TopicPartition(*partition)])[0].offset
        return offset

    def close(self) -> None:
        """Stop reading. It takes no part in a group, so nobody need be told."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._consumer.close()


def _give_up(client: Consumer) -> None:
    with contextlib.suppress(Exception):
        client.close()


def _native(partitions: Iterable[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(topic, number) for topic, number in partitions]
