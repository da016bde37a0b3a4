"""Three formats: how each makes its serializers, and how to say what is wrong without showing values."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streams_py.serdes.json import without_values, wrong_members

__all__ = ["Format", "avro_format", "json_schema_format", "protobuf_format"]


class _UnfitError(ValueError):
    """A value that its schema does not allow, in words that do not show it."""


@dataclass(frozen=True, slots=True)
class Format:
    """``serializer`` and ``deserializer`` get the registry's client and settings; the others say what is wrong."""

    name: str
    serializer: Callable[[Any, dict[str, Any]], Any]
    deserializer: Callable[[Any, dict[str, Any]], Any]
    encoding_reason: Callable[[Exception, Any], str]
    decoding_reason: Callable[[Exception], str]


# -- Avro ------------------------------------------------------------------------------------------------------


def avro_format(schema: str, cls: type[Any] | None) -> Format:
    """Avro with this schema; ``cls``: what records are instead of dicts."""
    to_dict, from_dict = _conversions(cls, mode="python")

    def serializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.avro import AvroSerializer

        return AvroSerializer(client, schema, _with_ints_that_fit(to_dict, schema), settings)

    def deserializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        return AvroDeserializer(client, schema, from_dict, conf=settings)

    def encoding_reason(error: Exception, value: Any) -> str:
        if _is_ours(error):
            return _reason(error)
        try:
            plain = value if to_dict is None else to_dict(value, None)
        except Exception:  # then that was the error
            return _reason(error)
        return _what_avro_misses(plain, schema) or f"it does not fit the schema ({type(error).__name__})"

    return Format(_name("avro", cls), serializer, deserializer, encoding_reason, _reason)


def _with_ints_that_fit(to_dict: Callable[[Any, Any], Any] | None, schema: str) -> Callable[[Any, Any], Any] | None:
    """fastavro writes an int of any size (a time in ms, say), and only readers in other languages cannot read it."""
    if '"int"' not in schema:
        return to_dict
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    try:
        parsed = parse_schema(json.loads(schema), named)
    except Exception:  # the serializer says what is wrong with the schema
        return to_dict

    def checked(value: Any, context: Any) -> Any:
        plain = value if to_dict is None else to_dict(value, context)
        beyond = _beyond_32_bits(plain, parsed, named, "the whole")
        if beyond is not None:
            raise _UnfitError(f"it does not fit the schema: {beyond} is beyond the 32 bits of an int; declare a long")
        return plain

    return checked


