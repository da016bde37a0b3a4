"""Check whether the cluster accepts this client, on a plain socket and before the client libraries connect.

Neither library distinguishes an unreachable broker from a broker that will never accept the client: an untrusted
certificate, TLS on a port without TLS, or a login on a listener without one. Both libraries retry indefinitely, with
occasional warnings that differ between them. Java's clients fail with an authentication error. So this module performs
the same steps as a client (TLS, ApiVersions, SASL). It reports in one sentence what the broker refused, and what to
change.

Only a certain refusal counts. A failure that may be an outage does not (no listener, a timeout, a broken connection),
because the libraries should wait for the broker. With ``must_answer``, an outage is an error too.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from streams_py.system.printable import text_of

from streams_py.adapters.connection import kafka_answers  # noqa: F401  # isort: skip  # loads the library, before there are threads
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from streams_py.adapters.connection.exact_reads import read_exactly
from streams_py.adapters.security.settings import Mechanism, SecurityProtocol, SecuritySettings
from streams_py.adapters.security.tls import tls_context
from streams_py.errors import BrokerUnavailableError, ConfigError

_UNSUPPORTED_MECHANISM, _ILLEGAL_SASL_STATE, _AUTHENTICATION_FAILED = 33, 34, 58
_TLS_ALERT: Final = b"\x15\x03"
_ANSWER_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 3.0
_PATIENCE_S: Final = 8.0
"""Total time for all brokers with ``must_answer``, in seconds. A busy machine, or a broker in garbage collection, may
take a few seconds."""
_ADDRESSES_MAX: Final = 3
_CLIENT: Final = "streams-py"

_EXPIRED, _NOT_YET_VALID = 10, 9  # OpenSSL's X509_V_ERR_...
_WRONG_NAME: Final = (62, 63, 64)
_PASSWORD_MECHANISMS: Final = (Mechanism.PLAIN, Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


class _RefusedError(Exception):
    """The broker refused this client, or this client refused the broker. The text gives the reason."""


def check_admitted(bootstrap: str, security: SecuritySettings, *, must_answer: bool = False) -> None:
    """Raise an exception if the cluster does not accept this client.

    Args:
        bootstrap: Addresses, as ``host:port[,host:port]``.
        security: The client's security settings.
        must_answer: Whether an outage is an error too.

    Raises:
        ConfigError: The cluster will never accept this client; the message is the :func:`refusal`.
        BrokerUnavailableError: With ``must_answer``, no broker can be reached, or none has answered for some seconds.
    """
    asked = min(bootstrap.count(",") + 1, _ADDRESSES_MAX)
    timeout_s = max(_TIMEOUT_S, _PATIENCE_S / asked) if must_answer else _TIMEOUT_S
    refused, away = _try_brokers(bootstrap, security, timeout_s)
    if refused is not None:
        raise ConfigError(refused)
    if away is not None and must_answer:
        raise BrokerUnavailableError(away)


def refusal(bootstrap: str, security: SecuritySettings, *, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Return why the brokers will never accept this client, in one sentence with a remedy.

    Args:
        bootstrap: Addresses, as ``host:port[,host:port]``.
        security: The client's security settings.
        timeout_s: Time limit of each step with each broker.

    Returns:
        None when a broker accepts the client, or when no broker can be reached now.
    """
    return _try_brokers(bootstrap, security, timeout_s)[0]


def _try_brokers(bootstrap: str, security: SecuritySettings, timeout_s: float) -> tuple[str | None, str | None]:
    """Return (reason of the refusal, reason of the outage).

    Both are None when a broker accepts this client, or when the result is uncertain. A broker that does not answer for
    ``timeout_s`` counts as unreachable.
    """
    addresses = [address.strip() for address in bootstrap.split(",")]
    refused, away = None, []
    for address in addresses[:_ADDRESSES_MAX]:
        try:
            _connect(address, security, timeout_s)
        except _RefusedError as error:
            refused = refused or f"{address} {error}"
        except TimeoutError:
            away.append(f"{address} (it accepts connections, but has not answered for {timeout_s:g} s)")
        except (OSError, ValueError) as error:
            away.append(f"{address} ({getattr(error, 'strerror', None) or error})")
        else:
            return None, None
    if refused is not None or len(away) < len(addresses):
        return refused, None
    return None, f"no broker answers at {', '.join(away)}"


