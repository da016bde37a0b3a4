"""Kafka's dotted keys under librdkafka's names."""

from __future__ import annotations

import logging

import confluent_kafka
import pytest

from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings
from streams_py.adapters.confluent.settings import (
    Settings,
    admin_settings,
    at_least_once_settings,
    chooses_delivery_timeout,
    consumer_settings,
    producer_settings,
    rejected_setting,
)
from streams_py.clients.factory import KafkaClients
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError


def config(**keys: object) -> StreamsConfig:
    return StreamsConfig.of({"application.id": "app", "bootstrap.servers": "broker:9092"} | keys)


def of_consumer(keys: dict[str, object], role: ClientRole = ClientRole.MAIN_CONSUMER) -> Settings:
    return consumer_settings(config(**keys), role, bootstrap="broker:9092", client_id="c")


def of_producer(keys: dict[str, object]) -> Settings:
    return producer_settings(config(**keys), bootstrap="broker:9092", client_id="c")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("fetch.max.wait.ms", "250", {"fetch.wait.max.ms": "250"}),
        ("max.partition.fetch.bytes", "5000", {"fetch.message.max.bytes": "5000"}),
        ("fetch.min.bytes", "9", {"fetch.min.bytes": "9"}),
        ("client.rack", "r1", {"client.rack": "r1"}),
        ("consumer.check.crcs", "false", {"check.crcs": "false"}),
        ("request.timeout.ms", 30_000, {"socket.timeout.ms": 30_000}),
        ("request.timeout.ms", 1, {"socket.timeout.ms": 2_000}),
        ("receive.buffer.bytes", -1, {"socket.receive.buffer.bytes": 0}),
        ("send.buffer.bytes", 70_000, {"socket.send.buffer.bytes": 70_000}),
        ("metadata.max.age.ms", 1_000, {"topic.metadata.refresh.interval.ms": 1_000, "metadata.max.age.ms": 3_000}),
        ("reconnect.backoff.max.ms", 2_000, {"reconnect.backoff.max.ms": "2000"}),
        ("main.consumer.queued.min.messages", "7", {"queued.min.messages": "7"}),
        ("isolation.level", "read_committed", {"isolation.level": "read_committed"}),
    ],
)
def test_consumer_key_is_translated(key: str, value: object, expected: Settings) -> None:
    settings = of_consumer({key: value})
    assert {name: settings[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("acks", "1", {"acks": "1", "enable.idempotence": False, "max.in.flight.requests.per.connection": 1}),
        ("producer.buffer.memory", "33554432", {"queue.buffering.max.kbytes": 32_768}),
        ("max.request.size", "2000000", {"message.max.bytes": "2000000"}),
        ("delivery.timeout.ms", "5000", {"delivery.timeout.ms": 5_000}),
        ("producer.compression.zstd.level", "3", {"compression.level": "3"}),
        ("compression.type", "lz4", {"compression.type": "lz4"}),
        ("linger.ms", "0", {"linger.ms": "0"}),
        ("producer.max.in.flight.requests.per.connection", "2", {"max.in.flight.requests.per.connection": "2"}),
    ],
)
def test_producer_key_is_translated(key: str, value: object, expected: Settings) -> None:
    settings = of_producer({key: value})
    assert {name: settings[name] for name in expected} == expected


def test_defaults_are_those_of_kafka_streams() -> None:
    producer, consumer = of_producer({}), of_consumer({})
    assert (producer["partitioner"], producer["linger.ms"], producer["enable.idempotence"], producer["acks"]) == (
        "murmur2_random",
        100,
        True,
        "all",
    )
    assert consumer["isolation.level"] == "read_uncommitted"
    assert consumer["fetch.queue.backoff.ms"] == 1
    assert consumer["group.id"] == "app"


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, "read_uncommitted"),
        ({"isolation.level": "read_committed"}, "read_committed"),
        ({"consumer.isolation.level": "read_committed"}, "read_committed"),
        ({"main.consumer.isolation.level": "read_committed"}, "read_committed"),
        (
            {"consumer.isolation.level": "read_committed", "main.consumer.isolation.level": "read_uncommitted"},
            "read_uncommitted",
        ),
        ({"restore.consumer.isolation.level": "read_committed"}, "read_uncommitted"),
        (
            {"main.consumer.isolation.level": "read_committed", "restore.consumer.isolation.level": "read_uncommitted"},
            "read_committed",
        ),
        ({"global.consumer.isolation.level": "read_committed"}, "read_uncommitted"),
    ],
)
def test_restore_consumer_reads_the_records_that_the_main_consumer_reads(
    given: dict[str, object], level: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "b:1", **given})
    for role in (ClientRole.MAIN_CONSUMER, ClientRole.RESTORE_CONSUMER):
        assert consumer_settings(config, role, bootstrap="b:1", client_id="c")["isolation.level"] == level
    ignored = [record for record in caplog.records if "restore.consumer.isolation.level" in record.getMessage()]
    assert bool(ignored) == ("restore.consumer.isolation.level" in given)


