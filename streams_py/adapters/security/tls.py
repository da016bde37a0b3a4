"""Build Python's TLS context from security settings, for the client library that uses it (kafka-python).

librdkafka contains its own OpenSSL and has a setting for each value; see
:mod:`streams_py.adapters.security.client_settings`.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from streams_py.errors import ConfigError

if TYPE_CHECKING:
    from streams_py.adapters.security.settings import SecuritySettings


def tls_context(security: SecuritySettings) -> ssl.SSLContext:
    """Build a client's TLS context. Raises ConfigError when the key material cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = security.verify_hostname and security.verify_certificate
    if not security.verify_certificate:
        context.verify_mode = ssl.CERT_NONE
    return _configured(context, security)


def server_tls_context(security: SecuritySettings, client_auth: ssl.VerifyMode) -> ssl.SSLContext:
    """Build the TLS context of a listener. ``client_auth``: whether callers need a certificate of a trusted authority.

    Raises:
        ConfigError: The key material cannot be used, or is missing.
    """
    if not (security.certificate_file or security.certificate_pem):
        raise ConfigError(
            "ssl.keystore.location is missing: an https listener needs a certificate", key="ssl.keystore.location"
        )
    if client_auth is not ssl.CERT_NONE and not (security.ca_file or security.ca_pem):
        raise ConfigError(
            "ssl.truststore.location is missing: ssl.client.auth requires the authorities of accepted certificates",
            key="ssl.truststore.location",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = client_auth
    return _configured(context, security)


def _configured(context: ssl.SSLContext, security: SecuritySettings) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if security.ciphers:
        _using("ssl.cipher.suites", lambda: context.set_ciphers(security.ciphers or ""))
    if security.ca_file or security.ca_pem:
        key = "ssl.ca.location" if security.ca_file else "ssl.ca.pem"
        _using(key, lambda: context.load_verify_locations(cafile=security.ca_file, cadata=security.ca_pem))
    else:
        context.load_default_certs()
    if security.crl_file:
        _using("ssl.crl.location", lambda: context.load_verify_locations(cafile=security.crl_file))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if security.certificate_file or security.certificate_pem:
        _using("ssl.certificate / ssl.key", lambda: _load_identity(context, security))
    return context


def _using(key: str, action: Callable[[], None]) -> None:
    try:
        action()
    except (ssl.SSLError, ValueError, OSError) as error:
        # The reason is OpenSSL's code, e.g. NO_START_LINE. The error's text could quote the input.
        reason = getattr(error, "reason", None) or type(error).__name__
        raise ConfigError(f"{key} cannot be used by TLS: {reason}", key=key) from None


def _load_identity(context: ssl.SSLContext, security: SecuritySettings) -> None:
    """Load certificate and key. ``ssl`` reads both only from files, so inline PEM is written to a private folder."""
    # An empty password instead of None, because OpenSSL would otherwise prompt for the password of an encrypted key.
    password = security.key_password or ""
    with tempfile.TemporaryDirectory(prefix="streams-py-") as folder:  # mode 0700, deleted right after
        context.load_cert_chain(
            security.certificate_file or _private_file(folder, "certificate.pem", security.certificate_pem or ""),
            security.key_file or _private_file(folder, "key.pem", security.key_pem or ""),
            lambda: password,
        )


def _private_file(folder: str, name: str, content: str) -> str:
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
    return path
