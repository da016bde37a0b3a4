"""Dotted keys to kafka-python's arguments: no key is dropped silently."""

from __future__ import annotations

import socket

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.compat import KafkaNetClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from streams_py.adapters.kafka_python.settings import membership_settings
from streams_py.errors import ConfigError


def settings(config=None, **more):
    given = {"bootstrap_servers": "a:1, b:2", "group_id": "app", "client_id": "app-1-consumer"} | more
    return membership_settings(config or {}, **given)


def test_defaults_are_those_of_kafka_streams():
    made = settings()
    assert made["bootstrap_servers"] == ["a:1", "b:2"]
    assert (made["session_timeout_ms"], made["heartbeat_interval_ms"]) == (45_000, 3_000)
    assert (made["max_poll_interval_ms"], made["request_timeout_ms"]) == (300_000, 40_000)
    assert made["reconnect_backoff_max_ms"] == 1_000, "kafka-python's own 30 s outlive a session"
    assert made["group_instance_id"] is None
    assert made["security_protocol"] == "PLAINTEXT"


@pytest.mark.parametrize(
    ("key", "argument"),
    [
        ("session.timeout.ms", "session_timeout_ms"),
        ("max.poll.interval.ms", "max_poll_interval_ms"),
        ("request.timeout.ms", "request_timeout_ms"),
        ("retry.backoff.ms", "retry_backoff_ms"),
        ("reconnect.backoff.ms", "reconnect_backoff_ms"),
        ("reconnect.backoff.max.ms", "reconnect_backoff_max_ms"),
        ("connections.max.idle.ms", "connections_max_idle_ms"),
        ("metadata.max.age.ms", "metadata_max_age_ms"),
        ("socket.connection.setup.timeout.ms", "socket_connection_setup_timeout_ms"),
        ("default.api.timeout.ms", "default_api_timeout_ms"),
    ],
)
def test_number_is_handed_on_when_given_as_text(key, argument):
    assert settings({key: "123456"})[argument] == 123_456


@pytest.mark.parametrize("value", ["soon", "-5", None.__class__])
def test_error_names_key_and_value_when_a_number_is_wrong(value):
    with pytest.raises(ConfigError, match=r"session\.timeout\.ms") as caught:
        settings({"session.timeout.ms": value})
    assert caught.value.key == "session.timeout.ms"


def test_error_when_heartbeats_are_rarer_than_the_session_allows():
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms=3000 must be lower"):
        settings({"session.timeout.ms": "3000"})


def test_buffer_sizes_become_socket_options_because_kafka_python_ignores_its_own():
    options = settings({"receive.buffer.bytes": "32768", "send.buffer.bytes": 131072})["socket_options"]
    assert (socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768) in options
    assert (socket.SOL_SOCKET, socket.SO_SNDBUF, 131_072) in options


def test_buffer_size_is_the_systems_when_minus_one():
    options = settings({"receive.buffer.bytes": "-1"})["socket_options"]
    assert not [option for _, option, _ in options if option == socket.SO_RCVBUF]


def test_rack_and_instance_reach_the_member():
    made = settings({"client.rack": "r1"}, group_instance_id="app-1")
    assert (made["client_rack"], made["group_instance_id"]) == ("r1", "app-1")
    assert settings({"client.rack": ""})["client_rack"] is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group.protocol", "consumer"),
        ("enable.auto.commit", "true"),
        ("allow.auto.create.topics", "true"),
        ("partition.assignment.strategy", "range"),
    ],
)
def test_warning_names_the_key_when_it_contradicts_what_a_member_must_have(key, value, caplog):
    settings({key: value})
    assert f"{key}={value} is ignored" in caplog.text


@pytest.mark.parametrize("config", [{"group.protocol": "classic"}, {"enable.auto.commit": "false"}])
def test_no_warning_when_the_forced_value_is_given(config, caplog):
    settings(config)
    assert caplog.text == ""


def test_warning_names_the_key_when_kafka_python_lacks_it(caplog):
    settings({"broker.address.family": "v6"})
    assert "broker.address.family is not supported by kafka-python" in caplog.text


def test_no_warning_for_keys_that_concern_records(caplog):
    settings({"max.poll.records": "10", "auto.offset.reset": "latest", "linger.ms": "5", "isolation.level": "x"})
    assert caplog.text == ""


def test_scram_login_reaches_kafka_python():
    made = settings(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "u",
            "sasl.password": "p",
        }
    )
    assert made["security_protocol"] == "SASL_PLAINTEXT"
    assert made["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (made["sasl_plain_username"], made["sasl_plain_password"]) == ("u", "p")


def test_tls_context_reaches_kafka_python():
    made = settings({"security.protocol": "SSL"})
    assert made["ssl_context"].check_hostname is True


def test_token_source_becomes_a_token_provider():
    made = settings(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.source": lambda: ("token", 0.0),
        }
    )
    provider = made["sasl_oauth_token_provider"]
    assert isinstance(provider, AbstractTokenProvider)
    assert provider.token() == "token"


def test_token_source_that_fails_is_a_lost_connection():
    def fails():
        raise RuntimeError("the identity provider is away")

    oauth = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    provider = settings(oauth | {"sasl.oauthbearer.token.source": fails})["sasl_oauth_token_provider"]
    with pytest.raises(KafkaConnectionError, match="no valid token is left"):
        provider.token()


def test_error_when_a_security_key_cannot_be_honoured():
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.password"):
        settings({"ssl.truststore.password": "x"})


def test_every_argument_is_one_that_kafka_python_or_the_member_knows():
    client = KafkaNetClient(**settings({"security.protocol": "SSL"}))
    try:
        of_the_member = {
            "group_id", "group_instance_id", "client_rack", "default_api_timeout_ms", "exclude_internal_topics",
            "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "retry_backoff_ms",
        }  # fmt: skip
        assert set(settings()) - of_the_member <= set(client._manager.config)  # kafka-python does not show them
    finally:
        client.close()
