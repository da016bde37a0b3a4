"""A periodic log line that shows that a stream thread is alive and what it does.

As in Kafka Streams: ``log.summary.interval.ms``; 0 or less turns it off.
"""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class Summary:
    """Counts the work of one stream thread since its last log line."""

    def __init__(self, name: str, *, interval_ms: int, now_ms: int) -> None:
        self._name = name
        self._interval_ms = interval_ms
        self._last_ms = now_ms
        self._processed = self._punctuated = self._committed = 0

    def add(self, *, processed: int, punctuated: int, committed: int) -> None:
        """Add processed records, called punctuators and committed tasks (negative: no commit)."""
        self._processed += processed
        self._punctuated += punctuated
        self._committed += max(committed, 0)

    def log_if_due(self, now_ms: int) -> None:
        """Write the line if the interval has elapsed."""
        if self._interval_ms <= 0 or now_ms - self._last_ms <= self._interval_ms:
            return
        _log.info(
            "%s: processed %d records, ran %d punctuators, and committed %d tasks in the last %d s",
            self._name, self._processed, self._punctuated, self._committed, (now_ms - self._last_ms) // 1000,
        )  # fmt: skip
        self._last_ms = now_ms
        self._processed = self._punctuated = self._committed = 0
