"""The ids of the topics that a client works with, requested again and again while it runs (KIP-516).

A topic that is deleted and created again has the same name, other records and another id. Offsets of the old topic
mean nothing in the new one, but a broker accepts them as soon as the new log is long enough. So every position that the
runtime remembers belongs to a topic id, and this module reports when the id of a name changes.

An answer is a claim. A broker that has not caught up may name the old topic, or no topic; a client library may leave
the id out. So a new id is believed when a second request, made later, gives the same id. An id that was replaced once
is never believed again, because the cluster does not reuse ids.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from streams_py.errors import StreamsError
from streams_py.ports import Admin, AdminError, AdminErrorKind, Clock

__all__ = ["TopicIds"]

_log = logging.getLogger(__name__)

_INTERVAL_MS: Final = 2_000
"""Interval between two requests."""
_CONFIRM_MS: Final = 1_000
"""Time after which a new id, or the absence of a topic, is requested again."""
_COST_FACTOR: Final = 20
"""A request that took long is repeated after this many times its duration, at least."""
_ABSENT_LOOKS: Final = 3
"""Number of consecutive answers without the topic after which the topic is reported as absent."""
_COMPLAINT_MS: Final = 60_000
"""Interval between two reports of an absent topic."""


@dataclass(slots=True)
class _Topic:
    """One topic name."""

    id: str | None = None
    replaced: set[str] = field(default_factory=set)
    """Ids that the name had before."""
    suspected: str | None = None
    """A new id that one answer has named."""
    confirmed: int = 0
    """Number of the last request whose answer named the known id."""
    absent: int = 0
    """Consecutive answers without the topic, since it had an id."""
    next_complaint_ms: int = 0


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
        self.looks = 0
        """Number of requests so far."""
        self._thread: threading.Thread | None = None

    @property
    def now(self) -> Mapping[str, str]:
        """Topic -> id, for topics whose id is known. A new mapping whenever an id changes."""
        return self._ids

    def watch(self, owner: object, topics: Collection[str]) -> None:
        """Make these the topics of ``owner``; its former topics are no longer requested unless another owner uses
        them."""
        wanted = frozenset(topics)
        with self._lock:
            if self._watched.get(owner, frozenset()) == wanted:
                return
            self._watched[owner] = wanted
        self._start()
        self._wake.set()

    def is_confirmed(self, topic: str, *, since: int) -> bool:
        """Whether an answer that was requested after so many others named the known id of the topic."""
        known = self._topics.get(topic)
        return known is not None and known.confirmed > since + 1  # the next one may have been under way

    def look_soon(self) -> None:
        """Request the ids now: a position has turned out to be invalid."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; a request that is under way is left behind."""
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
                wait_ms = self.look()
                wait_ms = max(wait_ms, _COST_FACTOR * (self._clock.monotonic_ms() - began_ms))

    def look(self) -> int:
        """Request the ids once. Return the time until the next request, in ms."""
        with self._lock:
            wanted = frozenset[str]().union(*self._watched.values())
        admin = self._admin()
        if not wanted or admin is None:
            return _INTERVAL_MS
        try:
            answers = admin.describe_topics(wanted)
        except StreamsError as error:  # the threads that need the broker report it
            _log.debug("topic ids are not known now: %s", error)
            return _INTERVAL_MS
        with self._lock:
            self.looks += 1
            is_sure = True
            for name in wanted:
                answer = answers.get(name)
                topic = self._topics.setdefault(name, _Topic())
                if isinstance(answer, AdminError):
                    is_sure = self._note_error(name, topic, answer) and is_sure
                elif answer:
                    is_sure = self._note_id(topic, answer[0].topic_id) and is_sure
            ids = {name: topic.id for name, topic in self._topics.items() if topic.id is not None}
            if ids != self._ids:
                self._ids = ids
        return _INTERVAL_MS if is_sure else _CONFIRM_MS

    def _note_id(self, topic: _Topic, id: str | None) -> bool:
        """False when the answer needs another one to be believed."""
        topic.absent = 0
        if id is None or id in topic.replaced:
            return True
        if topic.id is None or id == topic.id:
            topic.id, topic.suspected, topic.confirmed = id, None, self.looks
            return True
        if id != topic.suspected:
            topic.suspected = id
            return False
        topic.replaced.add(topic.id)
        topic.id, topic.suspected = id, None
        return True

    def _note_error(self, name: str, topic: _Topic, error: AdminError) -> bool:
        if error.kind is not AdminErrorKind.UNKNOWN_TOPIC or topic.id is None:
            return True
        topic.absent += 1
        now_ms = self._clock.monotonic_ms()
        if topic.absent < _ABSENT_LOOKS:
            return False
        if now_ms >= topic.next_complaint_ms:
            topic.next_complaint_ms = now_ms + _COMPLAINT_MS
            _log.error(
                "topic %s was deleted while this client uses it: its records are lost, and tasks that read or write it "
                "make no progress until it exists again. Create the topic again, or stop the application and reset it "
                "(streams-py reset)",
                name,
            )
        return True
