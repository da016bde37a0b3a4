"""One changelog that the state updater replays, with the progress of the replay."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, TimeoutExceededError
from streams_py.ports import BEGINNING, ChangelogPart, RawRecord, SortedPart
from streams_py.runtime.restore.ends import ChangelogEnd
from streams_py.runtime.restore.restoring_stores import RestoringStores
from streams_py.system.outages import level_of_waiting

_log = logging.getLogger(__name__)

ANOTHER_TOPIC = "is another topic than that of"
"""Result of :meth:`ChangelogInWork.take_end` for a changelog that was deleted and created again."""
_REPEATS = 5
_REPEAT_MS = 1_000
"""Number of identical end offsets below a task's position, and their duration in ms, before the end is accepted."""


@dataclass(slots=True)
class LentPart:
    """A part of a changelog that another process was asked to read."""

    requested: ChangelogPart
    position: int
    sorted: SortedPart | None = None  # set when it is done; without the files that were already added

    @property
    def read(self) -> int:
        """Number of offsets that the other process has read."""
        return (self.requested.end if self.sorted else self.position) - self.requested.start

    def drop(self) -> None:
        """Drop the part because it is no longer needed. Also removes the files of an incomplete part."""
        with contextlib.suppress(OSError):  # the folder is gone
            for file in os.listdir(self.requested.folder):
                if file.startswith(f"{self.requested.name}-"):
                    os.remove(os.path.join(self.requested.folder, file))