def _connect(address: str, security: SecuritySettings, timeout_s: float) -> None:
    with _connected(address, security, timeout_s) as connection:
        answer = _first_answer_over_tls(connection) if security.protocol.tls else _first_answer(connection)
        if security.protocol.sasl:
            _log_in(connection, security)
        elif any(known.api_key == SaslHandshakeRequest.API_KEY for known in answer.api_keys):
            _check_login_not_required(connection, security)


@contextlib.contextmanager
def _connected(address: str, security: SecuritySettings, timeout_s: float) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with _dialled(host, int(port), timeout_s) as plain:
        if not security.protocol.tls:
            yield plain
            return
        try:
            wrapped = tls_context(security).wrap_socket(plain, server_hostname=host)
        except ssl.SSLCertVerificationError as failed:
            _untrusted(failed)
        except (ssl.SSLEOFError, ConnectionError) as closed:
            if _speaks_without_tls(host, int(port), timeout_s):
                raise _RefusedError(_NO_TLS) from closed
            raise
        except ssl.SSLError as failed:
            if failed.reason == "WRONG_VERSION_NUMBER":
                raise _RefusedError(_NO_TLS) from failed
            _refused_by_alert(failed)
        with wrapped:
            yield wrapped


def _dialled(host: str, port: int, timeout_s: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=timeout_s)
    except TimeoutError:
        raise ConnectionError(f"no connection within {timeout_s:g} s") from None


_NO_TLS: Final = (
    "does not use TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of a listener with TLS"
)


def _untrusted(failed: ssl.SSLCertVerificationError) -> NoReturn:
    why = (failed.verify_message or "it cannot be verified").rstrip(".")
    if failed.verify_code in (_EXPIRED, _NOT_YET_VALID):
        remedy = "the broker needs a new certificate (or one of the two clocks is wrong)"
    elif failed.verify_code in _WRONG_NAME:
        remedy = (
            "use a host name from the certificate in bootstrap.servers and advertised.listeners, or issue a "
            "certificate for this name"
        )
    else:
        remedy = "ssl.ca.location must name the certificate of the authority that signed it"
    raise _RefusedError(f"has a certificate that is not trusted ({why}): {remedy}") from failed


def _refused_by_alert(failed: ssl.SSLError) -> NoReturn:
    reason = failed.reason or "no reason given"
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        raise _RefusedError(
            f"does not accept this client's certificate ({reason}): ssl.certificate.location and ssl.key.location must "
            "name a certificate that has not expired, signed by an authority that the broker trusts"
        ) from failed
    raise _RefusedError(f"closed the TLS handshake ({reason}): both sides need a common TLS version and cipher")


def _speaks_without_tls(host: str, port: int, timeout_s: float) -> bool:
    try:
        with _dialled(host, port, timeout_s) as plain:
            _ask(plain, *_VERSIONS)
    except OSError:
        return False
    return True


def _first_answer_over_tls(connection: socket.socket) -> Any:
    """Send the first request over TLS. With TLS 1.3, the broker checks the client's certificate only at this point."""
    try:
        return _ask(connection, *_VERSIONS)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        raise
    except ssl.SSLError as failed:
        _refused_by_alert(failed)


def _first_answer(connection: socket.socket) -> Any:
    request, answers = _VERSIONS
    connection.sendall(_encoded(request))
    start = read_exactly(connection, 4)
    if start.startswith(_TLS_ALERT):
        raise _RefusedError(
            "accepts TLS only: set security.protocol to SSL or SASL_SSL, and ssl.ca.location, or use the port of a "
            "listener without TLS"
        )
    return _rest(connection, start, request, answers)


