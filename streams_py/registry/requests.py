"""Requests to a schema registry, and the classification of failures as temporary or permanent.

If the registry is unavailable, this says nothing about the record that needed it. So no exception handler is called for
the record: a :class:`RegistryUnavailableError` makes the task retry the same record. After such a failure there is a
pause, during which requests fail immediately, because the stream thread has other tasks.

Permanent refusals, such as wrong credentials, are distinguished from responses about a schema. Messages have the
registry's address without user and password, and repeat nothing from the request.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from typing import Any

from streams_py.config.secrets import redact
from streams_py.errors import RegistryError, RegistryUnavailableError
from streams_py.system.foreign_json import loads as loads_foreign

_PAUSE_S = 0.5
_PAUSE_MAX_S = 5.0
_REFUSED = {401: "the credentials are not valid", 403: "the credentials do not permit it"}
_TEMPORARY = {408, 425, 429}


class GuardedRequests:
    """A replacement for the HTTP part of confluent-kafka's registry client.

    Args:
        inner: The replaced object, which makes the requests.
        address: Address of the registry, for error messages.
        hide: Removes credentials from texts.
        clock_s: A monotonic clock.
    """

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
        """Send a GET request."""
        return self._guard("get", *args, **kwargs)

    def post(self, *args: Any, **kwargs: Any) -> Any:
        """Send a POST request."""
        return self._guard("post", *args, **kwargs)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Send a PUT request."""
        return self._guard("put", *args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        """Send a DELETE request."""
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
            if status in _TEMPORARY or status >= 500:
                raise self._unavailable(f"it responded with HTTP status {status}") from None
            if status in _REFUSED:
                raise RegistryError(
                    f"the schema registry at {self._address} refused a request (HTTP status {status}): "
                    f"{_REFUSED[status]}. Give SchemaRegistry the right basic.auth.user.info (or bearer settings)"
                ) from None
            # A GUID comes from the bytes of a record and may be arbitrary bytes, and older registries lack this path.
            unknown_guid = status == 404 and args[0].startswith("schemas/guids/")
            if not unknown_guid and not _is_from_registry(error):
                # a proxy whose registry is unavailable; or a wrong address
                raise self._unavailable(f"the server is not a schema registry (HTTP status {status})") from None
            self._note_answer()
            raise
        except OAuthTokenError:  # its text contains the response of the token service
            raise self._unavailable("the token service returned no token") from None
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError, JSONDecodeError, numbers that are too long
            if _is_transport_error(error):
                raise self._unavailable(f"{type(error).__name__}: {self._hide(str(error))}") from None
            raise self._unavailable("the server is not a schema registry (the response is not JSON)") from None
        except Exception as error:
            if not _is_transport_error(error):
                raise
            raise self._unavailable(f"{type(error).__name__}: {self._hide(str(error))}") from None
        if not _is_valid(method, args[0], answer):
            raise self._unavailable("the server is not a schema registry (unexpected JSON)")
        self._note_answer()
        return answer

    def _note_answer(self) -> None:
        with self._lock:
            self._pause_s = 0.0

    def _unavailable(self, reason: str) -> RegistryUnavailableError:
        with self._lock:
            self._pause_s = min(self._pause_s * 2 or _PAUSE_S, _PAUSE_MAX_S)
            self._next_s = self._clock_s() + self._pause_s
            self._last = f"the schema registry at {self._address} is not available: {reason}"
            return RegistryUnavailableError(self._last)


def _is_from_registry(error: Any) -> bool:
    """Whether an error response has an error code of the registry.

    Its codes have five digits that start with the HTTP status. For a request that it understood but refused, the code
    is the status itself.
    """
    code, status = error.error_code, error.http_status_code
    return isinstance(code, int) and (code // 100 == status or (code == status and status in (409, 422)))


def _is_valid(method: str, path: str, answer: Any) -> bool:
    """Whether the response to a request of a serde has the content that the serde needs: a schema or a schema id."""
    match method, path.partition("?")[0].split("/"):
        case "get", ["schemas", "ids" | "guids", _] | ["subjects", _, "versions", _]:
            return isinstance(answer, dict) and _is_schema(answer)
        case "post", ["subjects", _] | ["subjects", _, "versions"]:
            return isinstance(answer, dict) and _is_number(answer.get("id"))
    return True


def _is_number(found: object) -> bool:
    return type(found) is int and 0 <= found < 2**31


def _is_schema(answer: dict[str, Any]) -> bool:
    """Whether serdes can read the schema in a response. Otherwise, they would report the record as invalid."""
    schema, kind, references = answer.get("schema"), answer.get("schemaType"), answer.get("references")
    numbers = (answer[name] for name in ("id", "version") if answer.get(name) is not None)
    if not isinstance(schema, str) or not all(map(_is_number, numbers)):
        return False
    if references is not None and not (isinstance(references, list) and all(map(_is_reference, references))):
        return False
    try:
        if not _has_valid_rules(answer):
            return False
        if kind == "PROTOBUF":
            return _is_protobuf(schema)
        parsed = loads_foreign(schema)
        if kind == "JSON":
            return isinstance(parsed, dict | bool)
        if kind in (None, "AVRO"):
            return isinstance(parsed, str | list | dict) and (bool(references) or _is_avro(parsed))
    except Exception:  # each parser raises its own errors
        return False
    return False


def _has_valid_rules(answer: dict[str, Any]) -> bool:
    """Whether serdes can read the rules and the metadata of a schema. Raises an error of any type if not."""
    from confluent_kafka.schema_registry import Metadata, RuleSet

    rules, metadata = answer.get("ruleSet"), answer.get("metadata")
    if metadata is not None:
        hash(Metadata.from_dict(metadata))
    if rules is None:
        return True
    parsed = RuleSet.from_dict(rules)
    hash(parsed)
    phases = (parsed.migration_rules, parsed.domain_rules, parsed.encoding_rules)
    return all(_is_rule(rule) for phase in phases for rule in phase or ())


def _is_rule(rule: Any) -> bool:
    hash(rule)
    texts = (rule.name, rule.type, rule.expr, rule.on_success, rule.on_failure)
    return all(text is None or isinstance(text, str) for text in texts)


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
    """Whether a schema is a base64 file descriptor, which the deserializer requests, or source text with references."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

    try:
        data = base64.b64decode(schema, validate=True)
    except ValueError:
        return "message" in schema or "enum" in schema
    FileDescriptorProto.FromString(data)
    return True


def _is_transport_error(error: Exception) -> bool:
    """Whether an error is a failed or broken connection or a timeout.

    The client uses httpx2, or httpx if that is not installed.
    """
    return any(
        kind.__name__ == "TransportError" and kind.__module__.startswith("httpx") for kind in type(error).__mro__
    )
