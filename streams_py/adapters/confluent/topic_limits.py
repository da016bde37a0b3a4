"""How large a batch of a topic may be: its ``max.message.bytes``, which brokers apply to whole batches.

Asked once per topic and application instance, when something is first written to it, and never insisted on: who may not
read a topic's configuration, or gets no answer, learns the limit by being refused (see :mod:`.producer`).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]  # unmarked

from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.settings import Settings

__all__ = ["TopicLimits"]

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0
_AGE_MAX_S: Final = 300.0
_RETRY_S: Final = 30.0
"""After a request without an answer nobody is asked for so long: whoever writes must not wait for it each time."""
_ROOM: Final = 512
"""What a batch may have around its records, at most."""


class TopicLimits:
    """Thread-safe. ``settings`` are those of an administrative client."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int | None, float]] = {}
        self._silent_until_s = 0.0

    def batch_bytes_max(self, topic: str) -> int | None:
        """Bytes of records that one request may bring for one partition of a topic; None when it is not known."""
        with self._lock:
            limit, until_s = self._known.get(topic, (None, 0.0))
            now_s = time.monotonic()
            if now_s < until_s:
                return limit
            if now_s < self._silent_until_s:
                return None
            try:
                limit = self._ask(topic)
            except (KafkaException, TimeoutError) as failed:
                _log.debug("max.message.bytes of %s not known: %s", topic, failed)
                self._silent_until_s = time.monotonic() + _RETRY_S
                return None
            self._known[topic] = (limit, now_s + _AGE_MAX_S)
            return limit

    def _ask(self, topic: str) -> int | None:
        log = BrokerLog(str(self._settings["client.id"]), str(self._settings["bootstrap.servers"]))
        settings: Settings = {**self._settings, "error_cb": log.on_error}
        client = AdminClient(settings, logger=log)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        [future] = client.describe_configs([resource], request_timeout=_TIMEOUT_S).values()
        entries: dict[str, Any] = future.result(_TIMEOUT_S + 1.0)
        entry = entries.get("max.message.bytes")
        text = "" if entry is None else str(entry.value)
        return max(1, int(text) - _ROOM) if text.isdecimal() else None
