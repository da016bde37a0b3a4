"""Translate Kafka's dotted client keys to librdkafka settings.

librdkafka uses many of Kafka's names, renames some, and has names that Kafka lacks. A few of its defaults differ in
ways that matter to Kafka Streams. For every client there are four kinds of keys:

* Translated keys are passed on under librdkafka's name.
* Keys that the group membership, the runtime or another kind of client handles are skipped here.
* Java-only keys are ignored with a warning, because no Python client supports them.
* All other keys are passed on unchanged, since they may be librdkafka settings (``queued.min.messages``). If librdkafka
  does not know such a key, creating the client raises a ConfigError, see :func:`rejected_setting`.

Only :mod:`streams_py.adapters.security.settings` handles security keys. Forced values and defaults match Kafka Streams'
``StreamsConfig``; comments give the reasons for other defaults.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from streams_py.adapters.security.client_settings import librdkafka_settings
from streams_py.adapters.security.settings import is_security_key, parse_security
from streams_py.config.client_keys import ClientRole, without_prefix
from streams_py.config.keys import is_secret
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError

_log = logging.getLogger(__name__)

Settings = dict[str, Any]
"""A configuration for a client of confluent-kafka."""

# -- the table ---------------------------------------------------------------------------------------------------------


def _same(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names.split()}


_COMMON: Final = _same(
    """
    client.dns.lookup connections.max.idle.ms metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms
    reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms retry.backoff.max.ms
    socket.connection.setup.timeout.ms enable.metrics.push broker.address.family socket.keepalive.enable
    """
) | {
    "receive.buffer.bytes": ("socket.receive.buffer.bytes",),
    "send.buffer.bytes": ("socket.send.buffer.bytes",),
    "request.timeout.ms": ("socket.timeout.ms",),
    "metadata.max.age.ms": ("topic.metadata.refresh.interval.ms", "metadata.max.age.ms"),
}

_CONSUMER: Final = _same("fetch.min.bytes fetch.max.bytes check.crcs client.rack") | {
    "fetch.max.wait.ms": ("fetch.wait.max.ms",),
    "max.partition.fetch.bytes": ("fetch.message.max.bytes",),
}

_PRODUCER: Final = _same(
    "acks batch.size compression.type delivery.timeout.ms enable.idempotence linger.ms retries "
    "max.in.flight.requests.per.connection"
) | {
    "max.request.size": ("message.max.bytes",),
    "buffer.memory": ("queue.buffering.max.kbytes",),
    "compression.gzip.level": ("compression.level",),
    "compression.lz4.level": ("compression.level",),
    "compression.zstd.level": ("compression.level",),
}

_ELSEWHERE: Final = frozenset(
    """
    bootstrap.servers client.id group.id group.instance.id group.protocol session.timeout.ms heartbeat.interval.ms
    max.poll.interval.ms max.poll.records partition.assignment.strategy auto.offset.reset exclude.internal.topics
    default.api.timeout.ms max.block.ms transaction.timeout.ms transactional.id isolation.level
    socket.connection.setup.timeout.max.ms
    """.split()
)
"""Keys that the group membership, the runtime or other code of this package handles."""

_JAVA_ONLY: Final = frozenset(
    """
    interceptor.classes metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    auto.include.jmx.reporter key.deserializer value.deserializer key.serializer value.serializer
    partitioner.class partitioner.ignore.keys partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms metadata.max.idle.ms config.providers
    internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported
    """.split()
)

_LIBRARY_MESSAGE_BYTES: Final = 1_000_000  # librdkafka's default of message.max.bytes

# Kafka's value -> librdkafka's value, where the values differ too. Keyed by librdkafka's name.
_CONVERTED: Final[Mapping[str, Callable[[int], int]]] = {
    # The operating system's default is -1 in Java and 0 in librdkafka.
    "socket.receive.buffer.bytes": lambda size: max(0, size),
    "socket.send.buffer.bytes": lambda size: max(0, size),
    # librdkafka accepts 10 .. 300,000, and requires a second more than the longest fetch.
    "socket.timeout.ms": lambda timeout_ms: min(max(timeout_ms, 2_000), 300_000),
    "queue.buffering.max.kbytes": lambda size: max(1, size // 1024),
    # Metadata expires after three missed refreshes (the ratio of librdkafka's defaults).
    "metadata.max.age.ms": lambda age_ms: min(3 * max(age_ms, 10), 86_400_000),
    "topic.metadata.refresh.interval.ms": lambda age_ms: min(max(age_ms, 10), 3_600_000),
    "delivery.timeout.ms": lambda timeout_ms: min(timeout_ms, 2_147_483_647),
}

_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.max.bytes": (1_000, 2_147_483_135),  # librdkafka requires at least message.max.bytes
    "fetch.message.max.bytes": (1, 1_000_000_000),
    "fetch.wait.max.ms": (0, 300_000),
    "batch.size": (1, 2_147_483_647),
    "message.max.bytes": (0, 1_000_000_000),
    "retry.backoff.ms": (1, 300_000),
    "retry.backoff.max.ms": (1, 300_000),
    "connections.max.idle.ms": (0, 2_147_483_647),
}
"""librdkafka's range where Kafka's range is wider; other values become the nearest one. Keyed by librdkafka's name."""

