"""Security keys: understood for both client libraries, or refused with what to use instead."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import admin, consumer
from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.security.client_settings import kafka_python_settings, librdkafka_settings
from streams_py.adapters.security.settings import Mechanism, SecurityProtocol, parse_security
from streams_py.adapters.security.tls import tls_context
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ConfigError

SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "ann",
    "sasl.password": "s3",
}


def test_plaintext_is_the_default() -> None:
    security = parse_security({"application.id": "app"})
    assert security.protocol is SecurityProtocol.PLAINTEXT
    assert librdkafka_settings(security) == {"security.protocol": "plaintext"}
    assert kafka_python_settings(security) == {"security_protocol": "PLAINTEXT"}


def test_scram_reaches_both_libraries_under_their_names() -> None:
    security = parse_security(SCRAM)
    native, python = librdkafka_settings(security), kafka_python_settings(security)
    assert {key: native[key] for key in native if "sasl" in key} == {
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "s3",
    }
    assert native["security.protocol"] == "sasl_ssl"
    assert (python["sasl_mechanism"], python["sasl_plain_username"], python["sasl_plain_password"]) == (
        "SCRAM-SHA-512",
        "ann",
        "s3",
    )


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        (
            "PLAIN",
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a\\"b;c";',
        ),
        (
            "SCRAM-SHA-256",
            "org.apache.kafka.common.security.scram.ScramLoginModule required\n password='a\"b;c' username='ann' ;",
        ),
    ],
)
def test_jaas_config_is_read_when_it_holds_a_login(mechanism: str, jaas: str) -> None:
    security = parse_security(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    )
    assert (security.mechanism, security.username, security.password) == (Mechanism(mechanism), "ann", 'a"b;c')


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ssl.keystore.password": "x"}, r"ssl\.keystore\.password cannot be used: .*ssl\.key\.password"),
        ({"ssl.truststore.location": "/x.jks"}, r"store of type JKS cannot be used; set ssl\.ca\.location"),
        ({"ssl.truststore.type": "PKCS12"}, r"store of type PKCS12 cannot be used"),
        ({"sasl.kerberos.service.name": "kafka"}, "Kerberos is not built into"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "Kerberos is not built into"),
        ({"security.protocol": "SASL_SSL"}, r"needs sasl\.mechanism"),
        ({"security.protocol": "TLS"}, r"security\.protocol='TLS' is not allowed; use PLAINTEXT"),
        ({"ssl.engine.factory.class": "x"}, "remove it"),
        ({"ssl.what.is.this": "x"}, r"ssl\.what\.is\.this cannot be used: .*supported are: .*ssl\.ca\.location"),
        ({"sasl.oauthbearer.token.endpoint.url": "x"}, r"sasl\.oauthbearer\.token\.source"),
        ({"ssl.ca.location": "/no/such/file"}, "no readable file at '/no/such/file'"),
        ({"ssl.certificate.pem": "x"}, r"ssl\.key\.location is missing"),
        ({"ssl.ca.pem": "x", "ssl.truststore.certificates": "y"}, "configure the same thing"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "OpenSSL's names"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "restrict versions on the broker"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "use https, or empty"),
        ({"enable.ssl.certificate.verification": "maybe"}, "must be true or false"),
        (SCRAM | {"sasl.password": None}, r"needs sasl\.password"),
        (SCRAM | {"sasl.jaas.config": "x"}, "configure the same thing"),
    ],
)
def test_config_error_says_what_to_do_when_a_key_cannot_be_honoured(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_security(keys)


@pytest.mark.parametrize(
    ("jaas", "message"),
    [
        ("secret-without-form", "must read"),
        (
            'com.example.OwnLoginModule required username="a" password="secret";',
            "is not supported; use PlainLoginModule",
        ),
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user="a" password="secret";',
            "options user",
        ),
        ('org.apache.kafka.common.security.plain.PlainLoginModule required password="secret";', "needs username"),
        ('org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="secret";', "not for"),
        ("org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=secret;", "quoted"),
    ],
)
def test_jaas_error_hides_the_secret_when_it_cannot_be_read(jaas: str, message: str) -> None:
    keys = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    with pytest.raises(ConfigError, match=message) as caught:
        parse_security(keys)
    assert "secret" not in str(caught.value).replace("secret-without-form", "")


def test_secrets_are_not_in_the_repr() -> None:
    assert "s3" not in repr(parse_security(SCRAM))


def test_token_source_reaches_librdkafka_as_its_callback() -> None:
    security = parse_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.source": lambda: ("token", 5.0),
        }
    )
    callback = librdkafka_settings(security)["oauth_cb"]
    assert callable(callback)
    assert callback("ignored") == ("token", 5.0)


class _Provider:
    def token(self) -> tuple[str, float]:
        return "token", 5.0


@pytest.mark.parametrize(
    "source",
    [lambda: ("token", 5.0), _Provider().token, functools.partial(_Provider.token, _Provider())],
    ids=["function", "method", "partial"],
)
def test_token_source_of_an_application_may_be_a_function(source: Callable[[], tuple[str, float]]) -> None:
    settings = {"application.id": "a", "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL"}
    settings |= {"sasl.mechanism": "OAUTHBEARER"}
    config = StreamsConfig.of(settings | {"sasl.oauthbearer.token.source": source})
    found = parse_security(config.settings_for(ClientRole.MAIN_CONSUMER)).token_source
    assert found is not None
    assert found() == ("token", 5.0)


OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


def test_token_source_may_be_named_by_module_and_function() -> None:
    named = parse_security(OAUTH | {"sasl.oauthbearer.token.source": "os:getcwd"})
    assert named.token_source is not None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("os:nothing", "no function nothing in module os"),
        ("no_such_module:f", "No module named"),
        (5, "give a function"),
    ],
)
def test_token_source_refused_when_it_is_no_function(source: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_security(OAUTH | {"sasl.oauthbearer.token.source": source})


# -- TLS ---------------------------------------------------------------------------------------------------------------


def test_tls_checks_host_and_certificate_unless_told_otherwise() -> None:
    context = tls_context(parse_security({"security.protocol": "SSL"}))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    lax = tls_context(parse_security({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}))
    assert not lax.check_hostname
    assert lax.verify_mode is ssl.CERT_REQUIRED


def test_tls_error_names_the_key_and_hides_the_content_when_pem_is_damaged(tmp_path: Path) -> None:
    damaged = tmp_path / "ca.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n")
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location cannot be used by TLS") as caught:
        tls_context(parse_security({"security.protocol": "SSL", "ssl.ca.location": str(damaged)}))
    assert "c2VjcmV0" not in str(caught.value)


def test_tls_key_that_is_encrypted_is_an_error_and_no_question_when_the_password_is_wrong() -> None:
    keys = {"security.protocol": "SSL", "ssl.certificate.pem": "no certificate", "ssl.key.pem": "no key"}
    with pytest.raises(ConfigError, match=r"ssl\.certificate / ssl\.key cannot be used by TLS"):
        tls_context(parse_security(keys))


@pytest.mark.parametrize(
    "use",
    [ConfluentConsumer, lambda settings: ConfluentAdmin(settings).delete_records({TopicPartition("t", 0): 1})],
    ids=["consumer", "admin"],
)
def test_client_that_gets_no_token_is_an_outage_and_no_wrong_setting(
    use: Callable[[Mapping[str, Any]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admin client is created again after lost connections, so this may happen while the application runs."""

    def refuses(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FAIL, "OAuth token not set within 10 seconds timeout"))

    monkeypatch.setattr(admin, "AdminClient", refuses)
    monkeypatch.setattr(consumer, "Consumer", refuses)
    settings = {"bootstrap.servers": "localhost:1", "client.id": "c", "oauth_cb": lambda _: ("token", 1.0)}
    with pytest.raises(BrokerUnavailableError, match=r"sasl\.oauthbearer\.token\.source returned no token"):
        use(settings)
