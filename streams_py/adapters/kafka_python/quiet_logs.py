"""Log lines about a broker that is away: clear, and few.

kafka-python logs every failed attempt to connect, once a second and more. While a broker is away that buries what
matters, so equal lines of the library's connection loggers pass at most once in a while. Our own warning says for how
long there has been no contact, at growing intervals.

It calls a topic that does not exist an error. A member subscribes to internal topics before the leader has created
them, so that is everyday life; a source topic that is missing is reported by the leader, by name. And it warns of a
blocked event loop when its thread was not let run for a tenth of a second: so it is wherever Python computes.
"""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["Outage", "limit_library_logs"]

_log = logging.getLogger("streams_py.adapters.kafka_python.membership")

_LIBRARY_LOGGERS: Final = (
    "kafka.net.manager",
    "kafka.net.connection",
    "kafka.net.inet",
    "kafka.net.selector",
    "kafka.net.transport",
    "kafka.protocol.parser",
    "kafka.cluster",
    "kafka.coordinator",
    "kafka.coordinator.consumer",
    "kafka.coordinator.heartbeat",
)
_LIBRARY: Final = "kafka"
_EVERYDAY: Final = frozenset({"Topic %s not found in cluster metadata"})
_SLOW: Final = "blocking the event loop"
_REPEAT_S: Final = 30.0
_TEMPLATES_MAX: Final = 1_000
"""A library has a few hundred log lines; the limit only keeps a surprise from growing without end."""


class _RepeatFilter(logging.Filter):
    """Lets a warning or error of one template pass once in 30 s, an everyday one never. Lower levels are left alone."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        if record.msg in _EVERYDAY or _SLOW in str(record.msg):
            return False
        # The place in the source, not the text: the text has varying numbers in it.
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._passed_at.get(place, -_REPEAT_S) < _REPEAT_S:
            return False
        if len(self._passed_at) >= _TEMPLATES_MAX:
            self._passed_at.clear()
        self._passed_at[place] = now
        return True


_REPEAT_FILTER: Final = _RepeatFilter()


def limit_library_logs() -> None:
    """Install the filter on kafka-python's connection loggers; doing it again changes nothing.

    The library speaks of every connection and every metadata update at INFO, thirty lines for one start. They pass
    only when the application has set a level for ``kafka`` itself.
    """
    library = logging.getLogger(_LIBRARY)
    if library.level == logging.NOTSET:
        library.setLevel(logging.WARNING)
    for name in _LIBRARY_LOGGERS:
        logging.getLogger(name).addFilter(_REPEAT_FILTER)


class Outage:
    """Warns about missing contact after 2 s, then at doubling intervals up to a minute; says when contact is back."""

    _FIRST_S: Final = 2.0
    _INTERVAL_S_MAX: Final = 60.0

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None
        self._warn_at = 0.0
        self._interval_s = self._FIRST_S
        self._warned = False

    def goes_on(self) -> bool:
        """There is no contact right now. True when that was just said: the time for a closer look."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._interval_s, self._warned = now, self._FIRST_S, False
            self._warn_at = now + self._FIRST_S
        elif now >= self._warn_at:
            _log.warning("%s: no answer for %.0f s; still trying", self._what, now - self._since)
            self._warned = True
            self._interval_s = min(2 * self._interval_s, self._INTERVAL_S_MAX)
            self._warn_at = now + self._interval_s
            return True
        return False

    def is_over(self) -> None:
        """There is contact."""
        if self._since is not None and self._warned:
            _log.warning("%s: back after %.0f s", self._what, time.monotonic() - self._since)
        self._since = None
