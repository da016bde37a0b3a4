"""Shares large restorations with another process, which reads the later half of a changelog's remaining offsets.

This process continues with the first half. When the other process is done, it gets half of the then remaining offsets,
and so on, so that both processes finish at the same time.

The other process writes sorted files. They are added once everything before them is restored, in offset order. So the
position of a store still describes its content. After a crash, this process reads everything again that its position
does not cover. An error in the other process only costs time: this process reads the part itself.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Collection, Sequence
from typing import Final

from streams_py.errors import StreamsError
from streams_py.ports import ChangelogPart, ChangelogSorter, Clock, SortedPart
from streams_py.runtime.restore.changelog import ChangelogInWork, LentPart

_log = logging.getLogger(__name__)

_SHARED_MIN: Final = 400_000
"""Approximate number of remaining records that justifies another process, whose start costs 100,000 records."""
_PART_MIN: Final = 50_000
"""Minimum size of a part, in records."""
_SILENCE_MS: Final = 10_000
"""How long this process waits for a part without progress, in ms."""
_PAUSE_MS: Final = 60_000
"""Pause before another process is started after one that failed, in ms."""


class ParallelRestore:
    """Uses another process for large restorations. For one thread at a time.

    Args:
        start: Starts the other process; returns None if that is not possible now.
    """

    def __init__(self, start: Callable[[], ChangelogSorter | None], clock: Clock) -> None:
        self._start = start
        self._clock = clock
        self._numbers = itertools.count(1)
        self._sorter: ChangelogSorter | None = None
        self._now: tuple[ChangelogSorter, ChangelogInWork, LentPart] | None = None
        """The part that the other process is reading."""
        self._moved: tuple[int | None, int] = (None, 0)
        """Position of the other process, and the time at which it last moved, in ms."""
        self._next_try_ms = clock.monotonic_ms()

    def turn(self, changelogs: Collection[ChangelogInWork]) -> None:
        """Check the progress of the other process, and assign it a part if it is idle."""
        if self._now is not None:
            self._check(*self._now)
        if self._now is None:
            self._lend([(one, place) for one in changelogs if (place := _place_of(one)) is not None])

    def read(self, changelogs: Collection[ChangelogInWork]) -> list[tuple[ChangelogInWork, SortedPart]]:
        """Return the parts that can be added now, one per changelog."""
        return [
            (changelog, part)
            for changelog in changelogs
            if (part := changelog.next_part) is not None and not changelog.task.awaits_disk
        ]

    def forget(self, changelog: ChangelogInWork) -> None:
        """Drop the parts of a changelog that is no longer restored here."""
        if self._now is not None and self._now[1] is changelog:
            self.close()
        for part in changelog.lent:
            part.drop()
        changelog.lent.clear()

    def close(self) -> None:
        """Stop the other process."""
        self._now = None
        if self._sorter is not None:
            sorter, self._sorter = self._sorter, None
            sorter.close()

    def _check(self, sorter: ChangelogSorter, changelog: ChangelogInWork, part: LentPart) -> None:
        now_ms = self._clock.monotonic_ms()
        part.position = sorter.position or part.requested.start
        if part.position != self._moved[0] or not changelog.is_read:
            self._moved = part.position, now_ms
        try:
            part.sorted = sorter.outcome()
            if part.sorted is not None:
                self._now = None
            elif now_ms - self._moved[1] >= _SILENCE_MS:
                raise StreamsError(f"no progress beyond {part.position} for {_SILENCE_MS / 1000:.0f} s")
        except StreamsError as error:
            _log.warning(
                "offsets %d to %d of changelog %s are read by this process, because the sorting process failed: %s",
                part.requested.start,
                part.requested.end,
                changelog.partition,
                error,
            )
            changelog.lent.remove(part)
            self._next_try_ms = now_ms + _PAUSE_MS
            self.close()
            part.drop()  # its files may have filled the disk

    def _lend(self, candidates: Sequence[tuple[ChangelogInWork, tuple[str, bool]]]) -> None:
        """Assign a part. ``candidates`` have the directory for files, and whether values are stamped."""
        if not candidates:
            self.close()
            return
        if self._sorter is None and sum(changelog.left_here for changelog, _ in candidates) >= _SHARED_MIN:
            self._try_to_start()
        if self._sorter is None:
            return
        changelog, (folder, stamped) = max(candidates, key=lambda one: one[0].left_here)
        start, name = changelog.stop - changelog.left_here // 2, f"{os.getpid()}-{next(self._numbers)}"
        part = LentPart(ChangelogPart(changelog.partition, start, changelog.stop, folder, name, stamped), start)
        self._sorter.begin(part.requested)
        changelog.lent.insert(0, part)
        self._now, self._moved = (self._sorter, changelog, part), (None, 0)

    def _try_to_start(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_try_ms:
            self._sorter = self._start()
            if self._sorter is None:
                self._next_try_ms = now_ms + _PAUSE_MS


def _place_of(changelog: ChangelogInWork) -> tuple[str, bool] | None:
    """Return the directory for files of a changelog that is large enough to be shared; None otherwise."""
    if not changelog.task.is_active or changelog.end is None or changelog.left_here < 2 * _PART_MIN:
        return None
    return changelog.task.sorted_files(changelog.partition)
