"""Does the cluster let us in? One connection on a plain socket, asked before the client libraries are.

Neither library tells a broker that is away from one that refuses us for good: a certificate that is not trusted, TLS
on a port without TLS, a login on a listener that has none. Both go on trying, for ever, with a warning now and then,
and each in words of its own. Java's clients end with an authentication error. So this module walks the same steps as a
client does - TLS, ApiVersions, SASL - and says in one sentence what was refused, and what to change.

Only what is certain counts. Whatever may be an outage (nobody listens, no answer in time, a connection that breaks) is
no refusal: the libraries wait for it, as they should.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from importlib import import_module
from typing import Final, NoReturn

from streams_py.adapters.security import Mechanism, SecurityProtocol, SecuritySettings
from streams_py.adapters.tls import tls_context
from streams_py.errors import ConfigError

__all__ = ["check_admitted", "refusal"]

_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36
_UNSUPPORTED_MECHANISM, _ILLEGAL_SASL_STATE, _AUTHENTICATION_FAILED = 33, 34, 58
_TLS_ALERT: Final = b"\x15\x03"
_ANSWER_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 3.0
_ADDRESSES_MAX: Final = 3
_CLIENT: Final = b"streams-py"

_EXPIRED, _NOT_YET_VALID = 10, 9  # OpenSSL's X509_V_ERR_...
_WRONG_NAME: Final = (62, 63, 64)
_PASSWORD_MECHANISMS: Final = (Mechanism.PLAIN, Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


class _RefusedError(Exception):
    """The broker refused us, or we it; the text says why."""


def check_admitted(bootstrap: str, security: SecuritySettings) -> None:
    """ConfigError with the :func:`refusal`, if there is one."""
    why = refusal(bootstrap, security)
    if why is not None:
        raise ConfigError(why)


def refusal(bootstrap: str, security: SecuritySettings, *, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Why nobody at ``bootstrap`` (``host:port[,host:port]``) will ever let this client in, in one sentence with the
    remedy; None when one does, or when none can be asked now. ``timeout_s`` bounds each step with each broker."""
    found = None
    for address in bootstrap.split(",")[:_ADDRESSES_MAX]:
        try:
            _walk(address.strip(), security, timeout_s)
        except _RefusedError as refused:
            found = found or f"{address.strip()} {refused}"
        except (OSError, struct.error, ValueError):
            continue  # an outage, or no answer that we can read
        else:
            return None
    return found


def _walk(address: str, security: SecuritySettings, timeout_s: float) -> None:
    with _connected(address, security, timeout_s) as connection:
        answer = _first_answer_over_tls(connection) if security.protocol.tls else _first_answer(connection)
        if security.protocol.sasl:
            _log_in(connection, security)
        elif _SASL_HANDSHAKE in _known_requests(answer):
            _check_no_login_is_wanted(connection, security)


@contextlib.contextmanager
def _connected(address: str, security: SecuritySettings, timeout_s: float) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as plain:
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
        with socket.create_connection((host, port), timeout=timeout_s) as plain:
            _ask(plain, _API_VERSIONS, 0, b"")
    except (OSError, struct.error):
        return False
    return True


def _first_answer_over_tls(connection: socket.socket) -> bytes:
    """With TLS 1.3 the broker looks at our certificate after our side of the handshake has ended."""
    try:
        return _ask(connection, _API_VERSIONS, 0, b"")
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        raise
    except ssl.SSLError as failed:
        _refused_by_alert(failed)


def _first_answer(connection: socket.socket) -> bytes:
    connection.sendall(_request(_API_VERSIONS, 0, b""))
    start = _exactly(connection, 4)
    if start.startswith(_TLS_ALERT):
        raise _RefusedError(
            "speaks TLS only: set security.protocol to SSL or SASL_SSL, and ssl.ca.location, or use the port of a "
            "listener without TLS"
        )
    return _rest(connection, start)


def _known_requests(answer: bytes) -> set[int]:
    _error, count = struct.unpack_from(">hi", answer)
    return {struct.unpack_from(">h", answer, 6 + 6 * number)[0] for number in range(count)}


# -- SASL ----------------------------------------


def _log_in(connection: socket.socket, security: SecuritySettings) -> None:
    mechanism = security.mechanism
    assert mechanism is not None  # `parse_security` wants it
    answer = _ask(connection, _SASL_HANDSHAKE, 1, _text(mechanism.value))
    error, offered = _mechanisms(answer)
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
    sasl = import_module("kafka.net.sasl").get_sasl_mechanism(mechanism.value)(
        sasl_mechanism=mechanism.value, sasl_plain_username=security.username, sasl_plain_password=security.password,
        security_protocol=SecurityProtocol.SASL_SSL.value,  # another one is warned of; the client does that
    )  # fmt: skip
    while not sasl.is_done():
        token = sasl.auth_bytes()
        answer = _ask(connection, _SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        error, why, data = _authenticated(answer)
        if error == _AUTHENTICATION_FAILED:
            raise _RefusedError(
                f"refused the login of user {security.username} ({why or 'no reason given'}): correct sasl.username, "
                "sasl.password and sasl.mechanism"
            )
        if error:
            return
        sasl.receive(data)


def _check_no_login_is_wanted(connection: socket.socket, security: SecuritySettings) -> None:
    """A listener without SASL says that this request has no place there."""
    error, offered = _mechanisms(_ask(connection, _SASL_HANDSHAKE, 1, _text(Mechanism.PLAIN.value)))
    if error in (0, _UNSUPPORTED_MECHANISM):
        protocol = SecurityProtocol.SASL_SSL if security.protocol.tls else SecurityProtocol.SASL_PLAINTEXT
        raise _RefusedError(
            f"wants a login: set security.protocol to {protocol}, sasl.mechanism to one of {', '.join(offered)}, "
            "sasl.username and sasl.password; or use the port of a listener without SASL"
        )


def _mechanisms(answer: bytes) -> tuple[int, list[str]]:
    error, count = struct.unpack_from(">hi", answer)
    names, at = [], 6
    for _ in range(count):
        (size,) = struct.unpack_from(">h", answer, at)
        names.append(answer[at + 2 : at + 2 + size].decode(errors="replace"))
        at += 2 + size
    return error, names


def _authenticated(answer: bytes) -> tuple[int, str, bytes]:
    error, size = struct.unpack_from(">hh", answer)
    why = answer[4 : 4 + max(0, size)].decode(errors="replace")
    at = 4 + max(0, size)
    (length,) = struct.unpack_from(">i", answer, at)
    return error, why, answer[at + 4 : at + 4 + max(0, length)]


# -- requests ----------------------------------------


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _request(api_key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", api_key, version, 1, len(_CLIENT)) + _CLIENT + body
    return struct.pack(">i", len(request)) + request


def _ask(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """One request, one answer (without correlation id). ConnectionError when the broker hangs up instead."""
    connection.sendall(_request(api_key, version, body))
    return _rest(connection, _exactly(connection, 4))


def _rest(connection: socket.socket, start: bytes) -> bytes:
    (size,) = struct.unpack(">i", start)
    if not 4 <= size <= _ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {size} bytes is none of a Kafka broker")
    return _exactly(connection, size)[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = connection.recv(size - len(read))
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        read += more
    return read
