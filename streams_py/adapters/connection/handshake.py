"""Does the cluster let us in? One connection on a plain socket, asked before the client libraries are.

Neither library tells a broker that is away from one that refuses us for good: a certificate that is not trusted, TLS
on a port without TLS, a login on a listener that has none. Both go on trying, for ever, with a warning now and then,
and each in words of its own. Java's clients end with an authentication error. So this module walks the same steps as a
client does - TLS, ApiVersions, SASL - and says in one sentence what was refused, and what to change.

Only what is certain counts. Whatever may be an outage (nobody listens, no answer in time, a connection that breaks) is
no refusal: the libraries wait for it, as they should. Who would rather hear of it at once than wait asks with
``must_answer``.
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

__all__ = ["check_admitted", "refusal"]

_UNSUPPORTED_MECHANISM, _ILLEGAL_SASL_STATE, _AUTHENTICATION_FAILED = 33, 34, 58
_TLS_ALERT: Final = b"\x15\x03"
_ANSWER_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 3.0
_PATIENCE_S: Final = 8.0
"""With all brokers together, of those who do not want to wait for ever: a machine that is short of processors, or a
broker that collects its garbage, takes a few seconds."""
_ADDRESSES_MAX: Final = 3
_CLIENT: Final = "streams-py"

_EXPIRED, _NOT_YET_VALID = 10, 9  # OpenSSL's X509_V_ERR_...
_WRONG_NAME: Final = (62, 63, 64)
_PASSWORD_MECHANISMS: Final = (Mechanism.PLAIN, Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


class _RefusedError(Exception):
    """The broker refused us, or we it; the text says why."""


def check_admitted(bootstrap: str, security: SecuritySettings, *, must_answer: bool = False) -> None:
    """ConfigError with the :func:`refusal`, if there is one. With ``must_answer`` BrokerUnavailableError, too, when
    nobody is there now, or nobody says a word for some seconds; a broker that is only slow is waited for."""
    asked = min(bootstrap.count(",") + 1, _ADDRESSES_MAX)
    refused, away = _knock(bootstrap, security, max(_TIMEOUT_S, _PATIENCE_S / asked) if must_answer else _TIMEOUT_S)
    if refused is not None:
        raise ConfigError(refused)
    if away is not None and must_answer:
        raise BrokerUnavailableError(away)


def refusal(bootstrap: str, security: SecuritySettings, *, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Why nobody at ``bootstrap`` (``host:port[,host:port]``) will ever let this client in, in one sentence with the
    remedy; None when one does, or when none can be asked now. ``timeout_s`` bounds each step with each broker."""
    return _knock(bootstrap, security, timeout_s)[0]


def _knock(bootstrap: str, security: SecuritySettings, timeout_s: float) -> tuple[str | None, str | None]:
    """(why we are not let in, why nobody is there), neither when one lets us in, or when it cannot be known. Silence
    for ``timeout_s`` is as good as nobody."""
    addresses = [address.strip() for address in bootstrap.split(",")]
    refused, away = None, []
    for address in addresses[:_ADDRESSES_MAX]:
        try:
            _walk(address, security, timeout_s)
        except _RefusedError as error:
            refused = refused or f"{address} {error}"
        except TimeoutError:
            away.append(f"{address} (it takes connections, but says nothing for {timeout_s:g} s)")
        except (OSError, ValueError) as error:
            away.append(f"{address} ({getattr(error, 'strerror', None) or error})")
        else:
            return None, None
    if refused is not None or len(away) < len(addresses):
        return refused, None
    return None, f"no broker answers at {', '.join(away)}"


def _walk(address: str, security: SecuritySettings, timeout_s: float) -> None:
    with _connected(address, security, timeout_s) as connection:
        answer = _first_answer_over_tls(connection) if security.protocol.tls else _first_answer(connection)
        if security.protocol.sasl:
            _log_in(connection, security)
        elif any(known.api_key == SaslHandshakeRequest.API_KEY for known in answer.api_keys):
            _check_no_login_is_wanted(connection, security)


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
            _distrust(failed)
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
    "speaks no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of a listener with TLS"
)


