"""What librdkafka reports, as few ``logging`` warnings.

A client whose broker is away reports every failed attempt, up to twenty a second. Lost and refused connections go to
:mod:`streams_py.ports.outages`, which logs one line per outage for all clients of the process. The reports themselves
go to DEBUG, as does everything else that a client reports while its cluster does not answer.

Each other *kind* of report is logged when it first appears, and then at most after 1, 2, 4 ... 60 seconds. When a kind
was silent for two minutes it counts as new again.

librdkafka hands reports over inside ``poll``, ``consume`` and ``flush``, on the calling thread. Nothing raised here
would reach the caller in order, so the one report that is final, a refused login, is remembered and raised by
:meth:`BrokerLog.check`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

from streams_py.errors import StreamsError
from streams_py.ports.outages import ClusterContact, contact_with

__all__ = ["BrokerLog"]

_log = logging.getLogger(__name__)

_FIRST_INTERVAL_S: Final = 1.0
_INTERVAL_MAX_S: Final = 60.0
_FORGET_AFTER_S: Final = 120.0

_CONNECTION_LOST: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)

# Failed connections are reported as an error and as a log line; the line has the reason.
_LOGGED_ANYWAY: Final = (KafkaError._TRANSPORT, KafkaError._RESOLVE)

_TOPIC_REFUSED: Final = re.compile(
    r'Failed to add partition "(.+)" \[\d+\] to transaction: .*Topic authorization failed'
)
"""The only place where librdkafka says which topic of a transaction may not be written."""

_COORDINATOR: Final = "TxnCoordinator"
"""What librdkafka calls its connection to the coordinator of transactions."""

_PASSING: Final = (
    "failed: Local: ",
    "Failed to acquire SASL OAUTHBEARER token",
    '"status":"invalid_token"',
    "Request not valid in current SASL state",
)
"""In authentication errors that a later connection may not have: the connection was lost before the broker answered;
the user's token function failed; a token has expired meanwhile; a connection ended while it renewed its login. The
check of the login at the start of a client finds tokens that no broker accepts."""

_CLOSED: Final = "in state UP"
"""A connection that was in use has ended, which happens every day: what follows says whether that is trouble."""

_LOADING: Final = "Coordinator load in progress"
"""What the first producer of a new cluster, or after a broker's start, always hears; it is asked again."""

_FENCED: Final = "fenced by a newer instance"
"""A transactional producer was replaced. The call that meets this raises it, and the caller decides what follows."""

_FAILED: Final = re.compile(r"^(?:\w+: )?(?:\w+://)?([^/\s]+:\d+)(?:/\S+)?: (.*?)(?: \(after \d+ms .*\))?$", re.DOTALL)
"""A report of the facility FAIL: name of a coordinator, address of the broker, reason, state of the connection."""
_CONNECT: Final = re.compile(r"^Connect to \S+ failed: ")

_VARYING: Final = re.compile(r"\d+ms|\d+ identical|\b\d{3,}\b")


class _Kind:
    __slots__ = ("interval_s", "last_seen_s", "next_s", "suppressed")

    def __init__(self) -> None:
        self.interval_s = _FIRST_INTERVAL_S
        self.next_s = 0.0
        self.last_seen_s = 0.0
        self.suppressed = 0


class BrokerLog:
    """Receives one client's log lines (as its ``logger``) and errors (as its ``error_cb``)."""

    def __init__(
        self,
        client_id: str,
        bootstrap: str,
        *,
        now_s: Callable[[], float] = time.monotonic,
        contact: ClusterContact | None = None,
    ) -> None:
        self._client_id = client_id
        self._contact = contact or contact_with(bootstrap)
        self._bootstrap = bootstrap
        self._now_s = now_s
        self._kinds: dict[str, _Kind] = {}
        self._lock = threading.Lock()
        self._refused_login: str | None = None
        self.refused_topics: set[str] = set()
        """Topics that transactions were not allowed to write, as far as the library was polled."""
        self.connections_lost = 0
        """How often librdkafka has reported a lost or refused connection, as far as it was polled."""
        self.coordinators_lost = 0
        """The same of connections to the coordinator of transactions; needs ``log.connection.close``."""

    def log(self, level: int, template: str, *parts: object) -> None:
        """librdkafka's log callback, with the signature of ``logging.Logger.log``."""
        # parts: facility, client name, "[thrd:<thread>]: <what happened>"
        text = str(parts[-1]).rpartition("]: ")[2] if parts else template
        if refused := _TOPIC_REFUSED.search(text):
            self.refused_topics.add(refused[1])
        if parts and parts[0] == "FAIL" and text.startswith(_COORDINATOR):
            self.coordinators_lost += 1
        if level < logging.WARNING or _CLOSED in text or _LOADING in text or _FENCED in text:
            _log.debug("%s: %s", self._client_id, text)
        elif parts and parts[0] == "FAIL":
            _log.debug("%s: %s", self._client_id, text)
            self._note_failure(text)
        else:
            self._reported(text, text)

    def on_error(self, error: KafkaError) -> None:
        """librdkafka's ``error_cb``: a client-wide condition, mostly one that passes."""
        code = error.code()
        is_broken_off = code == KafkaError._AUTHENTICATION and any(text in error.str() for text in _PASSING)
        if code == KafkaError._AUTHENTICATION and not is_broken_off:
            self._refused_login = error.str()
        if code in _CONNECTION_LOST or is_broken_off:
            self.connections_lost += 1
        if code == KafkaError._ALL_BROKERS_DOWN:
            self._contact.all_down(self._client_id)
        elif code not in _LOGGED_ANYWAY and _FENCED not in error.str():
            self._reported(error.name(), f"{error.str()} ({self._bootstrap})")

    def warn(self, text: str) -> None:
        """A warning of our own, limited in the same way."""
        self._limited(text, text)

    def check(self) -> None:
        """Raise when the brokers refused the login: no retry will change their mind."""
        if self._refused_login is not None:
            raise StreamsError(
                f"{self._bootstrap} refused the login: {self._refused_login}; check sasl.mechanism, the user name and "
                "password, and security.protocol"
            )

    def _note_failure(self, text: str) -> None:
        found = _FAILED.match(text)
        broker, reason = found.groups() if found else (self._bootstrap, text)
        self._contact.failed(broker, _CONNECT.sub("", reason))

    def _reported(self, kind: str, text: str) -> None:
        if self._contact.is_in_trouble:
            _log.debug("%s: %s", self._client_id, text)
        else:
            self._limited(kind, text)

    def _limited(self, kind: str, text: str) -> None:
        kind = _VARYING.sub("#", kind)
        now_s = self._now_s()
        with self._lock:
            if now_s - self._kinds.setdefault(kind, _Kind()).last_seen_s > _FORGET_AFTER_S:
                self._kinds[kind] = _Kind()
            state = self._kinds[kind]
            state.last_seen_s = now_s
            suppressed = state.suppressed
            if now_s < state.next_s:
                state.suppressed += 1
            else:
                state.next_s = now_s + state.interval_s
                state.interval_s = min(2 * state.interval_s, _INTERVAL_MAX_S)
                state.suppressed = 0
                suppressed = -1 - suppressed
        if suppressed >= 0:
            _log.debug("%s: %s", self._client_id, text)
        elif suppressed == -1:
            _log.warning("%s: %s", self._client_id, text)
        else:
            _log.warning("%s: %s (repeated %d times)", self._client_id, text, -1 - suppressed)
