"""The formats Avro, Protobuf and JSON Schema: their serializers, and error messages that do not show values."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from streams_py.registry.avro_fit import fit_of, top_fields
from streams_py.registry.checked_schemas import checked as checked_schemas
from streams_py.serdes.json import ClassForm
from streams_py.serdes.json_text import exact_text, parse
from streams_py.serdes.members import written_names
from streams_py.serdes.round_trips import UnfitError


@dataclass(frozen=True, slots=True)
class Format:
    """A data format of a schema registry."""

    name: str
    serializer: Callable[[Any, dict[str, Any]], Any]
    """Creates a serializer, given the registry's client and settings."""
    deserializer: Callable[[Any, dict[str, Any]], Any]
    """Creates a deserializer, given the registry's client and settings."""
    encoding_reason: Callable[[Exception, Any], str]
    """Describes an error of the serializer, given the error and the value."""
    decoding_reason: Callable[[Exception], str]
    """Describes an error of the deserializer."""
    cls: type[Any] | None = None
    """The class of the values; None for plain values."""


# -- Avro ------------------------------------------------------------------------------------------------------


def avro_format(schema: str, cls: type[Any] | None) -> Format:
    """Return the Avro format for a schema. ``cls``: the class of records, if they are not dicts."""
    parsed = _parsed(schema)
    form = None if cls is None or parsed is None else _avro_form(cls, parsed)
    to_dict, from_dict = _conversions(form)
    fits = None if parsed is None else fit_of(parsed)

    def checked(value: Any, context: Any) -> Any:
        plain = value if to_dict is None else to_dict(value, context)
        if fits is not None:
            fits(plain)
        return plain

    if form is not None and from_dict is not None:
        _refuse_hopeless_avro(form, parsed, from_dict)

    def serializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.avro import AvroSerializer

        kind = checked_schemas(AvroSerializer)
        return kind(client, schema, checked if form is not None or fits is not None else None, settings)

    def deserializer(client: Any, settings: dict[str, Any]) -> Any:
        from streams_py.registry.deserializers import BoundedAvroDeserializer

        return checked_schemas(BoundedAvroDeserializer)(client, schema, from_dict, settings)

    def encoding_reason(error: Exception, value: Any) -> str:
        if _is_ours(error):
            return _reason(error)
        try:
            plain = value if to_dict is None else to_dict(value, None)
        except Exception:  # the conversion itself was the error
            return _reason(error)
        return _what_avro_misses(plain, schema) or f"it does not fit the schema ({type(error).__name__})"

    return Format(_name("avro", cls), serializer, deserializer, encoding_reason, _reason, cls)


def _parsed(schema: str) -> Any:
    """Parse the schema. None if it is not valid; the serializer reports that later."""
    from fastavro import parse_schema

    try:
        return parse_schema(json.loads(schema))
    except Exception:
        return None


def _avro_form(cls: type[Any], parsed: Any) -> ClassForm[Any]:
    fields = top_fields(parsed)
    form = ClassForm(cls, as_text=False, computed=fields)
    more = sorted(written_names(form.schema, cls) - fields) if fields is not None else ()
    if more:
        raise TypeError(
            f"values of {cls.__qualname__} do not survive a round trip: the schema has no field {more[0]!r}"
        )
    return form


def _refuse_hopeless_avro(form: ClassForm[Any], parsed: Any, from_dict: Callable[[Any, Any], Any]) -> None:
    from fastavro import schemaless_reader, schemaless_writer

    def write(value: Any) -> bytes:
        file = BytesIO()
        schemaless_writer(file, parsed, form.members(value))
        return file.getvalue()

    form.refuse_hopeless(write, lambda data: from_dict(schemaless_reader(BytesIO(data), parsed, parsed), None))


def _what_avro_misses(value: Any, schema: str) -> str | None:
    from fastavro import parse_schema
    from fastavro.validation import ValidationError, validate

    try:
        validate(value, parse_schema(json.loads(schema)))
    except ValidationError as error:
        wrong = [f"{each.field or 'the value'} is a {type(each.datum).__name__}" for each in error.errors]
        return f"it does not fit the schema: {'; '.join(dict.fromkeys(wrong))}"
    except Exception:
        return None
    return None


# -- Protobuf --------------------------------------------------------------------------------------------------


