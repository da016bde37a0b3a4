"""Kinds of windows, as they are given to ``windowed_by``. All times in ms; sizes are given as ms or ``timedelta``.

A window is *closed*, and takes no more records, when the stream time of its operator has passed its end by the grace
period. Answers to Kafka Streams' ``TimeWindows``, ``SlidingWindows`` and ``SessionWindows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streams_py.errors import TopologyError
from streams_py.topology.declare.caller import located
from streams_py.topology.declare.durations import Duration, duration_ms

__all__ = ["EmitStrategy", "JoinWindows", "SessionWindows", "SlidingWindows", "TimeWindows", "UnlimitedWindows"]


_MAX_MS = 2**63 - 1


class EmitStrategy(Enum):
    """When results of a windowed aggregation are sent on (KIP-825)."""

    ON_WINDOW_UPDATE = "on window update"
    """With every record, or, with a record cache, the latest result at every commit."""
    ON_WINDOW_CLOSE = "on window close"
    """Once, when the window is closed."""


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of a fixed size, ``[start, start + size)``, aligned to the epoch.

    One starts every ``advance``: tumbling windows when that is the size, else hopping windows, which overlap.
    """

    size_ms: int
    grace_ms: int
    advance_ms: int

    @classmethod
    @located
    def of(cls, size: Duration, *, grace: Duration = 0, advance: Duration | None = None) -> TimeWindows:
        """Tumbling windows, or hopping ones that advance by less than their size. Durations are a ``timedelta`` or
        milliseconds; TopologyError for bad ones."""
        size_ms = duration_ms(size, "size of TimeWindows", least_ms=1)
        grace_ms = duration_ms(grace, "grace of TimeWindows")
        advance_ms = size_ms if advance is None else duration_ms(advance, "advance of TimeWindows", least_ms=1)
        if advance_ms > size_ms:
            raise TopologyError(
                f"advance of TimeWindows is {advance_ms} ms, more than the size of {size_ms} ms: records in between "
                "would be in no window"
            )
        return cls(size_ms, grace_ms, advance_ms)

    @property
    def span_ms(self) -> int:
        """From the start to the end of a window."""
        return self.size_ms

    @property
    def retention_ms(self) -> int:
        """Retention of the store in Kafka Streams, from the start of a window. The changelog topic is set up for it."""
        return self.size_ms + self.grace_ms

    @property
    def kept_ms(self) -> int:
        """For how long the operator reads windows, counted from their start."""
        return self.retention_ms

    def starts_of(self, timestamp_ms: int) -> range:
        """Starts of the windows that contain a timestamp, ascending."""
        advance = self.advance_ms
        first = max(0, timestamp_ms - self.size_ms + advance) // advance * advance
        return range(first, timestamp_ms + 1, advance)


