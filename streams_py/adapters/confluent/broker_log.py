"""Turn librdkafka's log lines and errors into a few ``logging`` warnings.

A client whose broker is unreachable reports every failed attempt, up to twenty per second. Lost and refused connections
are passed to :mod:`streams_py.system.outages`, which logs one line per outage for all clients of the process. The
reports themselves are logged at DEBUG, and so is every other report of a client while its cluster does not answer.

Each other *kind* of report is logged when it first appears. Repetitions are logged at intervals of at least 1, 2, 4 ...
60 seconds. A kind that has not been reported for two minutes counts as new.

librdkafka delivers reports inside ``poll``, ``consume`` and ``flush``, on the calling thread. An exception raised here
would not reach the caller reliably. So the only final report, a refused login, is stored, and :meth:`BrokerLog.check`
raises it.
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
from streams_py.system.outages import ClusterContact, contact_with

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
"""The only log line in which librdkafka names the topic that a transaction may not write to."""

_COORDINATOR: Final = "TxnCoordinator"
"""librdkafka's name for its connection to the transaction coordinator."""

_PASSING: Final = (
    "failed: Local: ",
    "Failed to acquire SASL OAUTHBEARER token",
    '"status":"invalid_token"',
    "Request not valid in current SASL state",
)
"""Texts of transient authentication errors, which a later connection may not have:

* the connection was lost before the broker answered;
* the user's token function failed;
* the token has expired;
* the connection was closed while it re-authenticated.

The login check at client startup finds tokens that no broker accepts.
"""

_CLOSED: Final = "in state UP"
"""Text of the report that an established connection was closed. That is routine: a failed reconnect is reported."""

_LOADING: Final = "Coordinator load in progress"
"""Text of a report that is routine after a broker start and in a new cluster; librdkafka retries the request."""

_FENCED: Final = "fenced by a newer instance"
"""Text of the report that a newer producer has fenced a transactional producer. The failing call raises this error."""

_FAILED: Final = re.compile(r"^(?:\w+: )?(?:\w+://)?([^/\s]+:\d+)(?:/\S+)?: (.*?)(?: \(after \d+ms .*\))?$", re.DOTALL)
"""A log line of facility FAIL: coordinator name, broker address, reason, connection state."""
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
    """Receiver of one client's log lines (as its ``logger``) and errors (as its ``error_cb``)."""

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
        """Topics that transactions may not write to, as reported up to the last poll of the client."""
        self.connections_lost = 0
        """Count of lost and refused connections, as reported up to the last poll of the client."""
        self.coordinators_lost = 0
        """Count of lost connections to the transaction coordinator; requires ``log.connection.close``."""

    def log(self, level: int, template: str, *parts: object) -> None:
        """Receive a log line of librdkafka. The signature matches ``logging.Logger.log``."""
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
        """Receive an error of the whole client (librdkafka's ``error_cb``). Most of these errors are transient."""
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
        """Log a warning of this library, with the same rate limit."""
        self._limited(text, text)

    def check(self) -> None:
        """Raise StreamsError if the brokers have refused the login. A retry would not help."""
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
