"""TLS and credentials of the REST interface and of requests between workers.

The keys are Kafka Connect's: ``listeners.https.ssl.*``, or ``ssl.*`` without such keys. The listener's
certificate is also the client certificate of a worker's own requests. The trust store is used for callers
(``ssl.client.auth``) and for other workers. Stores are PEM files, or PEM text in the settings.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from streams_py.adapters.security.settings import parse_security
from streams_py.adapters.security.tls import server_tls_context, tls_context
from streams_py.connect.errors import ConnectError
from streams_py.connect.rest.authentication import Credentials
from streams_py.errors import ConfigError

HTTPS: Final = "listeners.https."
CLIENT_AUTH: Final = "ssl.client.auth"
_MODES: Final[Mapping[str, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class RestProtection:
    """TLS contexts and credentials.

    ``server`` and ``client`` are None without an https listener, ``credentials`` without basic authentication.
    """

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    credentials: Credentials | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, scheme: str, listener: Mapping[str, str], shared: Mapping[str, str], credentials: str | None
    ) -> RestProtection:
        """Read files and settings.

        Args:
            scheme: Scheme of the listener, ``http`` or ``https``.
            listener: Settings with the prefix ``listeners.https.``, and ``ssl.client.auth``.
            shared: ``ssl.*`` of the worker, which Kafka clients use as well.
            credentials: The file with users and passwords.

        Raises:
            ConfigError: A setting is not valid, or requires TLS although the listener has no TLS.
        """
        users = None if credentials is None else Credentials.read(credentials)
        refuse_without_https(scheme, listener)
        if scheme != "https":
            return cls(credentials=users)
        prefix = HTTPS if any(key.startswith(HTTPS) for key in listener) else ""
        given = {key.removeprefix(HTTPS): value for key, value in listener.items() if key.startswith(prefix)}
        given = given if prefix else {**shared, **given}
        auth = given.pop(CLIENT_AUTH, "none").strip().lower()
        if auth not in _MODES:
            raise ConfigError(f"{prefix}{CLIENT_AUTH} = {auth!r} must be none, requested or required", key=CLIENT_AUTH)
        for key in sorted(given):
            if not key.startswith("ssl."):
                raise ConfigError(f"{prefix}{key} is not a setting of a listener here; remove it", key=f"{prefix}{key}")
        try:
            security = parse_security(given)
            return cls(server_tls_context(security, _MODES[auth]), tls_context(security), users)
        except ConfigError as error:
            raise ConfigError(f"{prefix}{error}", key=f"{prefix}{error.key}") from None

    def own_headers(self) -> dict[str, str]:
        """Return headers for a worker's own requests."""
        return {} if self.credentials is None else {"Authorization": self.credentials.header}

    def check_target(self, url: str) -> None:
        """Raise ConnectError if a worker with TLS would send a request in clear text.

        Members of the group give the URLs of other workers, and the request may contain credentials.
        """
        if self.client is not None and not url.lower().startswith("https://"):
            raise ConnectError(f"the worker at {url} has no https listener, but this one has; use https on all workers")


def refuse_without_https(scheme: str, listener: Mapping[str, str]) -> None:
    """Raise ConfigError for TLS settings without a TLS listener."""
    if scheme != "https" and listener:
        key = min(listener)
        raise ConfigError(f"{key} requires TLS, but listeners has no https listener; add one", key=key)
