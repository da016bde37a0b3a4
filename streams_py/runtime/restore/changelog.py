"""One changelog that the state updater replays, and what the updater needs of the task that it belongs to."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, TimeoutExceededError
from streams_py.ports import BEGINNING, ChangelogPart, RawRecord, SortedPart
from streams_py.ports.outages import level_of_waiting
from streams_py.runtime.restore.ends import ChangelogEnd

__all__ = ["ANOTHER_TOPIC", "ChangelogInWork", "LentPart", "RestorableTask"]

_log = logging.getLogger(__name__)

ANOTHER_TOPIC = "is another topic than that of"
"""What :meth:`ChangelogInWork.take_end` returns for a changelog that was deleted and created again."""
_DOUBTS = 5
_DOUBT_MS = 1_000
"""An end below the position of a task's state is believed when it was given so often, for so long."""


class RestorableTask(Protocol):
    """What the updater needs of a task."""

    @property
    def id(self) -> TaskId: ...
    @property
    def is_active(self) -> bool: ...
    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]: ...
    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """Those changelogs that are source topics."""

    def expires(self, changelog: TopicPartition) -> bool:
        """Whether retention may delete the beginning of this changelog: its store expires, or others write the
        topic."""

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """False when the position in this changelog is one in another topic of that name."""

    def restore_position(self, changelog: TopicPartition) -> int:
        """Next offset to replay, or BEGINNING."""

    @property
    def input_partitions(self) -> frozenset[TopicPartition]: ...
    def note_never_written(self, changelog: TopicPartition) -> None:
        """This changelog ends at offset 0: its store starts empty."""

    def note_limit(self, changelog: TopicPartition, committed: int) -> None:
        """A source topic is read no further than to what the group has committed, and that was this."""

    def note_position(self, changelog: TopicPartition, position: int) -> None:
        """The store contains all records of this changelog below ``position``, which may be after markers and deleted
        records."""

    def restore(self, changelog: TopicPartition, records: Sequence[RawRecord]) -> None: ...
    @property
    def awaits_disk(self) -> bool:
        """True while the disk has to catch up before more is restored."""

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Where files for :meth:`take_in` go, and whether their values are stamped; None when the store takes none."""

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Everything before it is restored, and flushed. Without a last offset it is only the beginning of a part."""

    def store_of(self, changelog: TopicPartition) -> str: ...
    def flush_restored(self) -> bool:
        """Bring to the disk what was restored; to be asked again until it is True. Any thread may."""

    def end_loading(self) -> None:
        """All is restored: make it ready for whoever works with it, which may take a moment."""

    def checkpoint(self, *, enforce: bool) -> None: ...


@dataclass(slots=True)
class LentPart:
    """What another process was asked to read."""

    asked: ChangelogPart
    position: int
    sorted: SortedPart | None = None  # when it is done; without the files that were taken in already

    @property
    def read(self) -> int:
        """Offsets that it has behind it."""
        return (self.asked.end if self.sorted else self.position) - self.asked.start

    def drop(self) -> None:
        """Nobody wants it any more, and nobody makes files of it: those that were made of a half of it go, too."""
        with contextlib.suppress(OSError):  # the folder is gone
            for file in os.listdir(self.asked.folder):
                if file.startswith(f"{self.asked.name}-"):
                    os.remove(os.path.join(self.asked.folder, file))


