"""Requests to a schema registry: which failures pass, and which do not.

A registry that is away says nothing about the record that needed it, so no handler is asked about the record: a
:class:`RegistryUnavailableError` makes its task try the same record again. Between two requests of a registry that is
away lies a pause, in which the next one fails at once: a stream thread has other tasks.

What the registry refuses for good is told from what it says about a schema. Texts name the registry's address without
user and password, and repeat nothing of what was sent.
"""

from __future__ import annotations

import base64
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from streams_py.config.secrets import redact
from streams_py.errors import RegistryError, RegistryUnavailableError
from streams_py.system.foreign_json import loads as loads_foreign

__all__ = ["GuardedRequests", "bound_answers"]

_PAUSE_S = 0.5
_PAUSE_MAX_S = 5.0
_REFUSED = {401: "it does not know these credentials", 403: "these credentials do not allow it"}
_PASSING = {408, 425, 429}
_ANSWER_BYTES_MAX = 16 << 20


def bound_answers(session: Any) -> None:
    """Make a client of httpx (or httpx2) stop reading an answer that is too long, with a transport error.

    A compressed answer has no known size, so none is requested, and none is accepted.
    """
    httpx: Any = importlib.import_module(type(session).__module__.partition(".")[0])

    class Bounded(httpx.SyncByteStream):  # type: ignore[misc]  # of whichever library
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for piece in self._inner:
                size += len(piece)
                if size > _ANSWER_BYTES_MAX:
                    raise httpx.ReadError(f"an answer is longer than {_ANSWER_BYTES_MAX:,} bytes")
                yield piece

        def close(self) -> None:
            self._inner.close()

    def check(answer: Any) -> None:
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise httpx.ReadError("an answer is compressed, although the request did not allow it")
        answer.stream = Bounded(answer.stream)

    session.headers["accept-encoding"] = "identity"
    session.event_hooks["response"].append(check)


class GuardedRequests:
    """Stands in for the HTTP part of confluent-kafka's registry client. ``address``: shown in errors. ``hide``: takes
    credentials out of texts."""

    def __init__(
        self,
        inner: Any,
        address: str,
        *,
        hide: Callable[[str], str] = redact,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._hide = hide
        self._address = address
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._pause_s = 0.0
        self._next_s = 0.0
        self._last = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """A GET request, guarded."""
        return self._guard("get", *args, **kwargs)

    def post(self, *args: Any, **kwargs: Any) -> Any:
        """A POST request, guarded."""
        return self._guard("post", *args, **kwargs)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """A PUT request, guarded."""
        return self._guard("put", *args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        """A DELETE request, guarded."""
        return self._guard("delete", *args, **kwargs)

    def _guard(self, method: str, *args: Any, **kwargs: Any) -> Any:
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        with self._lock:
            if self._clock_s() < self._next_s:
                raise RegistryUnavailableError(self._last)
        try:
            answer = getattr(self._inner, method)(*args, **kwargs)
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status in _PASSING or status >= 500:
                raise self._away(f"it answered with HTTP status {status}") from None
            if status in _REFUSED:
                raise RegistryError(
                    f"the schema registry at {self._address} refused a request (HTTP status {status}): "
                    f"{_REFUSED[status]}. Give SchemaRegistry the right basic.auth.user.info (or bearer settings)"
                ) from None
            # A GUID comes from the bytes of a record, any bytes may be one, and older registries have no such path.
            unknown_guid = status == 404 and args[0].startswith("schemas/guids/")
            if not unknown_guid and not _is_registrys_own(error):
                # a proxy, while the registry behind it is away; or a wrong address
                raise self._away(f"what answers there is no schema registry (HTTP status {status})") from None
            self._note_answer()
            raise
        except OAuthTokenError:  # its text has the token service's answer in it
            raise self._away("the token service gave no token") from None
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError, JSONDecodeError, numbers too long
            if _is_transport_error(error):
                raise self._away(f"{type(error).__name__}: {self._hide(str(error))}") from None
            raise self._away("what answers there is no schema registry (no JSON)") from None
        except Exception as error:
            if not _is_transport_error(error):
                raise
            raise self._away(f"{type(error).__name__}: {self._hide(str(error))}") from None
        if not _is_of_a_registry(method, args[0], answer):
            raise self._away("what answers there is no schema registry (other JSON than it would send)")
        self._note_answer()
        return answer

    def _note_answer(self) -> None:
        with self._lock:
            self._pause_s = 0.0

    def _away(self, reason: str) -> RegistryUnavailableError:
        with self._lock:
            self._pause_s = min(self._pause_s * 2 or _PAUSE_S, _PAUSE_MAX_S)
            self._next_s = self._clock_s() + self._pause_s
            self._last = f"the schema registry at {self._address} cannot be used now: {reason}"
            return RegistryUnavailableError(self._last)


def _is_registrys_own(error: Any) -> bool:
    """True for answers with an error code of the registry: five digits that begin with the HTTP status, or the status
    itself of a request that it understood but refused."""
    code, status = error.error_code, error.http_status_code
    return isinstance(code, int) and (code // 100 == status or (code == status and status in (409, 422)))


def _is_of_a_registry(method: str, path: str, answer: Any) -> bool:
    """Whether an answer to what serdes ask has what they read from it: a schema, or the number that it was given."""
    match method, path.partition("?")[0].split("/"):
        case "get", ["schemas", "ids" | "guids", _] | ["subjects", _, "versions", _]:
            return isinstance(answer, dict) and _is_schema(answer)
        case "post", ["subjects", _] | ["subjects", _, "versions"]:
            return isinstance(answer, dict) and _is_number(answer.get("id"))
    return True


def _is_number(found: object) -> bool:
    return type(found) is int and 0 <= found < 2**31


def _is_schema(answer: dict[str, Any]) -> bool:
    """Whether serdes can read the schema in an answer. What they could not read would be blamed on the record."""
    schema, kind, references = answer.get("schema"), answer.get("schemaType"), answer.get("references")
    numbers = (answer[name] for name in ("id", "version") if answer.get(name) is not None)
    if not isinstance(schema, str) or not all(map(_is_number, numbers)):
        return False
    if references is not None and not (isinstance(references, list) and all(map(_is_reference, references))):
        return False
    try:
        if kind == "PROTOBUF":
            return _is_protobuf(schema)
        parsed = loads_foreign(schema)
        if kind == "JSON":
            return isinstance(parsed, dict | bool)
        if kind in (None, "AVRO"):
            return isinstance(parsed, str | list | dict) and (bool(references) or _is_avro(parsed))
    except Exception:  # of whichever parser
        return False
    return False


def _is_reference(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    return (
        isinstance(found.get("name"), str)
        and isinstance(found.get("subject"), str)
        and _is_number(found.get("version"))
    )


def _is_avro(parsed: Any) -> bool:
    from fastavro import parse_schema

    parse_schema(parsed)
    return True


def _is_protobuf(schema: str) -> bool:
    """As base64 of a file descriptor, which the deserializer asks for, or as source text of references."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

    try:
        data = base64.b64decode(schema, validate=True)
    except ValueError:
        return "message" in schema or "enum" in schema
    FileDescriptorProto.FromString(data)
    return True


def _is_transport_error(error: Exception) -> bool:
    """No connection, no answer in time, a broken one. The client uses httpx2, or httpx where that is not installed."""
    return any(
        kind.__name__ == "TransportError" and kind.__module__.startswith("httpx") for kind in type(error).__mro__
    )