# -- SASL ----------------------------------------


def _log_in(connection: socket.socket, security: SecuritySettings) -> None:
    mechanism = security.mechanism
    assert mechanism is not None  # `parse_security` requires it
    error, offered = _offered(connection, mechanism)
    if error == _ILLEGAL_SASL_STATE:
        without = SecurityProtocol.SSL if security.protocol.tls else SecurityProtocol.PLAINTEXT
        raise _RefusedError(
            f"has no login on this port: set security.protocol to {without}, or use the port of a listener with SASL"
        )
    if error == _UNSUPPORTED_MECHANISM:
        raise _RefusedError(
            f"does not offer sasl.mechanism {mechanism.value}: it has {', '.join(offered) or 'none'}; set one of these"
        )
    if error or mechanism not in _PASSWORD_MECHANISMS:
        return  # the libraries request tokens, since a token may have a cost
    sasl = get_sasl_mechanism(mechanism.value)(
        sasl_mechanism=mechanism.value, sasl_plain_username=security.username, sasl_plain_password=security.password,
        security_protocol=SecurityProtocol.SASL_SSL.value,  # avoids a warning, which the client logs anyway
    )  # fmt: skip
    while not sasl.is_done():
        request = SaslAuthenticateRequest(auth_bytes=sasl.auth_bytes(), version=0)
        answer = _ask(connection, request, SaslAuthenticateResponse)
        if answer.error_code == _AUTHENTICATION_FAILED:
            raise _RefusedError(
                f"refused the login of user {security.username} ({answer.error_message or 'no reason given'}): correct "
                "sasl.username, sasl.password and sasl.mechanism"
            )
        if answer.error_code:
            return
        sasl.receive(answer.auth_bytes)


def _check_login_not_required(connection: socket.socket, security: SecuritySettings) -> None:
    """Refuse a listener with SASL. A listener without SASL answers this request with an error."""
    error, offered = _offered(connection, Mechanism.PLAIN)
    if error in (0, _UNSUPPORTED_MECHANISM):
        protocol = SecurityProtocol.SASL_SSL if security.protocol.tls else SecurityProtocol.SASL_PLAINTEXT
        raise _RefusedError(
            f"requires a login: set security.protocol to {protocol}, sasl.mechanism to one of {', '.join(offered)}, "
            "sasl.username and sasl.password; or use the port of a listener without SASL"
        )


def _offered(connection: socket.socket, mechanism: Mechanism) -> tuple[int, list[str]]:
    """Return the broker's error code for this mechanism, and the mechanisms that it offers."""
    answer = _ask(connection, SaslHandshakeRequest(mechanism=mechanism.value, version=1), SaslHandshakeResponse)
    return answer.error_code, answer.mechanisms


# -- requests ----------------------------------------

_VERSIONS: Final = ApiVersionsRequest(version=0), ApiVersionsResponse


def _ask(connection: socket.socket, request: Any, answers: Any) -> Any:
    """Send one request and read the response.

    Raises:
        ConnectionError: The broker closed the connection.
        ValueError: The bytes are not a response.
    """
    connection.sendall(_encoded(request))
    return _rest(connection, read_exactly(connection, 4), request, answers)


def _encoded(request: Any) -> bytes:
    request.with_header(client_id=_CLIENT)
    encoded: bytes = request.encode(header=True, framed=True)
    return encoded


def _rest(connection: socket.socket, start: bytes, request: Any, answers: Any) -> Any:
    (size,) = struct.unpack(">i", start)
    if not 4 <= size <= _ANSWER_BYTES_MAX:
        raise ValueError(f"the answer has {size} bytes, so it is not from a Kafka broker")
    content = read_exactly(connection, size)
    try:
        return answers.decode(content, version=request.API_VERSION, header=True)
    except Exception as error:  # the library's decoder may raise any exception for other bytes
        raise ValueError(f"the answer is not from a Kafka broker: {text_of(error)}") from None