def protobuf_format(message: Any) -> Format:
    """Return the Protobuf format for messages of a class."""
    if not hasattr(message, "DESCRIPTOR") or not hasattr(message, "SerializeToString"):
        raise TypeError(f"protobuf() requires a class that protoc generated, got {message!r}")

    def serializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        return checked_schemas(ProtobufSerializer)(message, client, settings)

    def deserializer(client: Any, settings: dict[str, Any]) -> Any:
        from streams_py.registry.deserializers import ExactProtobufDeserializer

        return checked_schemas(ExactProtobufDeserializer)(message, settings, client)

    def encoding_reason(error: Exception, value: Any) -> str:
        if not isinstance(value, message):
            return f"expected {message.DESCRIPTOR.full_name}, got {type(value).__name__}"
        return f"the message cannot be encoded ({type(error).__name__})"

    name = f"protobuf ({message.DESCRIPTOR.full_name})"
    return Format(name, serializer, deserializer, encoding_reason, _reason, message)


# -- JSON Schema -----------------------------------------------------------------------------------------------


def json_schema_format(schema: str | type[Any], cls: type[Any] | None) -> Format:
    """Return the JSON Schema format for a schema or a class. ``cls``: the class of records, if they are not dicts."""
    if not isinstance(schema, str):
        cls = schema
        schema = _schema_of(cls)
    text = schema
    form = None if cls is None else ClassForm(cls, as_text=True)
    to_dict, from_dict = _conversions(form)
    if form is not None and from_dict is not None:
        members, read = form.members, from_dict
        form.refuse_hopeless(lambda value: exact_text(members(value)).encode(), lambda data: read(parse(data), None))

    def serializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        if _is_named_after_record(settings) and not json.loads(text).get("title"):
            raise ValueError("a subject that is named after the record requires a schema with a title")
        return checked_schemas(JSONSerializer)(text, client, to_dict, settings, json_encode=exact_text)

    def deserializer(client: Any, settings: dict[str, Any]) -> Any:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        return checked_schemas(JSONDeserializer)(text, from_dict, client, settings, json_decode=parse)

    return Format(
        _name("json schema", cls),
        serializer,
        deserializer,
        lambda error, _value: _what_json_misses(error) or _reason(error),
        lambda error: _what_json_misses(error) or _reason(error),
        cls,
    )


def _schema_of(cls: type[Any]) -> str:
    from pydantic import TypeAdapter

    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(cls).json_schema()})


def _is_named_after_record(settings: dict[str, Any]) -> bool:
    from confluent_kafka.schema_registry import record_subject_name_strategy, topic_record_subject_name_strategy

    strategy, kind = settings.get("subject.name.strategy"), settings.get("subject.name.strategy.type")
    by_record = (record_subject_name_strategy, topic_record_subject_name_strategy)
    return strategy in by_record or getattr(kind, "value", kind) in ("RECORD", "TOPIC_RECORD")


def _what_json_misses(error: Exception) -> str | None:
    from jsonschema.exceptions import ValidationError

    cause = error.__context__
    return cause.message if isinstance(cause, ValidationError) else None  # the text is of our own validator


# -- common ----------------------------------------------------------------------------------------------------


def _name(format: str, cls: type[Any] | None) -> str:
    return format if cls is None else f"{format} ({cls.__qualname__})"


def _conversions(
    form: ClassForm[Any] | None,
) -> tuple[Callable[[Any, Any], Any] | None, Callable[[Any, Any], Any] | None]:
    """Return to_dict(object, context) and from_dict(dict, context) for a pydantic model or dataclass."""
    if form is None:
        return None, None
    from pydantic import ValidationError

    cls, is_certain, certain_members = form.cls, form.is_certain, form.writer()

    def to_dict(value: Any, _context: Any) -> Any:
        try:
            if is_certain(value):
                return certain_members(value)
        except Exception:  # a member of another type than declared, which is reported below
            pass
        if not isinstance(value, cls):
            raise TypeError(f"expected {cls.__qualname__}, got {type(value).__name__}")
        members = form.members(value)
        form.check(value, lambda: from_dict(members, None))
        return members

    def from_dict(value: Any, _context: Any) -> Any:
        try:
            return form.adapter.validate_python(value)  # the value already conforms to the schema
        except ValidationError as error:
            raise UnfitError(form.what_is_wrong(error)) from None

    return to_dict, from_dict


def _is_ours(error: Exception) -> bool:
    """Whether this module raised the error, while converting a value for the serializer."""
    return isinstance(error, UnfitError) or str(error).startswith("expected ")


def _reason(error: Exception) -> str:
    """Describe an error without showing values. Only texts of libraries that never contain values are used."""
    from confluent_kafka.serialization import SerializationError

    if isinstance(error, UnfitError):
        return str(error)
    if isinstance(error, EOFError | struct.error):
        return "the data ends too early"
    is_about_framing = isinstance(error, SerializationError) and error.__context__ is None
    if is_about_framing or str(error).startswith("expected "):
        return str(error)
    return f"the data does not fit the schema ({type(error).__name__})"
