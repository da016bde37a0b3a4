"""Security settings for kafka-python's clients, with the class that provides OAUTHBEARER tokens.

This module imports kafka-python. :mod:`streams_py.adapters.security.client_settings` imports neither client library.
"""

from __future__ import annotations

from typing import Final

from kafka.errors import KafkaConnectionError
from kafka.net.sasl.oauth import AbstractTokenProvider

from streams_py.adapters.security.client_settings import kafka_python_settings
from streams_py.adapters.security.settings import SecuritySettings, TokenSource
from streams_py.adapters.security.token_source import KeptTokens
from streams_py.errors import BrokerUnavailableError

_PATIENCE_S: Final = 2.0
"""Time that a login waits for a token, in seconds. The thread that waits also sends heartbeats."""


def kafka_python_security(security: SecuritySettings) -> dict[str, object]:
    """Return keyword arguments for kafka-python's clients."""
    settings = kafka_python_settings(security)
    if security.token_source is not None:
        settings["sasl_oauth_token_provider"] = _TokenProvider(
            KeptTokens(security.token_source, patience_s=_PATIENCE_S)
        )
    return settings


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no type information
    """A token provider that calls a token source."""

    def __init__(self, source: TokenSource) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:
        try:
            return self._source()[0]
        except BrokerUnavailableError as error:  # a lost connection, which the client establishes again
            raise KafkaConnectionError(str(error)) from error
