"""The events topic. It is created on first use, never during an assign step.

``cleanup.policy=delete``: compaction would keep only the last event of each task, and would destroy the history that
all analyses need. ``LogAppendTime``: the events of all members have timestamps of one clock, the broker's. The
difference to the writer's own time in the record is the error of the writer's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from streams_py.ports import Admin, AdminError, AdminErrorKind, TopicSpec
from streams_py.system.printable import named

_BACKOFF_S, _BACKOFF_MAX_S = 1.0, 600.0
_CONFIG: Final = {"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTopicSettings:
    """The settings that the topic is created with. ``replication_factor`` -1: the broker's default."""

    name: str
    partitions: int = 1
    replication_factor: int = -1
    retention_ms: int = 2_592_000_000


class EventTopic:
    """The state of the events topic. Used by the emitter's thread only."""

    def __init__(
        self, settings: EventTopicSettings, admin: Admin, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._admin = admin
        self._monotonic_s = monotonic_s
        self._exists = False
        self._backoff_s = _BACKOFF_S
        self._not_before_s = 0.0

    def is_ready(self, warn: Callable[[str], None], *, until_s: float | None = None) -> bool:
        """Check whether events may be sent, and create the topic if it does not exist.

        After a failure, the next check waits for a backoff, which grows from 1 s to 10 min. If this client may not
        describe the topic, it may still be allowed to write. Then the result is True, and sending decides.

        Args:
            warn: Called with a message when the topic does not exist and cannot be created.
            until_s: Time from which on no check is made.
        """
        now_s = self._monotonic_s()
        if self._exists:
            return True
        if now_s < self._not_before_s or (until_s is not None and now_s >= until_s):
            return False
        try:
            problem = self._look_or_create()
        except Exception as error:  # at shutdown the admin client may be closed meanwhile
            problem = named(error)
        if problem is None:
            self._exists = True
            return True
        self._back_off()
        warn(f"topic {self.name} for assignment events is not available: {problem}")
        return False

    def doubt(self) -> None:
        """Note a failed write. The topic is checked again before the next event, after a backoff."""
        if self._exists:
            self._exists = False
            self._back_off()

    def confirm(self) -> None:
        """Note a successful write, which resets the backoff."""
        self._backoff_s = _BACKOFF_S

    def _back_off(self) -> None:
        self._not_before_s = self._monotonic_s() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_MAX_S)

    def _look_or_create(self) -> str | None:
        found = self._admin.describe_topics([self.name]).get(self.name)
        if not isinstance(found, AdminError):
            return None
        if found.kind is not AdminErrorKind.UNKNOWN_TOPIC:
            return found.message if found.kind is AdminErrorKind.TIMED_OUT else None
        settings = self._settings
        spec = TopicSpec(
            self.name,
            settings.partitions,
            settings.replication_factor,
            {**_CONFIG, "retention.ms": str(settings.retention_ms)},
        )
        problem = self._admin.create_topics([spec]).get(self.name)
        if problem is None or problem.kind is AdminErrorKind.ALREADY_EXISTS:
            return None
        return f"{problem.message}; create it with cleanup.policy=delete, or allow the application to create it"
