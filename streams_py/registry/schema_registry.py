"""A schema registry, and the serdes that use it.

The serdes use confluent-kafka's serializers. The bytes are a zero, the schema's id (u32), and the data. With Protobuf,
the indexes of the message within its file precede the data. Subjects are named after the topic: ``<topic>-key`` or
``<topic>-value``. For stores, the topic is the full name of the changelog topic, as in Kafka Streams.

Serializers are created once per topic, when a task starts. They send a request to the registry when the first record
needs it, and cache the response.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, overload
from urllib.parse import unquote, urlsplit, urlunsplit

from streams_py.config.keys import is_secret
from streams_py.config.secrets import redact
from streams_py.errors import ConfigError, StreamsError
from streams_py.http.answers import bound_answers
from streams_py.http.deadlines import bound_duration
from streams_py.registry.formats import Format, avro_format, json_schema_format, protobuf_format
from streams_py.registry.requests import GuardedRequests
from streams_py.serdes import Serde
from streams_py.serdes.round_trips import UnfitError
from streams_py.system.printable import printable

__all__ = ["SchemaRegistry"]

T = TypeVar("T")

_SHOWN_TEXT = 300
_SECRET_CHARS_MIN = 4
_ANSWER_BYTES_MAX = 16 << 20


class SchemaRegistry:
    """A schema registry, and the factory for serdes that use it. Creating it sends no request.

    Args:
        url: URL of the registry, or several URLs separated by commas.
        config: Settings of confluent-kafka's ``SchemaRegistryClient``, such as ``basic.auth.user.info``
            (``user:password``), ``ssl.ca.location`` or ``bearer.auth...``.
        serializer: Settings of confluent-kafka's serializers, such as ``{"auto.register.schemas": False}``.
        deserializer: Settings of confluent-kafka's deserializers.
        timeout_ms: Time limit of a whole request, from connecting to the last byte of the response. The stream thread
            waits for it. With several URLs, each may take as long, and so may a request for a token.

    Raises:
        ConfigError: A setting is not valid, or the extra ``registry`` is not installed.
    """

    def __init__(
        self,
        url: str,
        config: Mapping[str, Any] | None = None,
        *,
        serializer: Mapping[str, Any] | None = None,
        deserializer: Mapping[str, Any] | None = None,
        timeout_ms: int = 5000,
    ) -> None:
        if timeout_ms <= 0:
            raise ConfigError(f"timeout_ms of a SchemaRegistry must be positive, got {timeout_ms}", key="timeout_ms")
        addresses, user_info = _split_credentials(url)
        settings = {**(config or {}), "url": addresses}
        if user_info is not None:
            if "basic.auth.user.info" in settings:
                raise ConfigError(
                    f"the schema registry at {addresses} has credentials both in its url and in "
                    "basic.auth.user.info: remove one of them",
                    key="basic.auth.user.info",
                )
            settings["basic.auth.user.info"] = user_info
        self.address = addresses
        """The URLs of the registry, without credentials."""
        self._client = _client(settings, timeout_ms, _hider(settings))
        self._hide = _hider(settings)
        self._serializer = dict(serializer or {})
        self._deserializer = dict(deserializer or {})

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.address!r})"

    @overload
    def avro(self, schema: str) -> Serde[Any]: ...
    @overload
    def avro(self, schema: str, cls: type[T]) -> Serde[T]: ...

    def avro(self, schema: str, cls: type[Any] | None = None) -> Serde[Any]:
        """Return an Avro serde. Records are dicts, or objects of ``cls``.

        Args:
            schema: The JSON text of the schema. Data written with older or newer versions is converted to it.
            cls: A pydantic model or a dataclass with the fields of the schema.
        """
        return self._serde(avro_format(schema, cls))

    def protobuf(self, message: type[T]) -> Serde[T]:
        """Return a Protobuf serde. ``message``: a class that ``protoc`` generated."""
        return self._serde(protobuf_format(message))

    @overload
    def json_schema(self, schema: str) -> Serde[Any]: ...
    @overload
    def json_schema(self, schema: type[T]) -> Serde[T]: ...
    @overload
    def json_schema(self, schema: str, cls: type[T]) -> Serde[T]: ...

    def json_schema(self, schema: str | type[Any], cls: type[Any] | None = None) -> Serde[Any]:
        """Return a serde for JSON with a JSON Schema, which is checked when writing and when reading.

        Args:
            schema: The text of the schema. Or a pydantic model or dataclass, from which the schema is derived.
            cls: With the text of a schema: a pydantic model or dataclass of the records. Default: records are dicts.
        """
        return self._serde(json_schema_format(schema, cls))

    def _serde(self, format: Format) -> Serde[Any]:
        serde: Serde[Any] = _RegistrySerde(format, self._client, self._serializer, self._deserializer, self._hide)
        for is_key in (False, True):  # report wrong settings and schemas now, not when a task starts
            serde.serializer("any", is_key=is_key)
            serde.deserializer("any", is_key=is_key)
        return serde


class _RegistrySerde(Serde[T], Generic[T]):
    def __init__(
        self,
        format: Format,
        client: Any,
        serializer: Mapping[str, Any],
        deserializer: Mapping[str, Any],
        hide: Callable[[str], str],
    ) -> None:
        self._format = format
        self._hide = hide
        self._client = client
        self._serializer = serializer
        self._deserializer = deserializer

    @property
    def name(self) -> str:
        return self._format.name

    def is_declared(self, value: object) -> bool:
        return self._format.cls is None or isinstance(value, self._format.cls)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        encode, context = self._made(self._format.serializer, self._serializer), _context(topic, is_key=is_key)
        reason, hide = self._format.encoding_reason, self._hide

        def serialize(value: T) -> bytes:
            try:
                data: bytes = encode(value, context)
            except StreamsError:
                raise
            except Exception as error:
                raise _unfit(error, reason(error, value), hide) from None
            return data

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        decode, context = self._made(self._format.deserializer, self._deserializer), _context(topic, is_key=is_key)
        reason, hide = self._format.decoding_reason, self._hide

        def deserialize(data: bytes) -> T:
            try:
                value: T = decode(data, context)
            except StreamsError:
                raise
            except Exception as error:
                raise UnfitError(_registry_said(error, hide) or reason(error)) from None
            return value

        return deserialize

    def _made(self, make: Callable[[Any, dict[str, Any]], Any], settings: Mapping[str, Any]) -> Any:
        from confluent_kafka.schema_registry import topic_subject_name_strategy

        # confluent-kafka's default first requests "associations" from the registry. Java's current serializers do not.
        naming = {} if _names_subjects(settings) else {"subject.name.strategy": topic_subject_name_strategy}
        from streams_py.registry.caches import bound_caches

        try:
            made = make(self._client, {**naming, **settings})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.name}: {error}") from None
        bound_caches(made)
        return made


def _names_subjects(settings: Mapping[str, Any]) -> bool:
    return "subject.name.strategy" in settings or "subject.name.strategy.type" in settings


def _unfit(error: Exception, reason: str, hide: Callable[[str], str]) -> Exception:
    """Return TypeError for a value of the wrong class, which is a program error. Other errors are UnfitError."""
    if reason.startswith("expected "):
        return TypeError(reason)
    return UnfitError(_registry_said(error, hide) or reason)


def _registry_said(error: Exception, hide: Callable[[str], str]) -> str | None:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    if not isinstance(error, SchemaRegistryError):
        return None
    text = hide(" ".join(str(error.error_message).split()))
    if len(text) > _SHOWN_TEXT:
        text = f"{text[:_SHOWN_TEXT]}..."
    return f"the schema registry responded: {text} (error code {error.error_code})"


def _context(topic: str, *, is_key: bool) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.KEY if is_key else MessageField.VALUE)


def _hider(settings: Mapping[str, Any]) -> Callable[[str], str]:
    """Return a function that removes secrets from responses. Some registries and proxies repeat request headers."""
    secrets = {str(value) for key, value in settings.items() if is_secret(key) or key.startswith(("basic.", "sasl."))}
    for each in [text for text in secrets if ":" in text]:
        secrets |= {each.partition(":")[2], base64.b64encode(each.encode()).decode()}
    known = sorted((secret for secret in secrets if len(secret) >= _SECRET_CHARS_MIN), key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in known:
            text = text.replace(secret, "***")
        return printable(redact(text))

    return hide


def _client(settings: dict[str, Any], timeout_ms: int, hide: Callable[[str], str]) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigError(
            f"a schema registry requires additional packages ({error.name} is missing); install them with: "
            "pip install 'kafka-streams-py[registry]'"
        ) from None
    # The client's retries would block the stream thread. Instead, the task retries after a pause.
    ours = {"timeout": timeout_ms / 1000, "max.retries": 0}
    used = {**ours, **settings}
    try:
        client: Any = SchemaRegistryClient(used)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"the schema registry at {settings['url']}: {hide(str(error))}") from None
    from streams_py.registry.caches import BoundedClientCache

    client._cache = BoundedClientCache()
    inner = client._rest_client
    timeout_s = used["timeout"] if isinstance(used["timeout"], int | float) else ours["timeout"]
    _bound(inner.session, timeout_s)
    tokens = inner.bearer_field_provider
    if hasattr(tokens, "client"):  # it requests tokens; a function of the user does not
        _bound(tokens.client, timeout_s)
        tokens.token_expired = _or_expired(tokens.token_expired)
    client._rest_client = GuardedRequests(inner, settings["url"], hide=hide)
    return client


def _bound(client: Any, timeout_s: float) -> None:
    client.timeout = timeout_s
    bound_answers(client, _ANSWER_BYTES_MAX)
    bound_duration(client, timeout_s)


def _or_expired(is_expired: Callable[[], bool]) -> Callable[[], bool]:
    """Return a check that calls a token without a valid expiry time expired. Otherwise a record would be blamed."""

    def check() -> bool:
        try:
            return is_expired()
        except (KeyError, TypeError, ValueError, OverflowError):
            return True

    return check


def _split_credentials(url: str) -> tuple[str, str | None]:
    """Split a URL into addresses without credentials, which are safe to log, and ``user:password``."""
    addresses: list[str] = []
    user_info: str | None = None
    for each in url.split(","):
        parts = urlsplit(each.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "the url of a schema registry must have the form http://host:8081 (several: separated by commas)",
                key="url",
            )
        user, at, host = parts.netloc.rpartition("@")
        if at and user_info is None:
            name, _, password = user.partition(":")
            user_info = f"{unquote(name)}:{unquote(password)}"
        addresses.append(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    return ",".join(addresses), user_info
