"""Clusters that do not answer: one warning per outage and process, and one line when it has ended.

Each stream thread has several Kafka clients, and every one of them reports every failed attempt to connect. Those
reports come here. What an operator has to know is logged once: which cluster, for how long, why, and what it means.

Two kinds of clients report:

* A *member* of a group knows when it has contact and when it has none. It reports both.
* A client of librdkafka reports failures only. They count while they keep coming. A report may be old: librdkafka
  queues reports until the client is used. So such reports do not count while a member has contact.

A broker that is away while others answer gets a separate line if clients still need it after 10 s.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Final

_log = logging.getLogger(__name__)

_CLUSTER_S: Final = 2.0
_BROKER_S: Final = 10.0
_REPEAT_S: Final = 60.0
_REPEAT_S_MAX: Final = 600.0
_FRESH_S: Final = 10.0
"""Age after which a reported failure no longer counts, in seconds. Clients try again once per second."""
_CONTACT_S: Final = 2.0
"""Time after a member's contact in which reports that no broker answers do not count, in seconds."""
_SETTLES_S: Final = 5.0
"""Time after an outage in which failures still belong to it, in seconds.

Brokers elect leaders and coordinators load their logs in this time.
"""
_BROKERS_MAX: Final = 1_000


class _Outage:
    """Time in which something keeps failing, and when to log it."""

    def __init__(self, now_s: float, first_s: float) -> None:
        self.since_s = self.last_s = now_s
        self._due_s = now_s + first_s
        self._interval_s = _REPEAT_S
        self.was_logged = False

    def is_due(self, now_s: float) -> bool:
        """Whether to log it now: after the first interval, then at doubling intervals."""
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._interval_s
        self._interval_s = min(2 * self._interval_s, _REPEAT_S_MAX)
        self.was_logged = True
        return True


class ClusterContact:
    """Whether one cluster answers, as reported by the clients of this process. Thread-safe."""

    def __init__(self, servers: str, *, now_s: Callable[[], float] | None = None) -> None:
        self._servers = servers
        self._now_s = now_s or time.monotonic
        self._lock = threading.Lock()
        self._lost_members: dict[str, float] = {}
        self._answered_s: float | None = None
        self._down: dict[str, tuple[float, float]] = {}  # clients of librdkafka: first and last report
        self._reason: tuple[str, float] = ("", 0.0)
        self._outage: _Outage | None = None
        self._ended_s: float | None = None
        self._brokers: dict[str, _Outage] = {}

    @property
    def is_in_trouble(self) -> bool:
        """Whether a client has no contact, or had none 5 s ago. It may be too early for a log line."""
        now_s = self._now_s()
        with self._lock:
            if self._since(now_s) is not None:
                return True
            return self._ended_s is not None and now_s - self._ended_s <= _SETTLES_S

    # -- members ---------------------------------------------------------------------------------------------

    def no_answer(self, member: str) -> None:
        """Note that a member has no contact. It repeats this until :meth:`answered` or :meth:`forget`."""
        now_s = self._now_s()
        with self._lock:
            self._lost_members.setdefault(member, now_s)
            self._look(now_s)

    def answered(self, member: str) -> None:
        """Note that a member has contact. The outage ends when all members that had lost contact have it again."""
        now_s = self._now_s()
        with self._lock:
            self._lost_members.pop(member, None)
            self._answered_s = now_s
            self._end_if_over(now_s)

    def forget(self, member: str) -> None:
        """Note that a member is closed and reports nothing more."""
        with self._lock:
            if self._lost_members.pop(member, None) is not None and not self._lost_members:
                self._outage = None

    # -- clients of librdkafka -------------------------------------------------------------------------------

    def failed(self, broker: str, reason: str) -> None:
        """Note that a client of librdkafka could not connect to one broker, or lost the connection."""
        now_s = self._now_s()
        with self._lock:
            self._reason = (reason, now_s)
            if self._since(now_s) is not None:
                self._brokers.clear()
                self._look(now_s)
                return
            outage = self._brokers.get(broker)
            if outage is None or now_s - outage.last_s > _FRESH_S:
                if len(self._brokers) >= _BROKERS_MAX:
                    self._brokers.clear()
                outage = self._brokers[broker] = _Outage(now_s, _BROKER_S)
            outage.last_s = now_s
            if outage.is_due(now_s):
                _log.warning(
                    "broker %s of cluster %s unreachable for %.0f s (%s); the other brokers answer; retrying",
                    broker,
                    self._servers,
                    now_s - outage.since_s,
                    reason,
                )

    def all_down(self, client: str) -> None:
        """Note that a client of librdkafka has no connection to any broker."""
        now_s = self._now_s()
        with self._lock:
            self._down = {name: times for name, times in self._down.items() if now_s - times[1] <= _FRESH_S}
            first_s, _ = self._down.get(client, (now_s, now_s))
            self._down[client] = (first_s, now_s)
            self._look(now_s)

    # -- with the lock held ----------------------------------------------------------------------------------

    def _since(self, now_s: float) -> float | None:
        """Start of the outage; None if no outage is known."""
        since = list(self._lost_members.values())
        if since or self._answered_s is None or now_s - self._answered_s > _CONTACT_S:
            since += [first_s for first_s, last_s in self._down.values() if now_s - last_s <= _FRESH_S]
        return min(since, default=None)

    def _look(self, now_s: float) -> None:
        since_s = self._since(now_s)
        if since_s is None:
            return
        if self._outage is None or now_s - self._outage.last_s > _FRESH_S:
            self._outage = _Outage(since_s, _CLUSTER_S)
        self._outage.last_s = now_s
        if not self._outage.is_due(now_s):
            return
        reason, at_s = self._reason
        if now_s - at_s > _FRESH_S or not reason:
            reason = "the group coordinator does not answer" if self._lost_members else "no broker answers"
        _log.warning(
            "cluster %s unreachable for %.0f s (%s); %sretrying",
            self._servers,
            now_s - self._outage.since_s,
            reason,
            "no record is lost; " if self._lost_members else "",
        )

    def _end_if_over(self, now_s: float) -> None:
        if self._lost_members:
            return
        self._down.clear()
        outage, self._outage = self._outage, None
        if outage is not None:
            self._brokers.clear()
            self._ended_s = now_s
            if outage.was_logged:
                _log.info("cluster %s reachable again after %.0f s", self._servers, now_s - outage.since_s)