_FORCED_CONSUMER: Final[Mapping[str, object]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    # librdkafka must report a position that does not exist: the runtime applies the reset policy of each source.
    "auto.offset.reset": "error",
    # Reports the end of a partition even when its last records are not delivered: transaction markers, aborted records,
    # records removed by compaction. Without it, positions would never reach the end and lags would never become 0.
    "enable.partition.eof": True,
}

_DEFAULT_CONSUMER: Final[Mapping[str, object]] = {
    # librdkafka's default of 1 s stalls reading for that long whenever the prefetch queue was full once.
    "fetch.queue.backoff.ms": 1,
    # A newly assigned partition waits for the fetch in flight, and the lookup of its first offset for another fetch.
    # Moving a partition took 1.5 s with Kafka's 500 ms, and 0.3 s with 100 ms. Costs 10 small requests per second when
    # idle.
    "fetch.wait.max.ms": 100,
    # Prefetch per partition, and in total. librdkafka's default of 100,000 records (of 100 bytes) takes 50 MB in each
    # client, and a pause discards them. Reading is equally fast with a shorter queue.
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
    "check.crcs": True,  # Kafka's default; librdkafka's is off
}

_ISOLATION: Final = "isolation.level"
_DELIVERY_MS: Final = 120_000
_DEFAULT_PRODUCER: Final[Mapping[str, object]] = {
    "linger.ms": 100,
    # Kafka's default partitioner for keys. librdkafka's default (CRC32) would break joins with topics written by Java.
    "partitioner": "murmur2_random",
    "acks": "all",
    "delivery.timeout.ms": _DELIVERY_MS,
    "message.max.bytes": 1_048_576,
    # One second of output at the highest rate. `produce` waits while the queue is full.
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
}

_SESSION_MS: Final = 45_000
_QUEUED_PER_MS: Final = {"queue.buffering.max.messages": 5, "queue.buffering.max.kbytes": 4}
_QUEUE_MIN: Final = {"queue.buffering.max.messages": 100_000, "queue.buffering.max.kbytes": 65_536}
"""A quarter of a second of output at the highest rate: enough to send while other records linger."""

# -- the four kinds of clients -----------------------------------------------------------------------------------------


def consumer_settings(config: StreamsConfig, role: ClientRole, *, bootstrap: str, client_id: str) -> Settings:
    """Return the settings of a record consumer.

    The runtime handles positions, the reset policy and ``max.poll.records``, so these are not included.
    """
    given = config.settings_for(role)
    translated = _translate(config, given, _COMMON | _CONSUMER, others=_PRODUCER)
    _warn_forced(given, _FORCED_CONSUMER)
    return {
        **_DEFAULT_CONSUMER,
        **_room_for_fetches(translated),
        **translated,
        **_FORCED_CONSUMER,
        # Kafka's default; librdkafka's own is read_committed.
        "isolation.level": _isolation(config, role),
        # This consumer never joins a group and never commits. librdkafka requires a name, and the application has the
        # rights on this one.
        "group.id": config.application_id,
        **_identity(bootstrap, client_id),
        **librdkafka_settings(parse_security(given)),
    }


def _room_for_fetches(translated: Settings) -> Settings:
    """Lower ``message.max.bytes`` to ``fetch.max.bytes``, since librdkafka requires it to be at most that.

    Neither setting limits the size of a record that a consumer can read: as Kafka documents, a broker returns the first
    batch of a fetch whatever its size.
    """
    size = translated.get("fetch.max.bytes")
    return {} if size is None else {"message.max.bytes": min(int(str(size)), _LIBRARY_MESSAGE_BYTES)}


