"""The names of configuration keys other than those of Kafka Streams itself, and the detection of secret keys."""

from __future__ import annotations

import re
from typing import Final

from streams_py.config.client_keys import CLIENT_PREFIXES
from streams_py.config.secrets import redact

PREFIXES: Final = (*CLIENT_PREFIXES, "topic.", "client.tag.", "app.")

# Keys of Kafka's clients that are allowed without a prefix. Keys with a prefix are passed on unchecked; the adapters
# refuse keys that neither client library supports.
CLIENT_KEYS: Final = frozenset(
    """
    security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password sasl.jaas.config
    sasl.kerberos.service.name sasl.kerberos.kinit.cmd sasl.kerberos.keytab sasl.kerberos.principal
    sasl.login.callback.handler.class sasl.oauthbearer.config sasl.oauthbearer.method sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    sasl.oauthbearer.token.source sasl.oauthbearer.extensions sasl.oauthbearer.jwks.endpoint.url
    ssl.ca.location ssl.certificate.location ssl.key.location ssl.key.password ssl.ca.pem ssl.certificate.pem
    ssl.key.pem ssl.cipher.suites ssl.enabled.protocols ssl.protocol ssl.endpoint.identification.algorithm
    ssl.crl.location ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.keystore.key
    ssl.keystore.certificate.chain ssl.truststore.location ssl.truststore.password ssl.truststore.type
    ssl.truststore.certificates enable.ssl.certificate.verification
    session.timeout.ms heartbeat.interval.ms max.poll.interval.ms max.poll.records auto.offset.reset client.rack
    group.instance.id fetch.min.bytes fetch.max.bytes fetch.max.wait.ms max.partition.fetch.bytes
    isolation.level check.crcs default.api.timeout.ms group.protocol enable.auto.commit
    acks retries linger.ms batch.size buffer.memory compression.type max.request.size delivery.timeout.ms
    max.in.flight.requests.per.connection enable.idempotence transaction.timeout.ms
    broker.address.family socket.keepalive.enable socket.connection.setup.timeout.ms
    socket.connection.setup.timeout.max.ms client.dns.lookup allow.auto.create.topics
    """.split()
)

# Keys of Kafka Streams for Java that do not exist here, each with what to do instead.
INSTEAD: Final = {
    "allow.os.group.write.access": "state directories are private to the user of the process; remove the key",
    "built.in.metrics.version": "the metrics have only one version; remove the key",
    "dsl.store.format": "timestamped stores keep no headers; remove the key",
    "enable.metrics.push": "the clients do not push metrics; use MetricsServer or OpenTelemetry",
    "errors.dead.letter.queue.topic.name": "give deserialization.exception.handler, processing.exception.handler or "
    "production.exception.handler a DeadLetterQueue('topic')",
    "metric.reporters": "use MetricsServer or OpenTelemetry",
    "metrics.num.samples": "metrics have no windows of samples; see metrics.recording.level",
    "metrics.sample.window.ms": "metrics have no windows of samples; see metrics.recording.level",
    "processing.exception.handler.global.enabled": "the processing handler is not called for global processors; "
    "remove the key",
    "processor.wrapper.class": "wrap processors where the topology adds them",
    "rocksdb.config.setter": "RocksDB's options are fixed, and its memory is shared by the process; remove the key",
    "window.size.ms": "pass the window size to time_windowed()",
    "windowed.inner.class.serde": "pass the inner serde to time_windowed() or session_windowed()",
}

# Old names of keys. If both names are set, the new one has precedence.
RENAMED: Final = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
    "default.dsl.store": "dsl.store.suppliers.class",
}

_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|(^|[._-])(pass|pwd|sas|sig)([._-]|$)|secret|jaas|credential|token$|signature$|user[._-]?info"
    r"|(api|access|account|private)[._-]?key|\.key\.pem$|keystore\.key$"
    r"|oauthbearer\.(config|extensions)$|kinit\.cmd$",
    re.IGNORECASE,
)
_SHOWN_CHARS_MAX: Final = 80


# The meaning of application settings is unknown, so their values are shown only if the name indicates a harmless value.
_HARMLESS: Final = re.compile(
    r"(^|[._-])(ms|s|seconds|minutes|hours|days|bytes|size|count|max|min|limit|level|enabled|enable|interval|timeout"
    r"|topics?|keys|name|mode|region|zone|rack|version|retries|threads|partitions|host|port|path|dir|format|window|threshold)$",
    re.IGNORECASE,
)


def is_secret(key: str) -> bool:
    """Whether the value of ``key`` must never be shown."""
    if _SECRET.search(key) is not None:
        return True
    return key.startswith("app.") and _HARMLESS.search(key) is None


def shown(key: str, value: object) -> object:
    """Return ``value`` without secrets. The value of a secret key is hidden completely.

    In other texts, secrets such as the password of a URL or the value after ``password=`` are replaced.
    """
    if is_secret(key):
        return "[hidden]"
    return redact(value) if isinstance(value, str) else value


def masked(key: str, value: object) -> str:
    """As :func:`shown`, as text for a message, truncated if it is long."""
    if is_secret(key):
        return "[hidden]"
    text = redact(repr(value))
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}... ({len(text)} characters)"