class MemberContact:
    """The reports of one member of a group about its contact with the cluster."""

    _FIRST_S: Final = 2.0
    _INTERVAL_S_MAX: Final = 60.0

    def __init__(self, servers: Iterable[str] | str, member: str) -> None:
        self._cluster = contact_with(servers)
        self._member = member
        self._look_s: float | None = None
        self._interval_s = self._FIRST_S
        self._is_closed = False

    def report_lost(self) -> bool:
        """Report that the member has no contact. The member calls this repeatedly.

        Returns:
            Whether the caller should check now if waiting can help at all. True at growing intervals.
        """
        if self._is_closed:
            return False
        self._cluster.no_answer(self._member)
        now_s = time.monotonic()
        if self._look_s is None:
            self._interval_s = self._FIRST_S
            self._look_s = now_s + self._FIRST_S
        elif now_s >= self._look_s:
            self._interval_s = min(2 * self._interval_s, self._INTERVAL_S_MAX)
            self._look_s = now_s + self._interval_s
            return True
        return False

    def report_contact(self) -> None:
        """Report that the member has contact."""
        self._look_s = None
        self._cluster.answered(self._member)

    def close(self) -> None:
        """Report nothing more, because the member is closed."""
        self._is_closed = True
        self._cluster.forget(self._member)


_CONTACTS: Final[weakref.WeakValueDictionary[str, ClusterContact]] = weakref.WeakValueDictionary()
_CONTACTS_LOCK: Final = threading.Lock()


def contact_with(servers: Iterable[str] | str) -> ClusterContact:
    """The one object of this process for the cluster with these ``bootstrap.servers``."""
    listed = servers.split(",") if isinstance(servers, str) else servers
    name = ", ".join(sorted({server.strip() for server in listed}))
    with _CONTACTS_LOCK:
        contact = _CONTACTS.get(name)
        if contact is None:
            contact = _CONTACTS[name] = ClusterContact(name)
        return contact


def level_of_waiting() -> int:
    """Log level for a line that says that something waits for a broker.

    DEBUG while a cluster does not answer, because the line about the outage covers all of them. Otherwise WARNING.
    """
    with _CONTACTS_LOCK:
        contacts = list(_CONTACTS.values())
    return logging.DEBUG if any(contact.is_in_trouble for contact in contacts) else logging.WARNING