def _isolation(config: StreamsConfig, role: ClientRole) -> str:
    """Return the isolation level. The restore consumer always has the level of the main consumer.

    A table that reuses its source topic as changelog is restored from that topic. With a different level it could get
    aborted records that were never processed, or miss records that were.
    """
    source = ClientRole.MAIN_CONSUMER if role is ClientRole.RESTORE_CONSUMER else role
    level = config.setting_for(source, _ISOLATION) or "read_uncommitted"
    if config.exactly_once:
        if (given := config.setting_for(role, _ISOLATION)) not in (None, "read_committed"):
            _log.warning("isolation.level = %s is ignored: exactly-once requires read_committed", given)
        return "read_committed"
    key = role.key(_ISOLATION)
    own = config.clients.get(key)
    if source is not role and own not in (None, level):
        _log.warning(
            "%s = %s is ignored: the restore consumer must read the same records as the main consumer, so it has the "
            "main consumer's level: %s. Set consumer.isolation.level for both",
            key,
            own,
            level,
        )
    return level


def transactional_settings(config: StreamsConfig, transactional_id: str, *, bootstrap: str, client_id: str) -> Settings:
    """Settings of a producer with transactions."""
    settings = producer_settings(config, bootstrap=bootstrap, client_id=client_id)
    if settings["enable.idempotence"] is not True and str(settings["enable.idempotence"]).lower() != "true":
        raise ConfigError(
            "processing.guarantee = exactly_once_v2 requires the producer settings enable.idempotence = true and "
            "acks = all",
            key="enable.idempotence",
        )
    timeout_ms = config.transaction_timeout_ms
    return {
        **settings,
        "transactional.id": transactional_id,
        "log.connection.close": True,  # the only report of a lost coordinator
        "transaction.timeout.ms": timeout_ms,
        # After the transaction's timeout, a record can no longer be part of it.
        "delivery.timeout.ms": min(int(str(settings["delivery.timeout.ms"])), timeout_ms),
        # librdkafka requires that a request times out before its transaction does.
        "socket.timeout.ms": min(int(str(settings["socket.timeout.ms"])), timeout_ms),
    }


def producer_settings(config: StreamsConfig, *, bootstrap: str, client_id: str) -> Settings:
    """Return the settings of a producer without transactions."""
    given = config.settings_for(ClientRole.PRODUCER)
    return producer_settings_of(config, given, bootstrap=bootstrap, client_id=client_id)


def producer_settings_of(
    config: StreamsConfig, given: Mapping[str, str], *, bootstrap: str, client_id: str
) -> Settings:
    """Return the settings of a producer without transactions, from Kafka's keys without a prefix."""
    translated = _translate(config, given, _COMMON | _PRODUCER, others=_CONSUMER)
    return {
        **_DEFAULT_PRODUCER,
        **_ordering(given),
        **translated,
        **_identity(bootstrap, client_id),
        **librdkafka_settings(parse_security(given)),
    }


def chooses_delivery_timeout(config: StreamsConfig) -> bool:
    """Whether this library chooses the delivery timeout, because the user has not set one."""
    return not {"delivery.timeout.ms", "message.timeout.ms"} & config.settings_for(ClientRole.PRODUCER).keys()