@dataclass(slots=True)
class ChangelogInWork:
    """A changelog that is being replayed, and its progress."""

    partition: TopicPartition
    task: RestoringStores
    position: int | None = None  # next offset; None until the start is known
    end: int | None = None  # active task: end of the restoration; standby of a source changelog: limit
    total: int = 0
    is_identified: bool = False  # whether its topic is known to be the topic of the position
    registered: bool = False  # part of the restore consumer's assignment
    suspect_ends: int = 0  # number of answers with an end below the position
    suspect_since_ms: int = 0
    unknown_since_ms: int | None = None  # since when its end cannot be determined
    known_end: int = 0  # standby: the end last passed to its listener
    ended: bool = False  # whether its listener was called for the end
    lent: list[LentPart] = field(default_factory=list)  # parts that another process reads, at the end of the changelog

    @property
    def expires(self) -> bool:
        """Whether the topic's retention may delete the beginning of the changelog."""
        return self.task.expires(self.partition)

    @property
    def needs_end(self) -> bool:
        """Whether nothing may be read before the end is known, because the end determines what to read."""
        return self.end is None and (self.task.is_active or self.partition in self.task.source_changelogs)

    @property
    def is_unknown(self) -> bool:
        """Whether the cluster must be asked about the changelog before it may be read."""
        return not self.is_identified or self.needs_end

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.position is not None and self.position >= self.end

    @property
    def stop(self) -> int:
        """Offset at which reading stops here, because another process reads the rest. The end is known."""
        return self.lent[0].requested.start if self.lent else self.end or 0

    @property
    def is_read(self) -> bool:
        """Whether everything that this process must read is read."""
        return self.end is not None and self.position is not None and self.position >= self.stop

    @property
    def left_here(self) -> int:
        """Number of offsets still to be read here, once reading has begun."""
        return 0 if self.position is None or self.position < 0 else max(0, self.stop - self.position)

    @property
    def next_part(self) -> SortedPart | None:
        """The next part that another process has read, once everything before it is restored."""
        return self.lent[0].sorted if self.lent and self.is_read else None

    def take_in(self, read: SortedPart) -> bool:
        """Add ``read``, which is :attr:`next_part`. Return True once all of it is added.

        It adds one file per call, because the disk may have to catch up after each file.
        """
        if len(read.files) > 1:
            self.task.take_in(self.partition, SortedPart(read.files[:1], None, 0, 0))
            self.lent[0].sorted = read._replace(files=read.files[1:])
            return False
        self.task.take_in(self.partition, read)
        self.position = self.lent.pop(0).requested.end
        self.total += read.records
        return True

    @property
    def remaining_records(self) -> int:
        """Number of records that an active task still has to replay, if known."""
        if self.end is None or not self.task.is_active:
            return 0
        elsewhere = sum(part.read for part in self.lent)
        return max(0, self.end - max(0, self.position or 0) - elsewhere)

    def begin(self) -> None:
        """Determine the start position."""
        self.position = self.task.restore_position(self.partition)
        if self.end == 0 and self.position == BEGINNING:
            self.position = 0

    def reach(self, position: int | None) -> None:
        """Use the consumer's position if it is after the last replayed record."""
        if position is None or position <= (self.position or 0):
            return
        self.position = position if self.end is None else max(self.position or 0, min(position, self.stop))

    def note_position(self) -> None:
        """Report the position to the task."""
        if self.position is not None and self.position >= 0:
            self.task.note_position(self.partition, self.position)

    def cut(self, records: Sequence[RawRecord]) -> tuple[Sequence[RawRecord], int]:
        """Return those of the records that must be replayed, and the position after them.

        Records after :attr:`stop` are read again later, so the changelog is no longer registered.
        """
        end = records[-1].offset() + 1
        if self.end is None or end <= self.stop:
            return records, end
        self.registered = False
        return [record for record in records if record.offset() < self.stop], self.stop

    def replay(self, records: Sequence[RawRecord], end: int) -> Exception | None:
        """Apply records, after which the position is ``end``. Return the error if they could not be applied.

        BrokerUnavailableError: a serde needs an unavailable service; the records will be read again.
        """
        try:
            if records:
                self.task.restore(self.partition, records)
        except Exception as error:
            self.registered = self.registered and not isinstance(error, BrokerUnavailableError)
            return error
        self.position = end
        self.total += len(records)
        return None

    def unanswered(self, reason: str, now_ms: int, timeout_ms: int) -> TimeoutExceededError | None:
        """Note that required facts about the changelog are unknown.

        Return an error once that has lasted too long for the task. Standby tasks wait without limit.
        """
        if self.unknown_since_ms is None:
            self.unknown_since_ms = now_ms
            what = "its end" if self.needs_end else "its topic"
            _log.log(
                level_of_waiting(),
                "task %s waits for changelog %s: %s is not known: %s",
                self.task.id,
                self.partition,
                what,
                reason,
            )
        silent_ms = now_ms - self.unknown_since_ms
        if silent_ms <= timeout_ms or not self.needs_end:
            return None
        return TimeoutExceededError(
            f"task {self.task.id} cannot be restored: the end of changelog {self.partition} was not "
            f"known for {silent_ms} ms (task.timeout.ms is {timeout_ms}): {reason}",
            task_id=self.task.id,
        )

    def take_end(self, found: ChangelogEnd, now_ms: int) -> str | None:
        """Use the cluster's answer. Return how it contradicts the task's state, if the answer is to be accepted."""
        if not self.task.is_of(self.partition, found.topic_id):
            return ANOTHER_TOPIC
        self.is_identified = True
        if found.end is None or (self.end is not None and self.task.is_active):
            return None
        at = self.task.restore_position(self.partition) if self.position is None else self.position
        if found.begins > max(at, 0):
            self._log_lost_beginning(at, found.begins)
        if found.end == 0 and self.task.is_active and self.partition not in self.task.source_changelogs:
            self.task.note_never_written(self.partition)
        if self.is_end_suspect(found.limit, at, now_ms):
            return None
        if found.end < at:
            return f"ends at {found.end}, before"
        self.end = found.limit
        if found.committed is not None:
            self.task.note_limit(self.partition, found.committed)
        return None

    def overtaken(self) -> bool:
        """Handle a log that now begins after the position.

        Continue at the beginning of the log. Return False if nothing was replayed yet: then the store starts over and
        contains exactly what the log has. A restoration that always started over might never end, because retention
        could overtake it each time.
        """
        if not self.total:
            return False
        log = _log.info if self.expires else _log.error
        log(
            "task %s: records of changelog %s were deleted while they were replayed, from offset %d on: continuing at "
            "the beginning of the log%s",
            self.task.id,
            self.partition,
            self.position or 0,
            "" if self.expires else f". Store {self.task.store_of(self.partition)} lacks their contents",
        )
        self.position, self.registered = BEGINNING, False
        return True

    def _log_lost_beginning(self, position: int, begins: int) -> None:
        _log.error(
            "task %s: changelog %s begins at offset %d, but store %s needs it from offset %d: records were deleted, "
            "which compaction never does. The store lacks every key that was last written in them. Check that the "
            "topic has cleanup.policy=compact, and reset the application (streams-py reset) or have these keys written "
            "again",
            self.task.id,
            self.partition,
            begins,
            self.task.store_of(self.partition),
            max(position, 0),
        )

    def is_end_suspect(self, end: int, position: int, now_ms: int) -> bool:
        """Whether an end below the position of the task's state was not repeated often enough to be accepted."""
        if end >= position:
            self.suspect_ends = 0
            return False
        if not self.suspect_ends:
            self.suspect_since_ms = now_ms
            _log.warning(
                "the cluster says that changelog %s ends at %d, but the state of task %s is at %d; requesting it again",
                self.partition,
                end,
                self.task.id,
                position,
            )
        self.suspect_ends += 1
        return self.suspect_ends <= _REPEATS or now_ms - self.suspect_since_ms < _REPEAT_MS
