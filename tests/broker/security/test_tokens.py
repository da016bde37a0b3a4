"""OAUTHBEARER on a real broker: tokens are renewed, the provider fails, and the token expires.

The broker accepts unsigned tokens (Kafka's ``OAuthBearerUnsecuredValidatorCallbackHandler``), so no identity provider
is needed. It ends a session after ``connections.max.reauth.ms``, unless the client logs in again on its connection.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streams_py import KafkaStreams, State, StreamsBuilder, serdes
from streams_py.adapters.security.client_settings import librdkafka_settings
from streams_py.adapters.security.settings import parse_security
from streams_py.testing.broker import NoBrokerError
from streams_py.testing.broker.jvm import JvmCluster, free_ports
from streams_py.testing.broker.jvm_node import HOST
from tests.support.waiting import until

pytestmark = pytest.mark.broker

_REAUTH_MS = 3_000
_UNSECURED = "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
_HANDLER = f"{_UNSECURED}.OAuthBearerUnsecuredValidatorCallbackHandler"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


class Site:
    """A broker with a listener for tokens, and one without login for the test itself."""

    def __init__(self, cluster: JvmCluster, address: str) -> None:
        self.address = address
        self._plain: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap}
        self._producer = Producer(self._plain)
        self._written = 0

    def create_topics(self, *names: str) -> None:
        admin = confluent_kafka.admin.AdminClient(self._plain)
        made: Any = confluent_kafka.admin  # it exports more names than its type information lists
        for future in admin.create_topics([made.NewTopic(name, 1, 1) for name in names]).values():
            future.result()

    def write(self, topic: str) -> int:
        """Write one record. Return how many were written to all topics."""
        self._producer.produce(topic, b"word")
        assert self._producer.flush(60) == 0
        self._written += 1
        return self._written

    def last(self, topic: str) -> int:
        """Return the last count in a topic, 0 if it is empty."""
        reader = Consumer({**self._plain, "group.id": "-"})
        try:
            low, end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
            if low == end:
                return 0
            reader.assign([TopicPartition(topic, 0, end - 1)])
            (record,) = reader.consume(1, 60)
            return int.from_bytes(record.value() or b"", "big")
        finally:
            reader.close()


class Provider:
    """An identity provider whose tokens are valid for ``life_s``, and that can fail."""

    def __init__(self, life_s: float) -> None:
        self.life_s = life_s
        self.fails = False
        self.calls = 0

    def __call__(self) -> tuple[str, float]:
        self.calls += 1
        if self.fails:
            raise RuntimeError("no answer")
        now_s = time.time()
        claims = {"sub": "app", "iat": now_s - 1, "exp": now_s + self.life_s}
        return f"{_part({'alg': 'none'})}.{_part(claims)}.", now_s + self.life_s


def _part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    ports = free_ports(2)
    listener = f"OAUTH://{HOST}:{ports[2].broker}"
    prefix = "listener.name.oauth.oauthbearer"
    settings = {
        "listeners": listener,
        "advertised.listeners": listener,
        "listener.security.protocol.map": "OAUTH:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.sasl.server.callback.handler.class": _HANDLER,
        f"{prefix}.sasl.jaas.config": _MODULE,
        f"{prefix}.connections.max.reauth.ms": _REAUTH_MS,
    }
    try:
        cluster = JvmCluster(tmp_path_factory.mktemp("kafka"), settings=settings, short_lived=True)
        cluster.start({1: ports[1]})
    except NoBrokerError as error:
        pytest.skip(f"a broker with OAUTHBEARER needs Java on this machine: {str(error).splitlines()[0]}")
    try:
        yield Site(cluster, f"{HOST}:{ports[2].broker}")
    finally:
        cluster.end(hard=True)


class Application:
    """Counts words in ``<name>-in`` to ``<name>-out``, with a login by tokens."""

    def __init__(self, site: Site, folder: Path, provider: Provider, **more: Any) -> None:
        name = f"tokens-{os.getpid()}-{time.monotonic_ns()}"
        self.input, self.output = f"{name}-in", f"{name}-out"
        self._site = site
        site.create_topics(self.input, self.output)
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        counts = builder.stream(self.input).group_by(lambda _, word: word).count(store="counts")
        counts.to_stream().to(self.output, value=serdes.INT64)
        self.streams = KafkaStreams(
            builder.build(),
            {
                "application.id": name,
                "state.dir": str(folder / "state"),
                "commit.interval.ms": 100,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
                **login(site, provider),
                **more,
            },
        )
        self._sent = 0

    def count(self) -> None:
        """Write a record and wait until it is counted."""
        self._site.write(self.input)
        self._sent += 1
        until(lambda: self._site.last(self.output) >= self._sent, f"the count {self._sent}")


def login(site: Site, provider: Provider) -> dict[str, Any]:
    return {
        "bootstrap.servers": site.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.source": provider,
    }


def test_sessions_are_renewed_and_an_expired_token_is_an_outage_that_ends(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider(life_s=15)
    app = Application(site, tmp_path, provider)
    caplog.set_level(logging.INFO, "streams_py")
    caplog.set_level(logging.DEBUG, "kafka.net")
    with app.streams:
        app.count()
        renewed = "Beginning SASL re-authentication"
        until(lambda: caplog.text.count(renewed) >= 3, "the member's connections to log in again")
        app.count()
        assert "removed this member" not in caplog.text
        assert "re-authentication failed" not in caplog.text
        provider.fails = True
        until(lambda: "keeping the token that is valid for" in caplog.text, "the first failure")
        app.count()
        until(lambda: "and no valid token is left" in caplog.text or "unreachable for" in caplog.text, "the outage")
        before = provider.calls
        until(lambda: provider.calls > before + 8, "further calls of the function")
        provider.fails = False
        app.count()
    assert "works again" in caplog.text


def test_task_timeout_decides_once_the_token_has_expired(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider(life_s=8)
    app = Application(site, tmp_path, provider, **{"task.timeout.ms": 10_000, "commit.interval.ms": 15_000})
    with app.streams:
        app.count()
        provider.fails = True
        site.write(app.input)  # is processed now, and committed after the token has expired
        until(lambda: app.streams.state is State.ERROR, "the end of the application")
    assert "task.timeout.ms is 10000" in caplog.text


def test_librdkafka_logs_in_again_on_its_connection(site: Site) -> None:
    provider, lines = Provider(life_s=600), list[str]()
    name = f"plain-{os.getpid()}"
    site.create_topics(name)

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(Lines())
    security = librdkafka_settings(parse_security(login(site, provider)))
    settings = {"bootstrap.servers": site.address, "debug": "security,broker", **security}
    producer = Producer(settings, logger=logger)

    def written() -> bool:
        producer.produce(name, b"x")
        assert producer.flush(60) == 0
        return sum("REAUTH" in line for line in lines) >= 3

    until(written, "three further logins", pause_s=0.2)
    assert not [line for line in lines if "Disconnected" in line]
    assert provider.calls == 1
