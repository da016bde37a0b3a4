"""Kinds of windows for ``windowed_by``. All times are in ms; sizes are ms or a ``timedelta``.

A window is *closed*, and accepts no more records, when the stream time of its operator exceeds its end by the grace
period. Source: Kafka Streams' ``TimeWindows``, ``SlidingWindows`` and ``SessionWindows``.
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
    """When results of a windowed aggregation are sent (KIP-825)."""

    ON_WINDOW_UPDATE = "on window update"
    """After every record or, with a record cache, the latest result at every commit."""
    ON_WINDOW_CLOSE = "on window close"
    """Once, when the window is closed."""


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of a fixed size, ``[start, start + size)``, aligned to the epoch.

    A window starts every ``advance``. If that equals the size, they are tumbling windows, otherwise overlapping hopping
    windows.
    """

    size_ms: int
    """Size of a window, in ms."""
    grace_ms: int
    """Time after the end of a window in which it accepts late records, in ms of stream time."""
    advance_ms: int
    """Time between the starts of two windows, in ms."""

    @classmethod
    @located
    def of(cls, size: Duration, *, grace: Duration = 0, advance: Duration | None = None) -> TimeWindows:
        """Return tumbling windows, or hopping windows with an ``advance`` smaller than their size.

        Durations are a ``timedelta`` or milliseconds. Raises TopologyError for invalid ones.
        """
        size_ms = duration_ms(size, "size of TimeWindows", least_ms=1)
        grace_ms = duration_ms(grace, "grace of TimeWindows")
        advance_ms = size_ms if advance is None else duration_ms(advance, "advance of TimeWindows", least_ms=1)
        if advance_ms > size_ms:
            raise TopologyError(
                f"advance of TimeWindows is {advance_ms} ms, more than the size of {size_ms} ms: records in between "
                "would not be in any window"
            )
        return cls(size_ms, grace_ms, advance_ms)

    @property
    def span_ms(self) -> int:
        """Time from the start to the end of a window, in ms."""
        return self.size_ms

    @property
    def retention_ms(self) -> int:
        """Retention of the store in Kafka Streams, from a window's start, for the changelog topic."""
        return self.size_ms + self.grace_ms

    @property
    def kept_ms(self) -> int:
        """Time for which the operator reads windows, counted from their start, in ms."""
        return self.retention_ms

    def starts_of(self, timestamp_ms: int) -> range:
        """Return the starts of the windows that contain a timestamp, ascending."""
        advance = self.advance_ms
        first = max(0, timestamp_ms - self.size_ms + advance) // advance * advance
        return range(first, timestamp_ms + 1, advance)


