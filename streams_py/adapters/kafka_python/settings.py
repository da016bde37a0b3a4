"""Translate Kafka's dotted consumer keys for group membership to arguments of kafka-python.

A key is handled in one of three ways:

* It is translated.
* It concerns records only, so the record consumer handles it.
* kafka-python does not support it. This is never silent: a warning names the key. For a security key it is a
  ConfigError (see :mod:`streams_py.adapters.security.settings`).

Some settings have a fixed value, because a Streams member requires it (Kafka Streams' ``StreamsConfig`` forces the same
ones). A different value is ignored with a warning.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Any, Final

from streams_py.adapters.security.kafka_python import kafka_python_security
from streams_py.adapters.security.settings import is_security_key, parse_security
from streams_py.errors import ConfigError

_log = logging.getLogger(__name__)

_INTEGERS: Final = {
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 3_000,
    "max.poll.interval.ms": 300_000,
    "request.timeout.ms": 40_000,
    "retry.backoff.ms": 100,
    "reconnect.backoff.ms": 50,
    # kafka-python's default of 30 s can exceed a session, so a broker restart would cost the member its membership.
    "reconnect.backoff.max.ms": 1_000,
    "connections.max.idle.ms": 540_000,
    "metadata.max.age.ms": 300_000,
    "socket.connection.setup.timeout.ms": 10_000,
    "socket.connection.setup.timeout.max.ms": 30_000,
}
"""Numeric keys with their defaults. kafka-python's arguments have the same names with underscores."""

_FORCED: Final = {
    "group.protocol": "classic",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
    "partition.assignment.strategy": "",
}
"""Fixed settings of a Streams member. An empty text means that every value of the user is ignored."""

_OWN: Final = frozenset(
    """
    bootstrap.servers client.id group.id group.instance.id client.rack receive.buffer.bytes send.buffer.bytes
    socket.keepalive.enable client.dns.lookup exclude.internal.topics default.api.timeout.ms
    """.split()
)

_RECORDS_ONLY: Final = frozenset(
    """
    auto.offset.reset check.crcs fetch.error.backoff.ms fetch.max.bytes fetch.max.wait.ms fetch.message.max.bytes
    fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms isolation.level key.deserializer max.partition.fetch.bytes
    max.poll.records queued.max.messages.kbytes queued.min.messages value.deserializer statistics.interval.ms debug
    log_level acks retries linger.ms batch.size buffer.memory compression.type max.request.size delivery.timeout.ms
    max.in.flight.requests.per.connection enable.idempotence transaction.timeout.ms
    """.split()
)
"""Keys of the record clients, which don't concern the membership."""

_DNS_LOOKUP: Final = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")


def membership_settings(
    config: Mapping[str, Any],
    *,
    bootstrap_servers: str,
    group_id: str,
    client_id: str,
    group_instance_id: str | None = None,
) -> dict[str, Any]:
    """Build arguments for :class:`~streams_py.adapters.kafka_python.classic.membership.KafkaPythonMembership`.

    Logs a warning for each key that kafka-python does not support.

    Args:
        config: A main consumer's dotted keys without prefix.
        bootstrap_servers: Comma-separated addresses.
        group_id: The consumer group.
        client_id: The client id.
        group_instance_id: The instance id of a static member, including the thread's suffix.

    Raises:
        ConfigError: A value is not valid.
    """
    _report_unused(config)
    settings: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in bootstrap_servers.split(",")],
        "group_id": group_id,
        "client_id": client_id,
        "group_instance_id": group_instance_id or None,
        "client_rack": config.get("client.rack") or None,
        "client_dns_lookup": _dns_lookup(config),
        "exclude_internal_topics": _flag(config, "exclude.internal.topics", default=True),
        "default_api_timeout_ms": _integer(config, "default.api.timeout.ms", 60_000),
        "socket_options": _socket_options(config),
    }
    for key, default in _INTEGERS.items():
        settings[key.replace(".", "_")] = _integer(config, key, default)
    _check_together(settings)
    return settings | kafka_python_security(parse_security(config))


def _report_unused(config: Mapping[str, Any]) -> None:
    for key, value in config.items():
        if key in _FORCED:
            if str(value).lower() != _FORCED[key]:
                _log.warning("%s=%s is ignored: a Streams member always has %s", key, value, _FORCED[key] or "its own")
        elif not (key in _INTEGERS or key in _OWN or key in _RECORDS_ONLY or is_security_key(key)):
            _log.warning("%s is not supported by kafka-python, so it has no effect on the group membership", key)


def _integer(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key)
    if value is None:
        return default
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ConfigError(f"{key}={value!r} is not valid; expected a whole number of at least 0", key=key)
    return number


def _flag(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = config.get(key)
    if value is None:
        return default
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key}={value!r} is not valid; expected true or false", key=key)
    return text == "true"


def _dns_lookup(config: Mapping[str, Any]) -> str:
    value = str(config.get("client.dns.lookup") or _DNS_LOOKUP[0])
    if value not in _DNS_LOOKUP:
        raise ConfigError(
            f"client.dns.lookup={value!r} is not valid; expected {' or '.join(_DNS_LOOKUP)}", key="client.dns.lookup"
        )
    return value


def _socket_options(config: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """Return socket options, including the buffer sizes: kafka-python ignores its arguments for these.

    A size of 0 or -1 means the operating system's default.
    """
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    if _flag(config, "socket.keepalive.enable", default=True):
        options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    for key, option in (("receive.buffer.bytes", socket.SO_RCVBUF), ("send.buffer.bytes", socket.SO_SNDBUF)):
        if config.get(key) is not None and int(config[key]) == -1:  # in Kafka, the operating system's default
            continue
        size = _integer(config, key, 0)
        if size > 0:
            options.append((socket.SOL_SOCKET, option, size))
    return options


def _check_together(settings: Mapping[str, Any]) -> None:
    if settings["heartbeat_interval_ms"] >= settings["session_timeout_ms"]:
        raise ConfigError(
            f"heartbeat.interval.ms={settings['heartbeat_interval_ms']} must be lower than "
            f"session.timeout.ms={settings['session_timeout_ms']}; a third of the session timeout is a good value",
            key="heartbeat.interval.ms",
        )