@dataclass(frozen=True, slots=True)
class UnlimitedWindows(TimeWindows):
    """One window of everything from ``start_ms`` on; it is never closed, and its store never forgets it."""

    start_ms: int = 0

    @classmethod
    @located
    def of(  # type: ignore[override]  # there is nothing else to say about it
        cls, *, start: Duration = 0
    ) -> UnlimitedWindows:
        """The window that begins at ``start`` (ms since the epoch); records before it are in no window."""
        start_ms = duration_ms(start, "start of UnlimitedWindows")
        return cls(_MAX_MS - start_ms, 0, _MAX_MS - start_ms, start_ms)

    @property
    def retention_ms(self) -> int:
        """Longer than anything lasts."""
        return _MAX_MS

    def starts_of(self, timestamp_ms: int) -> range:
        """The start, if the timestamp is not before it."""
        return range(self.start_ms, self.start_ms + (timestamp_ms >= self.start_ms))


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """A window ``[t, t + difference]`` for each distinct set of records at most ``difference`` apart (KIP-450)."""

    difference_ms: int
    grace_ms: int

    @classmethod
    @located
    def of(cls, difference: Duration, *, grace: Duration = 0) -> SlidingWindows:
        """Windows over records at most ``difference`` apart. Durations are a ``timedelta`` or milliseconds;
        TopologyError for bad ones."""
        return cls(
            duration_ms(difference, "difference of SlidingWindows"), duration_ms(grace, "grace of SlidingWindows")
        )

    @property
    def span_ms(self) -> int:
        """From the start to the end of a window."""
        return self.difference_ms

    @property
    def retention_ms(self) -> int:
        """Retention of the store in Kafka Streams, from the start of a window. The changelog topic is set up for it."""
        return 2 * self.difference_ms + self.grace_ms

    @property
    def kept_ms(self) -> int:
        """For how long the operator reads windows, counted from their start.

        The oldest open window ends ``grace`` before stream time. It may begin right after a record, which is found by
        the window that ends with that record: the start is two differences and a millisecond before the end of the
        open one. A window is expired as soon as it is this old.
        """
        return 2 * self.difference_ms + self.grace_ms + 2


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Sessions: records of one key that follow each other within ``gap``; both ends are records' timestamps."""

    gap_ms: int
    grace_ms: int

    @classmethod
    @located
    def of(cls, gap: Duration, *, grace: Duration = 0) -> SessionWindows:
        """Sessions that end after ``gap`` of inactivity. Durations are a ``timedelta`` or milliseconds; TopologyError
        for bad ones."""
        return cls(duration_ms(gap, "gap of SessionWindows"), duration_ms(grace, "grace of SessionWindows"))

    @property
    def retention_ms(self) -> int:
        """Retention of the store in Kafka Streams, from the end of a session. The changelog topic is set up for it."""
        return self.gap_ms + self.grace_ms

    @property
    def kept_ms(self) -> int:
        """For how long the operator reads sessions, counted from their end: a session whose end is exactly
        ``gap + grace`` old takes records, and it is expired as soon as it is this old."""
        return self.gap_ms + self.grace_ms + 1


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """Records of two streams belong together when the right one is at most ``before`` earlier and at most ``after``
    later than the left one. A negative one of the two moves the window past the record."""

    before_ms: int
    after_ms: int
    grace_ms: int

    @classmethod
    @located
    def of(
        cls, difference: Duration, *, grace: Duration = 0, before: Duration | None = None, after: Duration | None = None
    ) -> JoinWindows:
        """Records at most ``difference`` apart; ``before`` and ``after`` say it for one direction. Durations are a
        ``timedelta`` or milliseconds. TopologyError when nothing could ever be joined."""
        what = "of JoinWindows"
        difference_ms = duration_ms(difference, f"difference {what}")
        before_ms = difference_ms if before is None else duration_ms(before, f"before {what}", least_ms=-_MAX_MS)
        after_ms = difference_ms if after is None else duration_ms(after, f"after {what}", least_ms=-_MAX_MS)
        if before_ms + after_ms < 0:
            raise TopologyError(
                f"JoinWindows from {before_ms} ms before to {after_ms} ms after a record end before they start: "
                "before + after must not be negative"
            )
        return cls(before_ms, after_ms, duration_ms(grace, f"grace {what}"))

    @property
    def size_ms(self) -> int:
        """From the first to the last moment of a window."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """Retention of the stores in Kafka Streams. Their changelog topics are set up for it."""
        return self.size_ms + self.grace_ms

    @property
    def kept_ms(self) -> int:
        """For how long the operators look for records. A record that is not late looks for partners up to
        ``reach_ms`` before it, and a record is expired as soon as it is this old."""
        return 2 * self.reach_ms + self.grace_ms + 1

    @property
    def reach_ms(self) -> int:
        """The largest distance of two records that are joined."""
        return max(self.before_ms, self.after_ms, 0)

    @property
    def contains_itself(self) -> bool:
        """Whether records with equal timestamps are joined."""
        return self.before_ms >= 0 and self.after_ms >= 0

    def open_ms(self, *, is_left: bool) -> int:
        """How long after a record of one side its window takes records, by stream time.

        The window of a record ends with the last timestamp that a partner may have, but not before the record itself.
        """
        return max(self.after_ms if is_left else self.before_ms, 0) + self.grace_ms