def _beyond_32_bits(value: Any, schema: Any, named: dict[str, Any], where: str) -> str | None:
    """The name of an int that does not fit. Where there is a choice of types, fastavro looks itself."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "int":
        return where if isinstance(value, int) and not -(2**31) <= value < 2**31 else None
    if isinstance(kind, str) and kind in named:
        schema, kind = named[kind], named[kind]["type"]
    found: Iterable[tuple[Any, Any, str]] = ()
    if kind == "record" and isinstance(value, Mapping):
        name = schema["name"]
        found = ((value.get(field["name"]), field["type"], f"{name}.{field['name']}") for field in schema["fields"])
    elif kind == "array" and isinstance(value, list | tuple):
        found = ((each, schema["items"], where) for each in value)
    elif kind == "map" and isinstance(value, Mapping):
        found = ((each, schema["values"], where) for each in value.values())
    return next((beyond for each in found if (beyond := _beyond_32_bits(each[0], each[1], named, each[2]))), None)


def _what_avro_misses(value: Any, schema: str) -> str | None:
    from fastavro import parse_schema
    from fastavro.validation import ValidationError, validate

    try:
        validate(value, parse_schema(json.loads(schema)))
    except ValidationError as error:
        wrong = [f"{each.field or 'the whole'} is a {type(each.datum).__name__}" for each in error.errors]
        return f"it does not fit the schema: {'; '.join(dict.fromkeys(wrong))}"
    except Exception:
        return None
    return None


# -- Protobuf --------------------------------------------------------------------------------------------------


def protobuf_format(message: Any) -> Format:
    """Protobuf messages of this class."""
    if not hasattr(message, "DESCRIPTOR") or not hasattr(message, "SerializeToString"):
        raise TypeError(f"protobuf() takes a class that protoc made, got {message!r}")

    def serializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        return ProtobufSerializer(message, client, settings)

    def deserializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

        return ProtobufDeserializer(message, settings, client)

    def encoding_reason(error: Exception, value: Any) -> str:
        if not isinstance(value, message):
            return f"expected {message.DESCRIPTOR.full_name}, got {type(value).__name__}"
        return f"the message cannot be written ({type(error).__name__})"

    return Format(f"protobuf ({message.DESCRIPTOR.full_name})", serializer, deserializer, encoding_reason, _reason)


# -- JSON Schema -----------------------------------------------------------------------------------------------


def json_schema_format(schema: str | type[Any], cls: type[Any] | None) -> Format:
    """JSON with this schema, or that of a class; ``cls``: what records are instead of dicts."""
    if not isinstance(schema, str):
        cls = schema
        schema = _schema_of(cls)
    text = schema
    to_dict, from_dict = _conversions(cls, mode="json")

    def serializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        if _is_named_after_record(settings) and not json.loads(text).get("title"):
            raise ValueError("a subject that is named after the record needs a schema with a title")
        return JSONSerializer(text, client, to_dict, settings, json_encode=_compact)

    def deserializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        return JSONDeserializer(text, from_dict, client, settings)

    return Format(
        _name("json schema", cls),
        serializer,
        deserializer,
        lambda error, value: _what_json_misses(error) or _reason(error),
        lambda error: _what_json_misses(error) or _reason(error),
    )


def _schema_of(cls: type[Any]) -> str:
    from pydantic import TypeAdapter

    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(cls).json_schema()})


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _is_named_after_record(settings: dict[str, Any]) -> bool:
    from confluent_kafka.schema_registry import record_subject_name_strategy, topic_record_subject_name_strategy

    strategy, kind = settings.get("subject.name.strategy"), settings.get("subject.name.strategy.type")
    by_record = (record_subject_name_strategy, topic_record_subject_name_strategy)
    return strategy in by_record or getattr(kind, "value", kind) in ("RECORD", "TOPIC_RECORD")


def _what_json_misses(error: Exception) -> str | None:
    cause: Any = error.__context__
    if cause is None or not hasattr(cause, "json_path"):
        return None
    return f"it does not fit the schema: {cause.json_path} fails {cause.validator!r}"


# -- what they share -------------------------------------------------------------------------------------------


def _name(format: str, cls: type[Any] | None) -> str:
    return format if cls is None else f"{format} ({cls.__qualname__})"


def _conversions(
    cls: type[Any] | None, *, mode: Literal["json", "python"]
) -> tuple[Callable[[Any, Any], Any] | None, Callable[[Any, Any], Any] | None]:
    """to_dict(object, context) and from_dict(dict, context) of a pydantic model or dataclass."""
    if cls is None:
        return None, None
    from pydantic import TypeAdapter

    adapter = TypeAdapter(cls)

    def to_dict(value: Any, _context: Any) -> Any:
        if not isinstance(value, cls):
            raise TypeError(f"expected {cls.__qualname__}, got {type(value).__name__}")
        return adapter.dump_python(value, mode=mode, by_alias=True, warnings="error")

    def from_dict(value: Any, _context: Any) -> Any:
        return adapter.validate_python(value)  # what the schema has let pass

    return to_dict, from_dict


def _is_ours(error: Exception) -> bool:
    """Raised by the conversion to what the serializer takes."""
    by_pydantic = type(error).__module__.startswith("pydantic")
    return by_pydantic or isinstance(error, _UnfitError) or str(error).startswith("expected ")


def _reason(error: Exception) -> str:
    """What is wrong, without values: from the libraries whose texts are known to have none in them."""
    from confluent_kafka.serialization import SerializationError
    from pydantic import ValidationError
    from pydantic_core import PydanticSerializationError

    if isinstance(error, ValidationError):
        return without_values(error)
    if isinstance(error, PydanticSerializationError):
        return wrong_members(error)
    if isinstance(error, _UnfitError):
        return str(error)
    if isinstance(error, EOFError | struct.error):
        return "the data ends too early"
    if isinstance(error, SerializationError) or str(error).startswith("expected "):
        return str(error)
    return f"the data does not fit the schema ({type(error).__name__})"
