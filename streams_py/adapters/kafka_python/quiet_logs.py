"""Filter and reword kafka-python's log lines for operators of a Streams application.

* *Connections.* The library logs each lost connection and each failed attempt as an error, some with a traceback.
  Those lines go to DEBUG. :mod:`streams_py.system.outages` logs one line per outage.
* *The group.* Lines about heartbeats and LeaveGroup assume an application that calls the library itself. They are
  reworded, or go to DEBUG where the member handles the case.
* *Missing topics.* The library logs a topic that does not exist as an error. A member subscribes to internal topics
  before the leader has created them. The leader reports a missing source topic by name.
* *Blocked event loop.* The library warns when its thread did not run for a tenth of a second. Python code that computes
  on another thread is enough for that.

Other lines pass the filter at most once per 30 s for each place in the library's source.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from kafka import errors as kafka_errors

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

_CONNECTION_LOGGERS: Final = (
    "kafka.net.manager",
    "kafka.net.connection",
    "kafka.net.inet",
    "kafka.net.transport",
    "kafka.cluster",
)
_NOT_A_CONNECTION: Final = (
    "SASL",
    "Sasl",
    "kafka controller",
    "throttled",
    "topic_id",
    "not authorized",
    "valid topic name",
    "loop error",
)
"""Parts of lines of these loggers that do not report a lost or refused connection."""

_OWN_HANDLING: Final = (
    "Error sending %s to node %s",
    "Marking the coordinator dead",
    "Group Coordinator Request failed",
    "Heartbeat session expired",
    "Heartbeat failed for group %s: coordinator",
    "Heartbeat failed for group %s: generation id is not",
    "Unhandled Heartbeat loop error",
)
"""Beginnings of lines about events that the member handles, and reports itself where needed."""

_LEFT: Final = "LeaveGroup request"
_REWORDED: Final = {
    "Heartbeat: local member_id was not recognized": (
        "the group coordinator has removed this member from its group, as it does when no heartbeat arrives for "
        "session.timeout.ms; other members take its tasks over, and this member joins the group again"
    ),
    "Consumer poll timeout has expired": (
        "the stream thread was busy for longer than max.poll.interval.ms with one record or one call; this member "
        "leaves its group until the thread continues, and other members take its tasks over"
    ),
}
"""Beginning of a line of the library: what to log instead."""
_REPEAT_S: Final = 30.0
_TEMPLATES_MAX: Final = 1_000
"""Limit of remembered places in the source. The library has a few hundred log calls, so this is a safeguard only."""


class _RepeatFilter(logging.Filter):
    """A filter that passes, drops, rewords or moves to DEBUG the library's warnings and errors.

    It does not change lower levels.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        if record.msg in _EVERYDAY or _SLOW in str(record.msg):
            return False
        if _is_handled(record):
            record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
            return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        _reword(record)
        # Keyed by the place in the source, because the text contains varying numbers.
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._passed_at.get(place, -_REPEAT_S) < _REPEAT_S:
            return False
        if len(self._passed_at) >= _TEMPLATES_MAX:
            self._passed_at.clear()
        self._passed_at[place] = now
        return True


def _is_handled(record: logging.LogRecord) -> bool:
    """Whether the line reports a lost connection, or an event that the member handles."""
    text = str(record.msg)
    if record.exc_info and isinstance(record.exc_info[1], OSError | kafka_errors.KafkaConnectionError):
        return True
    if record.name in _CONNECTION_LOGGERS:
        shown = record.getMessage()
        return not any(part in shown for part in _NOT_A_CONNECTION)
    if text.startswith(_LEFT):  # the group had already removed the member, so leaving has succeeded
        last = record.args[-1] if isinstance(record.args, tuple) and record.args else None
        return isinstance(last, kafka_errors.UnknownMemberIdError)
    return text.startswith(_OWN_HANDLING)


def _reword(record: logging.LogRecord) -> None:
    text = str(record.msg)
    if text.startswith(_LEFT):
        reason = record.args[-1] if isinstance(record.args, tuple) and record.args else "no reason given"
        record.msg = (
            "the member could not leave its group (%s); the group keeps the member's tasks for it until "
            "session.timeout.ms has elapsed"
        )
        record.args = (reason,)
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return
    for beginning, words in _REWORDED.items():
        if text.startswith(beginning):
            record.msg, record.args = words, ()


_REPEAT_FILTER: Final = _RepeatFilter()


def limit_library_logs() -> None:
    """Install the filter on kafka-python's loggers. Further calls have no effect.

    At INFO, the library logs every connection and every metadata update, about thirty lines per start. These lines pass
    only if the application has set a level for the logger ``kafka``.
    """
    library = logging.getLogger(_LIBRARY)
    if library.level == logging.NOTSET:
        library.setLevel(logging.WARNING)
    for name in _LIBRARY_LOGGERS:
        logging.getLogger(name).addFilter(_REPEAT_FILTER)
