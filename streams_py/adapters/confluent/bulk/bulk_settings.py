"""Settings of clients that read or write whole topics outside of an application: data jobs and tools.

Settings are given as Kafka's dotted keys (or librdkafka's keys) without a
:class:`~streams_py.config.streams_config.StreamsConfig`. Security keys have the same meaning as for an application. All
other keys are passed to librdkafka unchanged. Keys that a bulk reader or writer must set itself raise a ConfigError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streams_py.adapters.confluent.settings import Settings
from streams_py.adapters.security.client_settings import librdkafka_settings
from streams_py.adapters.security.settings import is_security_key, parse_security
from streams_py.errors import ConfigError

_GROUP: Final = "streams-kafka-reader"
"""librdkafka requires a group id. No client joins this group or commits to it."""

_CONSUMER_DEFAULTS: Final[Settings] = {
    # With librdkafka's default of 1 s, reading pauses for that long whenever the prefetch queue was full.
    "fetch.queue.backoff.ms": 1,
    # A reader prefetches until it has both. librdkafka counts only the bytes of values, so the number of records limits
    # the memory of records with large keys or headers.
    "queued.min.messages": 250,
    "queued.max.messages.kbytes": 32_768,
    # Delay at the end of a range whose last offsets have no records. A range never ends after the end of its log.
    "fetch.wait.max.ms": 20,
    "check.crcs": True,
}
_CONSUMER_FORCED: Final[Settings] = {
    "group.id": _GROUP,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # any other value would silently read other records than requested
    "allow.auto.create.topics": False,
}
_PRODUCER_DEFAULTS: Final[Settings] = {"linger.ms": 50, "queue.buffering.max.kbytes": 65_536}
_PRODUCER_FORCED: Final[Settings] = {"enable.idempotence": True, "acks": "all"}


def bulk_consumer_settings(kafka: Mapping[str, str], *, client_id: str, read_committed: bool) -> Settings:
    """Build settings for :func:`streams_py.adapters.confluent.bulk.range_reader.read_range`."""
    isolation = "read_committed" if read_committed else "read_uncommitted"
    return {
        **_CONSUMER_DEFAULTS,
        **_shared(kafka, client_id, refused=_CONSUMER_FORCED),
        **_CONSUMER_FORCED,
        "isolation.level": isolation,
    }


def bulk_producer_settings(kafka: Mapping[str, str], *, client_id: str) -> Settings:
    """Build settings for a ConfluentProducer whose records name their partition."""
    return {
        **_PRODUCER_DEFAULTS,
        **_shared(kafka, client_id, refused={**_PRODUCER_FORCED, "transactional.id": ""}),
        **_PRODUCER_FORCED,
    }


def bulk_admin_settings(kafka: Mapping[str, str], *, client_id: str) -> Settings:
    """Build settings for a :class:`~streams_py.adapters.confluent.bulk.log_admin.LogAdmin`."""
    common = {key: value for key, value in kafka.items() if key in _ADMIN_KEYS or is_security_key(key)}
    return _shared(common, client_id, refused={})


_ADMIN_KEYS: Final = frozenset(
    """
    bootstrap.servers client.dns.lookup broker.address.family socket.timeout.ms socket.keepalive.enable
    socket.connection.setup.timeout.ms connections.max.idle.ms reconnect.backoff.ms reconnect.backoff.max.ms
    """.split()
)


def _shared(kafka: Mapping[str, str], client_id: str, *, refused: Mapping[str, object]) -> Settings:
    if not kafka.get("bootstrap.servers"):
        raise ConfigError("kafka.bootstrap.servers is required, e.g. localhost:9092", key="kafka.bootstrap.servers")
    for key in kafka.keys() & refused.keys():
        raise ConfigError(f"kafka.{key} cannot be set: remove it", key=f"kafka.{key}")
    plain = {key: value for key, value in kafka.items() if not is_security_key(key)}
    security = librdkafka_settings(parse_security({key: v for key, v in kafka.items() if is_security_key(key)}))
    return {"client.id": client_id, "log.connection.close": False, **plain, **security}
