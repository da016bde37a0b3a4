"""TLS and credentials of the REST interface and of requests between workers.

The keys are Kafka Connect's: ``listeners.https.ssl.*``, or ``ssl.*`` without such keys. The listener's
certificate is also the client certificate of a worker's own requests. The trust store is used for callers
(``ssl.client.auth``) and for other workers. Stores are PEM files, or PEM text in the settings.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx

from streams_py.adapters.security.settings import parse_security
from streams_py.adapters.security.tls import server_tls_context, tls_context
from streams_py.connect.errors import ConnectError
from streams_py.connect.rest.authentication import Credentials
from streams_py.errors import ConfigError
from streams_py.system.printable import printable

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
    ``trusted_hosts`` are hosts to which credentials may be sent in clear text, in lower case.
    """

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    credentials: Credentials | None = field(default=None, repr=False)
    trusted_hosts: frozenset[str] = frozenset()

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

    def check_target(self, url: str, headers: Mapping[str, str]) -> None:
        """Check the target of a request. Members of the group give the URLs of other workers.

        Raises:
            ConnectError: A worker with TLS would send a request in clear text, or the headers contain credentials, and
                the target is neither https, nor loopback, nor a trusted host.
        """
        try:
            target = httpx.URL(url)
        except httpx.InvalidURL:
            raise ConnectError("another worker advertises an address that is not a URL") from None
        if target.scheme == "https":
            return
        shown = printable(f"{target.scheme}://{target.netloc.decode('ascii', 'replace')}")
        if self.client is not None:
            raise ConnectError(
                f"the worker at {shown} has no https listener, but this one has; use https on all workers"
            )
        has_credentials = any(name.lower() == "authorization" for name in headers)
        if has_credentials and not _is_loopback(target.host) and target.host.lower() not in self.trusted_hosts:
            raise ConnectError(
                f"credentials are not sent in clear text to the worker at {shown}, because a member of the group can "
                "name any address; use https on all workers, or add its host to rest.accepted.names"
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_without_https(scheme: str, listener: Mapping[str, str]) -> None:
    """Raise ConfigError for TLS settings without a TLS listener."""
    if scheme != "https" and listener:
        key = min(listener)
        raise ConfigError(f"{key} requires TLS, but listeners has no https listener; add one", key=key)