def test_no_reader_rests_for_a_second_because_its_queue_was_full() -> None:
    bulk = bulk_consumer_settings({"bootstrap.servers": "localhost:1"}, client_id="r", read_committed=True)
    for settings in (of_consumer({}), bulk):
        assert settings["fetch.queue.backoff.ms"] == 1


def test_forced_setting_wins_and_warns_when_the_user_contradicts(caplog: pytest.LogCaptureFixture) -> None:
    settings = of_consumer({"enable.auto.commit": "true", "consumer.allow.auto.create.topics": "true"})
    assert (settings["enable.auto.commit"], settings["allow.auto.create.topics"]) == (False, False)
    assert "enable.auto.commit = true is ignored" in caplog.text


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("consumer.group.id", "mine", "application.id names the group"),
        ("main.consumer.group.id", "mine", "application.id names the group"),
        ("restore.consumer.client.id", "mine", "clients are named after client.id without a prefix"),
        ("producer.bootstrap.servers", "other:9092", "all clients use the cluster that bootstrap.servers"),
        ("admin.bootstrap.servers", "other:9092", "all clients use the cluster that bootstrap.servers"),
        ("producer.transactional.id", "mine", "exactly-once assigns one to each stream thread"),
        ("global.consumer.auto.offset.reset", "latest", "topics of global stores are read from their checkpoints"),
    ],
)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_setting_that_an_application_makes_itself_is_ignored_aloud_and_once(
    key: str, value: str, why: str, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"application.id": "app", "bootstrap.servers": "127.0.0.1:1", "processing.guarantee": guarantee}
    clients = KafkaClients(StreamsConfig.of({**given, key: value, "client.id": "c"}))
    clients.close()
    (said,) = caplog.messages
    assert said.startswith(f"{key} = {value} is ignored: {why}")
    assert value not in of_consumer({key: value}, ClientRole.RESTORE_CONSUMER).values()


def test_setting_that_an_application_makes_itself_needs_no_warning_without_a_prefix_or_for_another_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"application.id": "app", "bootstrap.servers": "127.0.0.1:1", "client.id": "c"}
    KafkaClients(StreamsConfig.of({**given, "consumer.auto.offset.reset": "latest"})).close()
    assert caplog.messages == []


def test_stronger_prefix_wins_when_a_key_is_given_twice() -> None:
    keys: dict[str, object] = {
        "fetch.min.bytes": "1",
        "consumer.fetch.min.bytes": "2",
        "restore.consumer.fetch.min.bytes": "3",
    }
    assert of_consumer(keys)["fetch.min.bytes"] == "2"
    assert of_consumer(keys, ClientRole.RESTORE_CONSUMER)["fetch.min.bytes"] == "3"


def test_other_clients_keys_do_not_reach_a_client() -> None:
    keys: dict[str, object] = {
        "acks": "all",
        "fetch.min.bytes": "5",
        "session.timeout.ms": "9000",
        "max.poll.records": "7",
    }
    assert not of_consumer(keys).keys() & {"acks", "session.timeout.ms", "max.poll.records"}
    assert not of_producer(keys).keys() & {"fetch.min.bytes", "session.timeout.ms"}
    admin = admin_settings(config(**keys), bootstrap="broker:9092", client_id="c")
    assert not admin.keys() & {"acks", "fetch.min.bytes", "session.timeout.ms"}


def test_java_only_key_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings = of_producer({"producer.interceptor.classes": "com.example.Tap"})
    assert "interceptor.classes" not in settings
    assert "interceptor.classes is for Java clients only" in caplog.text


