"""The ids of the topics that a client works with, requested again and again while it runs (KIP-516).

A topic that is deleted and created again has the same name, other records and another id. Offsets of the old topic
mean nothing in the new one, but a broker accepts them as soon as the new log is long enough. So every position that the
runtime remembers belongs to a topic id, and this module reports when the id of a name changes.

Answers are not trusted immediately. A broker that has not caught up may name the old topic, or no topic, and a client
library may omit the id. So a new id counts only once a second, later request returns the same id. A replaced id never
counts again, because the cluster does not reuse ids.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from streams_py.errors import StreamsError
from streams_py.ports import Admin, AdminError, AdminErrorKind, Clock

_log = logging.getLogger(__name__)

_INTERVAL_MS: Final = 2_000
"""Interval between two requests, in ms."""
_CONFIRM_MS: Final = 1_000
"""Time before a new id, or a missing topic, is requested again, in ms."""
_COST_FACTOR: Final = 20
"""Minimum pause after a request, as a multiple of the request's duration."""
_ABSENT_ANSWERS: Final = 3
"""Number of consecutive answers without the topic before the topic is reported as missing."""
_ERROR_LOG_INTERVAL_MS: Final = 60_000
"""Interval between two reports of a missing topic, in ms."""


@dataclass(slots=True)
class _Topic:
    """State of one topic name."""

    id: str | None = None
    replaced: set[str] = field(default_factory=set)
    """Ids that the name had before."""
    suspected: str | None = None
    """A new id that only one answer has named."""
    confirmed: int = 0
    """Number of the last request whose answer named the known id."""
    absent: int = 0
    """Consecutive answers without the topic, since it had an id."""
    next_error_log_ms: int = 0


class TopicIds:
    """The ids of the topics that the threads of one client use. Thread-safe.

    A daemon thread requests them from the first :meth:`watch` on. ``admin`` returns None before the client is open.
    """

    def __init__(self, admin: Callable[[], Admin | None], clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._watched: dict[object, frozenset[str]] = {}
        self._topics: dict[str, _Topic] = {}
        self._ids: Mapping[str, str] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self.requests = 0
        """Number of requests so far."""
        self._thread: threading.Thread | None = None

    @property
    def now(self) -> Mapping[str, str]:
        """Topic -> id, for topics whose id is known. A new mapping whenever an id changes."""
        return self._ids

    def watch(self, owner: object, topics: Collection[str]) -> None:
        """Set the topics of ``owner``. Its former topics are no longer requested, unless another owner uses them."""
        wanted = frozenset(topics)
        with self._lock:
            if self._watched.get(owner, frozenset()) == wanted:
                return
            self._watched[owner] = wanted
        self._start()
        self._wake.set()

    def is_confirmed(self, topic: str, *, since: int) -> bool:
        """Whether an answer to a request sent after request number ``since`` named the known id of the topic."""
        known = self._topics.get(topic)
        return known is not None and known.confirmed > since + 1  # the next request may have been sent before

    def check_soon(self) -> None:
        """Request the ids now, because a position has turned out to be invalid."""
        self._wake.set()

    def stop(self) -> None:
        """Stop the thread. A request in progress is abandoned."""
        self._stopping = True
        self._wake.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="topic-ids", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        wait_ms = 0
        while not self._stopping:
            self._wake.wait(wait_ms / 1000)
            self._wake.clear()
            if not self._stopping:
                began_ms = self._clock.monotonic_ms()
                wait_ms = self.check()
                wait_ms = max(wait_ms, _COST_FACTOR * (self._clock.monotonic_ms() - began_ms))

    def check(self) -> int:
        """Request the ids once. Return the time until the next request, in ms."""
        with self._lock:
            wanted = frozenset[str]().union(*self._watched.values())
        admin = self._admin()
        if not wanted or admin is None:
            return _INTERVAL_MS
        try:
            answers = admin.describe_topics(wanted)
        except StreamsError as error:  # threads that need the broker report the error
            _log.debug("topic ids are not known now: %s", error)
            return _INTERVAL_MS
        with self._lock:
            self.requests += 1
            is_settled = True
            for name in wanted:
                answer = answers.get(name)
                topic = self._topics.setdefault(name, _Topic())
                if isinstance(answer, AdminError):
                    is_settled = self._count_absence(name, topic, answer) and is_settled
                elif answer:
                    is_settled = self._update_id(topic, answer[0].topic_id) and is_settled
            ids = {name: topic.id for name, topic in self._topics.items() if topic.id is not None}
            if ids != self._ids:
                self._ids = ids
        return _INTERVAL_MS if is_settled else _CONFIRM_MS

    def _update_id(self, topic: _Topic, id: str | None) -> bool:
        """Note the id in an answer. Return False if another answer must confirm it."""
        topic.absent = 0
        if id is None or id in topic.replaced:
            return True
        if topic.id is None or id == topic.id:
            topic.id, topic.suspected, topic.confirmed = id, None, self.requests
            return True
        if id != topic.suspected:
            topic.suspected = id
            return False
        topic.replaced.add(topic.id)
        topic.id, topic.suspected = id, None
        return True

    def _count_absence(self, name: str, topic: _Topic, error: AdminError) -> bool:
        if error.kind is not AdminErrorKind.UNKNOWN_TOPIC or topic.id is None:
            return True
        topic.absent += 1
        now_ms = self._clock.monotonic_ms()
        if topic.absent < _ABSENT_ANSWERS:
            return False
        if now_ms >= topic.next_error_log_ms:
            topic.next_error_log_ms = now_ms + _ERROR_LOG_INTERVAL_MS
            _log.error(
                "topic %s was deleted while this client uses it: its records are lost, and tasks that read or write it "
                "make no progress until it exists again. Create the topic again, or stop the application and reset it "
                "(streams-py reset)",
                name,
            )
        return True
