"""Translate security settings for each client library; see :mod:`streams_py.adapters.security.settings`."""

from __future__ import annotations

from typing import Final

from streams_py.adapters.security.settings import SecuritySettings
from streams_py.adapters.security.tls import tls_context
from streams_py.adapters.security.token_source import KeptTokens

_FIRST_TOKEN_S: Final = 8.0
"""Time for retries of one call, in seconds: confluent-kafka gives up creating a client after 10 s without a token."""


def librdkafka_settings(security: SecuritySettings) -> dict[str, object]:
    """Return the settings with librdkafka's names, for a confluent-kafka configuration."""
    protocol = security.protocol
    settings: dict[str, object | None] = {"security.protocol": protocol.value.lower()}
    if protocol.tls:
        settings |= {
            "ssl.ca.location": security.ca_file,
            "ssl.ca.pem": security.ca_pem,
            "ssl.certificate.location": security.certificate_file,
            "ssl.certificate.pem": security.certificate_pem,
            "ssl.key.location": security.key_file,
            "ssl.key.pem": security.key_pem,
            "ssl.key.password": security.key_password,
            "ssl.crl.location": security.crl_file,
            "ssl.cipher.suites": security.ciphers,
            "ssl.endpoint.identification.algorithm": "https" if security.verify_hostname else "none",
            "enable.ssl.certificate.verification": "true" if security.verify_certificate else "false",
        }
    if protocol.sasl and security.mechanism is not None:
        settings["sasl.mechanisms"] = security.mechanism.value
        source = security.token_source
        if source is not None:
            tokens = KeptTokens(source, patience_s=_FIRST_TOKEN_S, retries=True)  # called on librdkafka's own thread
            settings["oauth_cb"] = lambda _config: tokens()
        else:
            settings |= {"sasl.username": security.username, "sasl.password": security.password}
    return {key: value for key, value in settings.items() if value is not None}


def kafka_python_settings(security: SecuritySettings) -> dict[str, object]:
    """Return the settings as keyword arguments for kafka-python's clients.

    The token provider of OAUTHBEARER is not included, because its class requires importing the library; see
    :mod:`streams_py.adapters.security.kafka_python`.
    """
    protocol = security.protocol
    settings: dict[str, object] = {"security_protocol": protocol.value}
    if protocol.tls:
        settings["ssl_context"] = tls_context(security)
    if protocol.sasl and security.mechanism is not None:
        settings["sasl_mechanism"] = security.mechanism.value
        if security.token_source is None:
            settings |= {"sasl_plain_username": security.username, "sasl_plain_password": security.password}
    return settings
