"""The producer of assignment events (``streams_py.events.emitter.EventProducer``) on librdkafka.

Events have a separate client, so a failure to write events does not affect the application's records. The client uses
``acks=1``, no idempotence and no transactions. It drops a record after 10 s and buffers at most 8 MiB. It does not log
warnings; the emitter does, at a limited rate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams_py.adapters.confluent.failures import error_of
from streams_py.adapters.confluent.settings import Settings, producer_settings_of, rejected_setting
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig

_CRITICAL: Final = 2  # librdkafka's log_level, as in syslog
_OURS: Final[Mapping[str, str]] = {
    "acks": "1",
    "enable.idempotence": "false",
    "linger.ms": "100",
    "delivery.timeout.ms": "10000",
    "compression.type": "zstd",
    "buffer.memory": str(8 << 20),
}


class _EventRecord(Protocol):
    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


def event_producer_settings(config: StreamsConfig, *, bootstrap: str, client_id: str) -> Settings:
    """Return the settings of the events producer.

    Later settings replace earlier ones: the application's producer settings (security, mostly), the defaults of this
    module, then the settings with the prefix of the events producer.
    """
    given = config.settings_for(ClientRole.EVENT_PRODUCER, _OURS)
    settings = producer_settings_of(config, given, bootstrap=bootstrap, client_id=client_id)
    settings.pop("transactional.id", None)
    settings.setdefault("log_level", _CRITICAL)
    return settings


class ConfluentEventProducer:
    """The producer of assignment events. Not thread-safe."""

    def __init__(self, settings: Settings) -> None:
        logger = logging.getLogger("streams_py.events.producer")
        try:
            self._producer = Producer({**settings, "error_cb": _ignore}, logger=logger)
        except KafkaException as refused:
            error = error_of(refused)
            raise rejected_setting(error.str() if error else str(refused), settings, "events producer") from None

    def send(self, topic: str, record: _EventRecord, on_delivery: Callable[[str | None], None]) -> None:
        """Queue a record. Kafka's default partitioner derives the partition from its key."""

        def report(error: KafkaError | None, message: Message) -> None:
            on_delivery(None if error is None else error.str())

        headers: Any = list(record.headers)
        self._producer.produce(topic, record.value, record.key, on_delivery=report, headers=headers)

    def poll(self, timeout_ms: int) -> None:
        """Serve delivery reports."""
        self._producer.poll(timeout_ms / 1000)

    def flush(self, timeout_ms: int) -> int:
        """Wait until queued records are written or have failed; return the number of records still queued."""
        return self._producer.flush(timeout_ms / 1000)

    def close(self) -> None:
        """Drop the queued records and close the client."""
        self._producer.purge()
        self._producer.close()


def _ignore(error: KafkaError) -> None:
    """Ignore connection errors: delivery reports tell whether events were lost."""