def test_acks_refused_when_idempotence_is_demanded_too() -> None:
    with pytest.raises(ConfigError, match=r"acks = 1 contradicts enable\.idempotence"):
        of_producer({"acks": "1", "enable.idempotence": "true"})


def test_number_refused_when_it_is_none() -> None:
    with pytest.raises(ConfigError, match=r"buffer\.memory = 'lots' is not valid: expected a whole number"):
        of_producer({"producer.buffer.memory": "lots"})


def test_security_reaches_every_client() -> None:
    keys: dict[str, object] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    clients = (of_consumer(keys), of_producer(keys), admin_settings(config(**keys), bootstrap="b:1", client_id="c"))
    for settings in clients:
        assert settings["security.protocol"] == "sasl_plaintext"
        assert settings["sasl.password"] == "p"


# -- what only librdkafka can judge ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "producer.lingre.ms",
            "5",
            r"lingre\.ms is not a setting of Kafka's or librdkafka's clients; did you mean linger\.ms\?",
        ),
        ("compression.type", "zip", r"compression\.type = 'zip' is not valid"),
        ("linger.ms", "soon", r"linger\.ms = 'soon' is not valid"),
        (
            "max.in.flight.requests.per.connection",
            "10",
            r"producer: max\.in\.flight\.requests\.per\.connection = '10' is not valid: .* must be set <= 5",
        ),
        ("producer.ssl.key.password", "hunter2", None),
    ],
)
def test_config_error_names_the_key_when_librdkafka_refuses(key: str, value: str, message: str | None) -> None:
    clients = ConfluentClients(config(**{key: value}))
    if message is None:  # understood, unused without TLS
        clients.producer("t").close()
        return
    with pytest.raises(ConfigError, match=message):
        clients.producer("t")


def test_secret_is_not_shown_when_librdkafka_refuses_it() -> None:
    error = rejected_setting(
        "ssl.key.pem failed: MIIC-secret not in PEM format", {"ssl.key.pem": "MIIC-secret"}, "producer"
    )
    assert "MIIC-secret" not in str(error)
    assert "ssl.key.pem" in str(error)


def test_every_setting_is_known_to_the_installed_librdkafka() -> None:
    secured: dict[str, object] = {"security.protocol": "SSL", "ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"}
    confluent_kafka.Consumer(of_consumer(secured)).close()
    confluent_kafka.Producer(of_producer(secured)).close()
    confluent_kafka.Producer(of_producer({"acks": "1"})).close()


def at_least_once(**keys: object) -> tuple[object, ...]:
    """Timeout and queue (records, kB) of the producer of a thread."""
    settings = at_least_once_settings(config(**keys), bootstrap="broker:9092", client_id="c")
    names = ("delivery.timeout.ms", "queue.buffering.max.messages", "queue.buffering.max.kbytes")
    return tuple(settings[name] for name in names)


def test_record_waits_no_longer_than_others_leave_its_task_alone() -> None:
    assert at_least_once() == (30_000, 150_000, 120_000)
    assert at_least_once(**{"session.timeout.ms": "6000"}) == (4_000, 100_000, 65_536)
    assert at_least_once(**{"main.consumer.session.timeout.ms": 6_000}) == (4_000, 100_000, 65_536)
    assert at_least_once(**{"session.timeout.ms": 1_800_000}) == (120_000, 500_000, 262_144)


def test_record_lives_for_longer_than_it_waits_for_company(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("linger.ms", "queue.buffering.max.ms"):
        assert at_least_once(**{f"producer.{name}": 5_000, "session.timeout.ms": 6_000})[0] == 10_001
    assert caplog.text.count("linger.ms = 5000 is long compared with session.timeout.ms = 6000") == 2
    KafkaClients(config(**{"producer.queue.buffering.max.ms": 40_000})).close()


def test_what_the_user_says_of_the_producer_is_kept() -> None:
    assert at_least_once(**{"producer.delivery.timeout.ms": 90_000}) == (90_000, 500_000, 262_144)
    assert at_least_once(**{"delivery.timeout.ms": 90_000}) == (90_000, 500_000, 262_144)
    assert not chooses_delivery_timeout(config(**{"producer.message.timeout.ms": "90000"}))
    assert at_least_once(**{"producer.queue.buffering.max.messages": "7000"}) == (30_000, "7000", 120_000)
    assert at_least_once(**{"producer.buffer.memory": 2048}) == (30_000, 500_000, 2)