@dataclass(frozen=True, slots=True)
class UnlimitedWindows(TimeWindows):
    """One window of all records from ``start_ms`` on. It never closes, and its store never expires it."""

    start_ms: int = 0
    """Start of the window, in ms."""

    @classmethod
    @located
    def of(  # type: ignore[override]  # it has no other options
        cls, *, start: Duration = 0
    ) -> UnlimitedWindows:
        """Return the window that starts at ``start`` (ms since the epoch).

        Records before it are not in any window.
        """
        start_ms = duration_ms(start, "start of UnlimitedWindows")
        return cls(_MAX_MS - start_ms, 0, _MAX_MS - start_ms, start_ms)

    @property
    def retention_ms(self) -> int:
        """Unlimited retention."""
        return _MAX_MS

    def starts_of(self, timestamp_ms: int) -> range:
        """Return the start if the timestamp is not before it."""
        return range(self.start_ms, self.start_ms + (timestamp_ms >= self.start_ms))


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """A window ``[t, t + difference]`` for each distinct set of records at most ``difference`` apart.

    See KIP-450.
    """

    difference_ms: int
    """Maximum time between two records of a window, in ms."""
    grace_ms: int
    """Time after the end of a window in which it accepts late records, in ms of stream time."""

    @classmethod
    @located
    def of(cls, difference: Duration, *, grace: Duration = 0) -> SlidingWindows:
        """Return windows of records that are at most ``difference`` apart.

        Durations are a ``timedelta`` or milliseconds. Raises TopologyError for invalid ones.
        """
        return cls(
            duration_ms(difference, "difference of SlidingWindows"), duration_ms(grace, "grace of SlidingWindows")
        )

    @property
    def span_ms(self) -> int:
        """Time from the start to the end of a window, in ms."""
        return self.difference_ms

    @property
    def retention_ms(self) -> int:
        """Retention of the store in Kafka Streams, from a window's start, for the changelog topic."""
        return 2 * self.difference_ms + self.grace_ms

    @property
    def kept_ms(self) -> int:
        """Time for which the operator reads windows, counted from their start, in ms.

        The oldest open window ends ``grace`` before stream time. It may start directly after a record. To find this
        record, the operator reads the window that ends with it. That window starts two differences and one millisecond
        before the end of the open window. A window is expired as soon as it has this age.
        """
        return 2 * self.difference_ms + self.grace_ms + 2


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Sessions of records of one key that follow each other within ``gap``.

    Both ends of a session are timestamps of records.
    """

    gap_ms: int
    """Maximum time between two consecutive records of a session, in ms."""
    grace_ms: int
    """Time after the end of a session in which it accepts late records, in ms of stream time."""

    @classmethod
    @located
    def of(cls, gap: Duration, *, grace: Duration = 0) -> SessionWindows:
        """Return sessions that end after ``gap`` of inactivity.

        Durations are a ``timedelta`` or milliseconds. Raises TopologyError for invalid ones.
        """
        return cls(duration_ms(gap, "gap of SessionWindows"), duration_ms(grace, "grace of SessionWindows"))

    @property
    def retention_ms(self) -> int:
        """Retention of the store in Kafka Streams, from a session's end, for the changelog topic."""
        return self.gap_ms + self.grace_ms

    @property
    def kept_ms(self) -> int:
        """Time for which the operator reads sessions, counted from their end, in ms.

        A session whose end is exactly ``gap + grace`` old accepts records, and a session is expired as soon as it has
        the age returned here.
        """
        return self.gap_ms + self.grace_ms + 1


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """The time difference of records of two streams that are joined.

    The right record is at most ``before`` earlier and at most ``after`` later than the left one. If one of the two is
    negative, the window does not contain the record's own time.
    """

    before_ms: int
    """Maximum time by which the right record is earlier, in ms."""
    after_ms: int
    """Maximum time by which the right record is later, in ms."""
    grace_ms: int
    """Time after the end of a window in which it accepts late records, in ms of stream time."""

    @classmethod
    @located
    def of(
        cls, difference: Duration, *, grace: Duration = 0, before: Duration | None = None, after: Duration | None = None
    ) -> JoinWindows:
        """Return windows of records at most ``difference`` apart.

        ``before`` and ``after`` replace it for one direction. Durations are a ``timedelta`` or milliseconds. Raises
        TopologyError if no records could ever be joined.
        """
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
        """Time from the first to the last moment of a window, in ms."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """Retention of the stores in Kafka Streams, for their changelog topics."""
        return self.size_ms + self.grace_ms

    @property
    def kept_ms(self) -> int:
        """Time for which the operators read records, in ms.

        A record that is not late can have partners up to ``reach_ms`` before it, and a record is expired as soon as it
        has this age.
        """
        return 2 * self.reach_ms + self.grace_ms + 1

    @property
    def reach_ms(self) -> int:
        """Maximum time difference of two joined records, in ms."""
        return max(self.before_ms, self.after_ms, 0)

    @property
    def contains_itself(self) -> bool:
        """Whether records with equal timestamps are joined."""
        return self.before_ms >= 0 and self.after_ms >= 0

    def open_ms(self, *, is_left: bool) -> int:
        """Return how long after a record of one side its window accepts records, by stream time.

        The window of a record ends at the last timestamp that a partner may have, but not before the record itself.
        """
        return max(self.after_ms if is_left else self.before_ms, 0) + self.grace_ms
