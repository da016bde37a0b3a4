"""Progress of restorations, for logs, metrics and displays."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streams_protocol.types import TaskId
from streams_py.ports import RawRecord

__all__ = ["ACTIVITIES", "RestoreMeter", "RestoreProgress"]

_log = logging.getLogger(__name__)

ACTIVITIES: Final = ("idle", "active-restore", "standby-update", "checkpoint")
"""Activities of a state updater. Pauses because of an unavailable broker count as idle."""

_LOG_INTERVAL_MS: Final = 10_000
_RATE_WINDOW_MS: Final = 5_000
_WEIGHED: Final = 16
"""One record out of this many is measured: the byte count is approximate, for display only."""


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """Progress of restoring active tasks. All fields are 0 if nothing is being restored.

    Attributes:
        records: Records restored since the start of the restoration.
        bytes: Approximate size of these records.
        remaining: Records still to be restored.
        rate: Records per second over the last seconds.
    """

    records: int = 0
    bytes: int = 0
    remaining: int = 0
    rate: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time left at this rate in seconds; None if it is not known."""
        if not self.remaining:
            return 0.0
        return self.remaining / self.rate if self.rate else None

    def __add__(self, other: RestoreProgress) -> RestoreProgress:
        return RestoreProgress(
            self.records + other.records,
            self.bytes + other.bytes,
            self.remaining + other.remaining,
            self.rate + other.rate,
        )

    def __str__(self) -> str:
        left = self.seconds_left
        time = "" if left is None else f", about {left:,.0f} s left"
        return (
            f"{self.records:,} records ({self.bytes / 1e6:,.1f} MB), {self.remaining:,} to go, "
            f"{self.rate:,.0f} records/s{time}"
        )


class RestoreMeter:
    """Counts restored records. All methods except :meth:`progress` are called on the updater's thread."""

    def __init__(self, name: str, remaining: Callable[[], Mapping[TaskId, int]]) -> None:
        self._name = name
        self._remaining = remaining
        self._began_ms: int | None = None
        self._next_log_ms = 0
        self._records = self._bytes = 0
        self._marks: deque[tuple[int, int]] = deque()  # (ms, records until then)
        self._records_total = self._calls = 0
        self._spent_ms = dict.fromkeys(ACTIVITIES, 0)
        self._spent_until_ms: int | None = None

    def count(self, records: Sequence[RawRecord], now_ms: int) -> None:
        """Count restored records."""
        weighed = records[::_WEIGHED]
        weight = sum(len(record.key() or b"") + len(record.value() or b"") for record in weighed)
        self.count_read(len(records), weight * len(records) // len(weighed), now_ms)

    def count_read(self, records: int, bytes: int, now_ms: int) -> None:
        """Count this many restored records and bytes."""
        if self._began_ms is None:
            self._began_ms, self._next_log_ms = now_ms, now_ms + _LOG_INTERVAL_MS
        self._records += records
        self._records_total += records
        self._calls += 1
        self._bytes += bytes
        self._marks.append((now_ms, self._records))
        while len(self._marks) > 2 and self._marks[1][0] <= now_ms - _RATE_WINDOW_MS:
            self._marks.popleft()
        if now_ms >= self._next_log_ms:
            self._next_log_ms = now_ms + _LOG_INTERVAL_MS
            _log.info("%s restores: %s", self._name, self.progress())

    def ended(self, now_ms: int) -> None:
        """End the restoration and log it."""
        if self._began_ms is None:
            return
        spent_ms = max(1, now_ms - self._began_ms)
        _log.info(
            "%s restored %s records (%.1f MB) in %.1f s, %s records/s",
            self._name,
            f"{self._records:,}",
            self._bytes / 1e6,
            spent_ms / 1000,
            f"{self._records * 1000 // spent_ms:,}",
        )
        self._began_ms = None
        self._records = self._bytes = 0
        self._marks = deque()

    def spent(self, activity: str, now_ms: int) -> None:
        """Add the time since the last call to one of :data:`ACTIVITIES`."""
        if self._spent_until_ms is not None:
            self._spent_ms[activity] += now_ms - self._spent_until_ms
        self._spent_until_ms = now_ms

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics of all restorations and activities since the thread started, under Kafka's names. Thread-safe."""
        spent_ms = dict(self._spent_ms)
        all_ms = max(1, sum(spent_ms.values()))
        return {
            "restore-records-total": self._records_total,
            "restore-records-rate": self.progress().rate,
            "restore-call-total": self._calls,
            "restore-call-rate": self._calls * 1000 / all_ms,
            **{f"{activity}-ratio": of_ms / all_ms for activity, of_ms in spent_ms.items()},
        }

    def progress(self) -> RestoreProgress:
        """Return the progress as of the last batch. Thread-safe."""
        marks = list(self._marks)
        rate = 0.0
        if len(marks) > 1:
            (from_ms, from_records), (to_ms, to_records) = marks[0], marks[-1]
            rate = (to_records - from_records) * 1000 / max(1, to_ms - from_ms)
        return RestoreProgress(self._records, self._bytes, sum(self._remaining().values()), rate)
