"""The largest batch that a topic accepts: its ``max.message.bytes``, which brokers apply to whole batches.

The limit is requested when the application first writes to a topic. It is optional: without the right to read the
topic's configuration, or without an answer, the producer learns of the limit when a broker refuses a batch
(see :mod:`.producer`).
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

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0
_AGE_MAX_S: Final = 300.0
_RETRY_S: Final = 30.0
"""Pause after a failed request, in seconds. Without it, each first write to a topic would wait for the timeout."""
_ROOM: Final = 512
"""Upper bound of a batch's size without its records, in bytes."""


class TopicLimits:
    """Batch size limits of topics, cached. Thread-safe.

    ``settings`` are the settings of an admin client.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int | None, float]] = {}
        self._silent_until_s = 0.0

    def batch_bytes_max(self, topic: str) -> int | None:
        """Return the largest size of a batch's records for a topic, in bytes; None when the limit is unknown."""
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
                _log.debug("max.message.bytes of %s is unknown: %s", topic, failed)
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