def at_least_once_settings(config: StreamsConfig, *, bootstrap: str, client_id: str) -> Settings:
    """Settings of a producer without transactions whose queued records must not outlive its group membership.

    Without transactions, brokers accept the queued records of a process that was frozen, even if other members have its
    tasks by now. So unless the user sets a delivery timeout, no record waits longer than two thirds of the session
    timeout: the last answered heartbeat before a record was produced may be a third of a session old. The queue holds
    the number of records that brokers can accept in that time.
    """
    settings = producer_settings(config, bootstrap=bootstrap, client_id=client_id)
    if not chooses_delivery_timeout(config):
        return settings
    try:
        session_ms = config.number_for(ClientRole.MAIN_CONSUMER, "session.timeout.ms", _SESSION_MS, least=0)
        lingers_ms = float(str(settings.get("queue.buffering.max.ms", settings["linger.ms"])))
        sizes = {key: int(str(settings[key])) for key in _QUEUED_PER_MS}
    except ValueError:
        return settings  # librdkafka or the membership reports the invalid setting
    timeout_ms = max(2 * session_ms // 3, 1)
    if lingers_ms >= timeout_ms / 2:
        # librdkafka requires a delivery timeout longer than the linger time.
        timeout_ms = round(2 * lingers_ms) + 1
        _log.warning(
            "linger.ms = %d is long compared with session.timeout.ms = %d: if this process is frozen and resumes, its "
            "queued records may be written after newer records of the members that took over its tasks",
            lingers_ms,
            session_ms,
        )
    timeout_ms = min(timeout_ms, _DELIVERY_MS)
    given = config.settings_for(ClientRole.PRODUCER).keys()
    queue = {
        key: min(size, max(_QUEUE_MIN[key], timeout_ms * _QUEUED_PER_MS[key]))
        for key, size in sizes.items()
        if not {key, "buffer.memory"} & given
    }
    return {**settings, **queue, "delivery.timeout.ms": timeout_ms}


def admin_settings(config: StreamsConfig, *, bootstrap: str, client_id: str) -> Settings:
    """Settings of the administrative client."""
    given = config.settings_for(ClientRole.ADMIN)
    translated = _translate(config, given, _COMMON, others=_CONSUMER.keys() | _PRODUCER.keys())
    return {**translated, **_identity(bootstrap, client_id), **librdkafka_settings(parse_security(given))}


def _identity(bootstrap: str, client_id: str) -> Settings:
    # Brokers routinely close idle connections. If a connection is needed, its failed reconnect is reported.
    return {"bootstrap.servers": bootstrap, "client.id": client_id, "log.connection.close": False}


_OVERRULED: Final[Mapping[str, str]] = {
    "group.id": "application.id names the group",
    "client.id": "clients are named after client.id without a prefix, or application.id, and their thread",
    "bootstrap.servers": "all clients use the cluster that bootstrap.servers without a prefix names",
    "transactional.id": "exactly-once assigns one to each stream thread, and at-least-once does not use transactions",
    ClientRole.RESTORE_CONSUMER.key("auto.offset.reset"): "changelog topics are read from their checkpoints",
    ClientRole.GLOBAL_CONSUMER.key("auto.offset.reset"): "topics of global stores are read from their checkpoints",
}
"""Keys that the application sets itself, with the reason. Kafka Streams overrides them too, mostly silently."""


def warn_overruled(config: StreamsConfig) -> None:
    """Log a warning for each client setting that has no effect, because the application sets it itself."""
    for key, value in config.clients.items():
        reason = _OVERRULED.get(key) or _OVERRULED.get(without_prefix(key))
        if reason is not None:
            _log.warning("%s = %s is ignored: %s", key, value, reason)


_ACKS: Final = ("all", "-1", "1", "0")
"""Valid values of ``acks``. librdkafka accepts numbers up to 1000, which brokers reject with INVALID_REQUIRED_ACKS."""


def _ordering(given: Mapping[str, str]) -> Settings:
    """Settings that keep the order of records. As in Kafka, the producer is idempotent unless settings forbid it.

    Without idempotence, librdkafka's retries could reorder records, so only one request is in flight at a time.
    """
    acks = given.get("acks", "all").lower()
    if acks not in _ACKS:
        raise ConfigError(f"producer acks = {acks} is not valid; use one of {', '.join(_ACKS)}", key="acks")
    if given.get("enable.idempotence", "true").lower() == "true":
        if acks in ("all", "-1"):
            return {"enable.idempotence": True}
        if "enable.idempotence" in given:
            raise ConfigError(
                f"producer acks = {acks} contradicts enable.idempotence = true; use acks = all", key="acks"
            )
    return {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}


def _translate(
    config: StreamsConfig, given: Mapping[str, str], table: Mapping[str, tuple[str, ...]], others: Collection[str]
) -> Settings:
    keys = {**_streams_keys(config), **given}
    settings: Settings = {}
    for key, value in keys.items():
        if key in table:
            for name in table[key]:
                settings[name] = _converted(key, name, value)
        elif key in _JAVA_ONLY:
            _log.warning("%s is for Java clients only and is ignored", key)
        elif not (key in others or key in _ELSEWHERE or key in _FORCED_CONSUMER or is_security_key(key)):
            settings[key] = value
    return settings


def _streams_keys(config: StreamsConfig) -> dict[str, str]:
    """Client keys that are also fields of the Streams configuration.

    A buffer size turns off the operating system's tuning, so buffer sizes are included only when the user sets them.
    """
    keys = {
        "connections.max.idle.ms": config.connections_max_idle_ms,
        "metadata.max.age.ms": config.metadata_max_age_ms,
        "reconnect.backoff.ms": config.reconnect_backoff_ms,
        "reconnect.backoff.max.ms": config.reconnect_backoff_max_ms,
        "request.timeout.ms": config.request_timeout_ms,
        "retry.backoff.ms": config.retry_backoff_ms,
    }
    if "receive.buffer.bytes" in config.original:
        keys["receive.buffer.bytes"] = config.receive_buffer_bytes
    if "send.buffer.bytes" in config.original:
        keys["send.buffer.bytes"] = config.send_buffer_bytes
    return {key: str(value) for key, value in keys.items()}


def _converted(key: str, name: str, value: str) -> object:
    convert, limits = _CONVERTED.get(name), _RANGES.get(name)
    if convert is None and limits is None:
        return value
    try:
        number = int(value)
        if convert is not None:
            return convert(number)
        assert limits is not None
        nearest = min(max(number, limits[0]), limits[1])
        return value if nearest == number else nearest
    except ValueError:
        raise ConfigError(f"{key} = {value!r} is not valid: expected a whole number", key=key) from None


def _warn_forced(given: Mapping[str, str], forced: Mapping[str, object]) -> None:
    for key, value in forced.items():
        if key in given and key not in _ELSEWHERE and given[key].lower() != str(value).lower():
            _log.warning("%s = %s is ignored: Kafka Streams requires %s", key, given[key], value)


# -- settings that librdkafka rejects ----------------------------------------------------------------------------------

_QUOTED: Final = re.compile(r'"([\w.]+)"')
_TO_CHANGE: Final = re.compile(r"`([\w.]+)` must be")
"""Matches the message about two incompatible settings, and names the first as the one to change."""
# librdkafka's messages use the original names of properties; the settings here use Kafka's names.
_ORIGINAL_NAMES: Final[Mapping[str, str]] = {
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "max.in.flight": "max.in.flight.requests.per.connection",
}


_NO_TOKEN: Final = "OAuth token not set"
"""Start of confluent-kafka's message when a new client has got no token within 10 s."""


def creation_error(message: str, settings: Mapping[str, object], purpose: str) -> StreamsError:
    """Build the error for a client that cannot be created, from librdkafka's ``message``.

    It is a BrokerUnavailableError if the function of the user has returned no token. Otherwise it is a ConfigError, see
    :func:`rejected_setting`.
    """
    if "oauth_cb" in settings and message.startswith(_NO_TOKEN):
        return BrokerUnavailableError(f"the {purpose} cannot log in: sasl.oauthbearer.token.source returned no token")
    return rejected_setting(message, settings, purpose)


def rejected_setting(message: str, settings: Mapping[str, object], purpose: str) -> ConfigError:
    """Build the ConfigError for librdkafka's ``message`` that rejects ``settings``. ``purpose``: e.g. "consumer".

    The error does not show values of secrets. It does not show librdkafka's message about a security key either, since
    that message may quote key material.
    """
    name = _named_setting(message, settings)
    if name is None:
        return ConfigError(f"the {purpose} cannot be created: {message.strip()}")
    key = next((kafka for kafka, ours in (_COMMON | _CONSUMER | _PRODUCER).items() if name in ours), name)
    if is_security_key(name) or is_secret(name):
        return ConfigError(f"{purpose}: the value of {key} cannot be used (not shown)", key=key)
    if "No such configuration property" in message:
        near = difflib.get_close_matches(key, sorted({*_COMMON, *_CONSUMER, *_PRODUCER, *_ELSEWHERE}), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return ConfigError(f"{purpose}: {key} is not a setting of Kafka's or librdkafka's clients{hint}", key=key)
    return ConfigError(f"{purpose}: {key} = {settings[name]!r} is not valid: {message.strip()}", key=key)


def _named_setting(message: str, settings: Mapping[str, object]) -> str | None:
    for quoted in [*_TO_CHANGE.findall(message), *reversed(_QUOTED.findall(message))]:
        name = _ORIGINAL_NAMES.get(quoted, quoted)
        if name in settings:
            return str(name)
    mentioned = [name for name in settings if name in message]
    return max(mentioned, key=len) if mentioned else None