def _distrust(failed: ssl.SSLCertVerificationError) -> NoReturn:
    why = (failed.verify_message or "it cannot be verified").rstrip(".")
    if failed.verify_code in (_EXPIRED, _NOT_YET_VALID):
        remedy = "the broker needs a new certificate (or one of the two clocks is wrong)"
    elif failed.verify_code in _WRONG_NAME:
        remedy = (
            "use a host name that the certificate is for in bootstrap.servers and advertised.listeners, or have one "
            "issued for this name"
        )
    else:
        remedy = "ssl.ca.location must name the certificate of the authority that has signed it"
    raise _RefusedError(f"has a certificate that is not trusted ({why}): {remedy}") from failed


def _refused_by_alert(failed: ssl.SSLError) -> NoReturn:
    reason = failed.reason or "no reason given"
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        raise _RefusedError(
            f"does not accept this client's certificate ({reason}): ssl.certificate.location and ssl.key.location must "
            "name a certificate that has not expired, signed by an authority that the broker trusts"
        ) from failed
    raise _RefusedError(f"ended the TLS handshake ({reason}): both sides need a TLS version and a cipher in common")


def _speaks_without_tls(host: str, port: int, timeout_s: float) -> bool:
    try:
        with _dialled(host, port, timeout_s) as plain:
            _ask(plain, *_VERSIONS)
    except OSError:
        return False
    return True


def _first_answer_over_tls(connection: socket.socket) -> Any:
    """With TLS 1.3 the broker looks at our certificate after our side of the handshake has ended."""
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
            "speaks TLS only: set security.protocol to SSL or SASL_SSL, and ssl.ca.location, or use the port of a "
            "listener without TLS"
        )
    return _rest(connection, start, request, answers)


# -- SASL ----------------------------------------


def _log_in(connection: socket.socket, security: SecuritySettings) -> None:
    mechanism = security.mechanism
    assert mechanism is not None  # `parse_security` wants it
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
        return  # tokens are left to the libraries: asking for one may cost something
    sasl = get_sasl_mechanism(mechanism.value)(
        sasl_mechanism=mechanism.value, sasl_plain_username=security.username, sasl_plain_password=security.password,
        security_protocol=SecurityProtocol.SASL_SSL.value,  # another one is warned of; the client does that
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


def _check_no_login_is_wanted(connection: socket.socket, security: SecuritySettings) -> None:
    """A listener without SASL says that this request has no place there."""
    error, offered = _offered(connection, Mechanism.PLAIN)
    if error in (0, _UNSUPPORTED_MECHANISM):
        protocol = SecurityProtocol.SASL_SSL if security.protocol.tls else SecurityProtocol.SASL_PLAINTEXT
        raise _RefusedError(
            f"wants a login: set security.protocol to {protocol}, sasl.mechanism to one of {', '.join(offered)}, "
            "sasl.username and sasl.password; or use the port of a listener without SASL"
        )


def _offered(connection: socket.socket, mechanism: Mechanism) -> tuple[int, list[str]]:
    """The broker's error code for this mechanism, and those that it has."""
    answer = _ask(connection, SaslHandshakeRequest(mechanism=mechanism.value, version=1), SaslHandshakeResponse)
    return answer.error_code, answer.mechanisms


# -- requests ----------------------------------------

_VERSIONS: Final = ApiVersionsRequest(version=0), ApiVersionsResponse


def _ask(connection: socket.socket, request: Any, answers: Any) -> Any:
    """One request, one answer. ConnectionError when the broker hangs up instead, ValueError for what is none."""
    connection.sendall(_encoded(request))
    return _rest(connection, read_exactly(connection, 4), request, answers)


def _encoded(request: Any) -> bytes:
    request.with_header(client_id=_CLIENT)
    encoded: bytes = request.encode(header=True, framed=True)
    return encoded


def _rest(connection: socket.socket, start: bytes, request: Any, answers: Any) -> Any:
    (size,) = struct.unpack(">i", start)
    if not 4 <= size <= _ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {size} bytes is none of a Kafka broker")
    content = read_exactly(connection, size)
    try:
        return answers.decode(content, version=request.API_VERSION, header=True)
    except Exception as error:  # whatever the library's decoder meets in bytes that are none
        raise ValueError(f"no answer of a Kafka broker: {text_of(error)}") from None