@dataclass(slots=True)
class ChangelogInWork:
    """A changelog that is replayed, and how far it is."""

    partition: TopicPartition
    task: RestorableTask
    position: int | None = None  # next offset; None until the start is known
    end: int | None = None  # active: where it is done; standby of a source changelog: where it must stop
    total: int = 0
    is_identified: bool = False  # its topic is known to be that of the position
    registered: bool = False  # part of the restore consumer's assignment
    doubts: int = 0  # how often its end was below its position
    doubted_since_ms: int = 0
    silent_since_ms: int | None = None  # since when nobody can say where it ends
    known_end: int = 0  # a copy's: the end that its listener was told
    ended: bool = False  # its listener is told that it is done
    lent: list[LentPart] = field(default_factory=list)  # what another process reads: the last offsets before the end

    @property
    def expires(self) -> bool:
        """Whether retention may delete the beginning of the changelog."""
        return self.task.expires(self.partition)

    @property
    def needs_end(self) -> bool:
        """True when nothing may be read before the end is known: it says what to read, or where to stop."""
        return self.end is None and (self.task.is_active or self.partition in self.task.source_changelogs)

    @property
    def is_unknown(self) -> bool:
        """True when the cluster has to be asked about it before it may be read."""
        return not self.is_identified or self.needs_end

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.position is not None and self.position >= self.end

    @property
    def stop(self) -> int:
        """Where reading stops here: another process has what follows. Its end is known."""
        return self.lent[0].asked.start if self.lent else self.end or 0

    @property
    def is_read(self) -> bool:
        """As far as it is read here."""
        return self.end is not None and self.position is not None and self.position >= self.stop

    @property
    def left_here(self) -> int:
        """Offsets that are still to be read here, once reading has begun."""
        return 0 if self.position is None or self.position < 0 else max(0, self.stop - self.position)

    @property
    def next_part(self) -> SortedPart | None:
        """What another process has read, when everything before it is restored."""
        return self.lent[0].sorted if self.lent and self.is_read else None

    def take_in(self, read: SortedPart) -> bool:
        """Go on behind :attr:`next_part`, which this is; True when all of it is there. One file at a time: the disk may
        have to catch up with each."""
        if len(read.files) > 1:
            self.task.take_in(self.partition, SortedPart(read.files[:1], None, 0, 0))
            self.lent[0].sorted = read._replace(files=read.files[1:])
            return False
        self.task.take_in(self.partition, read)
        self.position = self.lent.pop(0).asked.end
        self.total += read.records
        return True

    @property
    def remaining_records(self) -> int:
        """Records that an active still has to replay, as far as known."""
        if self.end is None or not self.task.is_active:
            return 0
        elsewhere = sum(part.read for part in self.lent)
        return max(0, self.end - max(0, self.position or 0) - elsewhere)

    def begin(self) -> None:
        """Learn where to start."""
        self.position = self.task.restore_position(self.partition)
        if self.end == 0 and self.position == BEGINNING:
            self.position = 0

    def reach(self, position: int | None) -> None:
        """Take the position of the consumer, when it is after the last record that was replayed."""
        if position is None or position <= (self.position or 0):
            return
        self.position = position if self.end is None else max(self.position or 0, min(position, self.stop))

    def note_position(self) -> None:
        """Tell the task how far it has been read."""
        if self.position is not None and self.position >= 0:
            self.task.note_position(self.partition, self.position)

    def replay(self, records: Sequence[RawRecord], end: int) -> Exception | None:
        """Apply records, which bring the position to ``end``; the error that keeps them from being applied, if any.
        BrokerUnavailableError: a serde needs something that is away, and the records are read again."""
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
        """Nobody says what has to be known of it. An error when that has lasted for so long that its task fails; a copy
        waits."""
        if self.silent_since_ms is None:
            self.silent_since_ms = now_ms
            what = "its end" if self.needs_end else "its topic"
            _log.log(
                level_of_waiting(),
                "task %s waits for changelog %s: %s is not known: %s",
                self.task.id,
                self.partition,
                what,
                reason,
            )
        silent_ms = now_ms - self.silent_since_ms
        if silent_ms <= timeout_ms or not self.needs_end:
            return None
        return TimeoutExceededError(
            f"task {self.task.id} cannot be restored: the end of changelog {self.partition} was not "
            f"known for {silent_ms} ms (task.timeout.ms is {timeout_ms}): {reason}",
            task_id=self.task.id,
        )

    def take_end(self, found: ChangelogEnd, now_ms: int) -> str | None:
        """What the cluster says of it; how that contradicts the task's state, when it is to be believed and does."""
        if not self.task.is_of(self.partition, found.topic_id):
            return ANOTHER_TOPIC
        self.is_identified = True
        if found.end is None or (self.end is not None and self.task.is_active):
            return None
        at = self.task.restore_position(self.partition) if self.position is None else self.position
        if found.begins > max(at, 0):
            self._complain_of_lost_beginning(at, found.begins)
        if found.end == 0 and self.task.is_active and self.partition not in self.task.source_changelogs:
            self.task.note_never_written(self.partition)
        if self.doubts_end(found.limit, at, now_ms):
            return None
        if found.end < at:
            return f"ends at {found.end}, before"
        self.end = found.limit
        if found.committed is not None:
            self.task.note_limit(self.partition, found.committed)
        return None

    def overtaken(self) -> bool:
        """The log begins behind the position now. Continue at the beginning of the log, or return False when nothing
        was replayed yet: then the store starts over, and has exactly what the log has.

        A restoration that starts over whenever retention overtakes it may never end.
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
            "" if self.expires else f". Store {self.task.store_of(self.partition)} misses what they contained",
        )
        self.position, self.registered = BEGINNING, False
        return True

    def _complain_of_lost_beginning(self, position: int, begins: int) -> None:
        _log.error(
            "task %s: changelog %s begins at offset %d, but store %s needs it from offset %d: records were deleted, "
            "which compaction never does. The store misses every key that was last written in them. Check that the "
            "topic has cleanup.policy=compact, and reset the application (streams-py reset) or have these keys written "
            "again",
            self.task.id,
            self.partition,
            begins,
            self.task.store_of(self.partition),
            max(position, 0),
        )

    def doubts_end(self, end: int, position: int, now_ms: int) -> bool:
        """True while an end lies before the position of the task's state, and was not given often enough to be
        believed."""
        if end >= position:
            self.doubts = 0
            return False
        if not self.doubts:
            self.doubted_since_ms = now_ms
            _log.warning(
                "changelog %s is said to end at %d, but the state of task %s is at %d; asking again",
                self.partition,
                end,
                self.task.id,
                position,
            )
        self.doubts += 1
        return self.doubts <= _DOUBTS or now_ms - self.doubted_since_ms < _DOUBT_MS
