"""Large restorations, shared with another process: it reads the far half of what a changelog has left, while this one
goes on with the near half; when it has done that, half of what is left then, and so on, so that both end together.

What it has read are sorted files. They are taken in when everything before them is restored, and in the order of their
offsets, so the position of a store still says what it contains; after a crash in between, this process reads again what
it does not know to have. Whatever goes wrong there costs time only: this process reads the part itself.
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

__all__ = ["Sharing"]

_log = logging.getLogger(__name__)

_WORTH_IT: Final = 400_000
"""Records that are left, about, from which another process is started: it needs the time of 100,000 to start."""
_PART_MIN: Final = 50_000
"""Records of the smallest part."""
_SILENCE_MS: Final = 10_000
"""So long this process waits for a part that does not go on."""
_PAUSE_MS: Final = 60_000
"""No other process is started so soon after one that was of no use."""


class Sharing:
    """``start`` makes another process, or says None when there can be none now. One thread at a time uses it."""

    def __init__(self, start: Callable[[], ChangelogSorter | None], clock: Clock) -> None:
        self._start = start
        self._clock = clock
        self._numbers = itertools.count(1)
        self._sorter: ChangelogSorter | None = None
        self._now: tuple[ChangelogSorter, ChangelogInWork, LentPart] | None = None
        """What the other process reads."""
        self._moved: tuple[int | None, int] = (None, 0)
        """How far it was, and since when."""
        self._next_try_ms = clock.monotonic_ms()

    def turn(self, changelogs: Collection[ChangelogInWork]) -> None:
        """See how far the other process is, and give it something to do."""
        if self._now is not None:
            self._look(*self._now)
        if self._now is None:
            self._lend([(one, place) for one in changelogs if (place := _place_of(one)) is not None])

    def read(self, changelogs: Collection[ChangelogInWork]) -> list[tuple[ChangelogInWork, SortedPart]]:
        """What is to be taken in now, one part of each changelog."""
        return [
            (changelog, part)
            for changelog in changelogs
            if (part := changelog.next_part) is not None and not changelog.task.awaits_disk
        ]

    def forget(self, changelog: ChangelogInWork) -> None:
        """It is not restored here any more."""
        if self._now is not None and self._now[1] is changelog:
            self.close()
        for part in changelog.lent:
            part.drop()
        changelog.lent.clear()

    def close(self) -> None:
        """End the other process."""
        self._now = None
        if self._sorter is not None:
            sorter, self._sorter = self._sorter, None
            sorter.close()

    def _look(self, sorter: ChangelogSorter, changelog: ChangelogInWork, part: LentPart) -> None:
        now_ms = self._clock.monotonic_ms()
        part.position = sorter.position or part.asked.start
        if part.position != self._moved[0] or not changelog.is_read:
            self._moved = part.position, now_ms
        try:
            part.sorted = sorter.outcome()
            if part.sorted is not None:
                self._now = None
            elif now_ms - self._moved[1] >= _SILENCE_MS:
                raise StreamsError(f"it has not got beyond {part.position} for {_SILENCE_MS / 1000:.0f} s")
        except StreamsError as error:
            _log.warning(
                "offsets %d to %d of changelog %s are read here, not by another process: %s",
                part.asked.start,
                part.asked.end,
                changelog.partition,
                error,
            )
            changelog.lent.remove(part)
            self._next_try_ms = now_ms + _PAUSE_MS
            self.close()
            part.drop()  # the disk may be full of it

    def _lend(self, candidates: Sequence[tuple[ChangelogInWork, tuple[str, bool]]]) -> None:
        """``candidates``: with the place for their files, and whether their values are stamped."""
        if not candidates:
            self.close()
            return
        if self._sorter is None and sum(changelog.left_here for changelog, _ in candidates) >= _WORTH_IT:
            self._try_to_start()
        if self._sorter is None:
            return
        changelog, (folder, stamped) = max(candidates, key=lambda one: one[0].left_here)
        start, name = changelog.stop - changelog.left_here // 2, f"{os.getpid()}-{next(self._numbers)}"
        part = LentPart(ChangelogPart(changelog.partition, start, changelog.stop, folder, name, stamped), start)
        self._sorter.begin(part.asked)
        changelog.lent.insert(0, part)
        self._now, self._moved = (self._sorter, changelog, part), (None, 0)

    def _try_to_start(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_try_ms:
            self._sorter = self._start()
            if self._sorter is None:
                self._next_try_ms = now_ms + _PAUSE_MS


def _place_of(changelog: ChangelogInWork) -> tuple[str, bool] | None:
    """Where files of a changelog go that is large enough to be lent; None for others."""
    if not changelog.task.is_active or changelog.end is None or changelog.left_here < 2 * _PART_MIN:
        return None
    return changelog.task.sorted_files(changelog.partition)
