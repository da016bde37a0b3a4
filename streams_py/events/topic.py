"""The topic that events go to: made on first use, never inside an assign step.

``cleanup.policy=delete``: compaction would keep the last event of a task and destroy the history that everything else
is computed from. ``LogAppendTime``: one clock, the broker's, for the events of all members; compared with the writer's
own time in the record it tells how far that one's clock is off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from streams_py.ports import Admin, AdminError, AdminErrorKind, TopicSpec
from streams_py.system.printable import named

__all__ = ["EventTopic", "EventTopicSettings"]

_BACKOFF_S, _BACKOFF_MAX_S = 1.0, 600.0
_CONFIG: Final = {"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTopicSettings:
    """What the topic is made with. ``replication_factor`` -1 = the broker's default."""

    name: str
    partitions: int = 1
    replication_factor: int = -1
    retention_ms: int = 2_592_000_000


class EventTopic:
    """Knows whether the topic is there. Used by the emitter's thread only."""

    def __init__(
        self, settings: EventTopicSettings, admin: Admin, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._admin = admin
        self._monotonic_s = monotonic_s
        self._is_there = False
        self._backoff_s = _BACKOFF_S
        self._not_before_s = 0.0

    def is_ready(self, warn: Callable[[str], None], *, until_s: float | None = None) -> bool:
        """True when events may be sent. Looks, and creates the topic if it is missing; after a failure not again
        before some time has passed, 1 s at first and 10 min in the end. ``until_s``: when no more can come of it.

        A topic that may not even be looked at may still be writable: then sending decides.
        """
        now_s = self._monotonic_s()
        if self._is_there:
            return True
        if now_s < self._not_before_s or (until_s is not None and now_s >= until_s):
            return False
        try:
            problem = self._look_or_create()
        except Exception as error:  # at shutdown the admin client may be closed under our hands
            problem = named(error)
        if problem is None:
            self._is_there = True
            return True
        self._back_off()
        warn(f"topic {self.name} for assignment events is not there: {problem}")
        return False

    def doubt(self) -> None:
        """Something was not written: look again before the next event, but not at once."""
        if self._is_there:
            self._is_there = False
            self._back_off()

    def confirm(self) -> None:
        """An event was written."""
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
        return f"{problem.message}; create it with cleanup.policy=delete, or allow the application to"
