"""Serializers and deserializers of confluent-kafka that report an invalid schema as an error of the registry.

A registry may return a schema that is valid alone but not with its references: a cycle, a reference without the
declared type, or references that double at each level, so that resolving them takes hours. A JSON Schema may also refer
to a URL, which confluent-kafka would request without a size limit. The record is not invalid in these cases. So schemas
from the registry are checked and parsed here, with limits. A failure counts as an outage of the registry
(:class:`RegistryUnavailableError`), and the next attempt requests the schema again.

This module imports the extra ``registry``; import it where a serializer or deserializer is created.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from streams_py.errors import RegistryUnavailableError, StreamsError
from streams_py.registry.avro_size import SchemaSizeError, check_size
from streams_py.serdes.round_trips import UnfitError
from streams_py.system.bounded_patterns import StepsExceededError
from streams_py.system.printable import printable

_PROTOBUF: Final = "PROTOBUF"
_REFERENCES_MAX: Final = 1000
"""Maximum number of references of one schema, including indirect ones.

A schema referenced twice counts twice, except for Protobuf, where each name is requested only once.
"""


_TEXT_MAX: Final = 2 << 20
"""Maximum length of a schema with its references. A parsed schema takes up to 25 times this memory."""


class _ReferencesError(ValueError):
    """A schema has too many or too large references. The message contains no text from the registry."""


@cache
def checked(kind: type[Any]) -> Any:
    """Return a subclass of a confluent-kafka serializer or deserializer that checks schemas from the registry."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    bases: tuple[type[Any], ...] = (_CheckedSchemas,)
    if issubclass(kind, (JSONSerializer, JSONDeserializer)):
        bases = (_ClosedReferences, _CheckedSchemas)
    elif issubclass(kind, (AvroSerializer, AvroDeserializer)):
        bases = (_LimitedAvro, _CheckedSchemas)
    return type(f"Checked{kind.__name__}", (*bases, kind), {})


class _CheckedSchemas:
    """A mixin for confluent-kafka's classes. It overrides private methods, whose existence tests check."""

    _registry: Any
    _schema: Any
    _validators: Any
    _validators_lock: Any
    _parsed_schemas: Any
    _rule_registry: Any
    _get_rule_action_name: Any
    _get_rule_action: Any

    def _get_parsed_schema(self, schema: Any) -> Any:
        parse: Any = super()._get_parsed_schema  # type: ignore[misc]  # of confluent-kafka's class
        if _is_own(self, schema):
            return parse(schema)
        known = self._parsed_schemas.get_parsed_schema(schema)
        if known is not None:  # parsing again would not check: the cache may have removed the schema meanwhile
            return known
        try:
            with self._registry._cache.keep_references():  # the parser must use the schemas that were checked
                texts = _check_references(schema, self._registry)
                self._check_texts(texts)
                parsed = parse(schema)
        except Exception as error:
            self._forget(schema)
            raise _unusable(error, schema, self._registry) from None
        known = self._parsed_schemas.parsed_schemas
        if hasattr(known, "resize"):  # a SchemaCache
            known.resize(schema, sum(map(len, texts)))
        return parsed

    def _check_texts(self, texts: list[str]) -> None:
        """Raise an error if a schema cannot be used. ``texts``: the schema itself, then all its references."""

    def _forget(self, schema: Any) -> None:
        """Remove a schema that cannot be used from the cache of parsed schemas."""
        self._parsed_schemas.parsed_schemas.pop(schema, None)

    def _run_action(
        self, context: Any, mode: Any, rule: Any, action: Any, message: Any, error: Any, default: str
    ) -> None:
        """Run the action of a rule. If this process cannot execute the rule, the record is not the cause."""
        if isinstance(error, StreamsError):  # raised by the action of a rule that was executed
            raise error
        name = self._get_rule_action_name(rule, mode, action)
        name = default if name is None else name
        if self._get_rule_action(context, name) is None:
            raise RegistryUnavailableError("a schema in the registry has a rule whose action does not exist here")
        if name == "ERROR" and (rule.type is None or self._rule_registry.get_executor(rule.type.upper()) is None):
            raise RegistryUnavailableError("a schema in the registry has a rule whose type has no executor here")
        run: Any = super()._run_action  # type: ignore[misc]  # of confluent-kafka's class
        run(context, mode, rule, action, message, error, default)


class _LimitedAvro(_CheckedSchemas):
    """A mixin for Avro: the size of schemas from the registry is limited."""

    def _check_texts(self, texts: list[str]) -> None:
        check_size(texts)


class _ClosedReferences(_CheckedSchemas):
    """A mixin for JSON Schema: schemas from the registry may refer only to schemas in the registry."""

    def _get_parsed_schema(self, schema: Any) -> Any:
        from referencing import Registry

        parsed, references = super()._get_parsed_schema(schema)
        if not _is_own(self, schema):
            references = Registry().with_resources(references.items())
            self._parsed_schemas.set(schema, (parsed, references))
        return parsed, references

    def _get_validator(self, schema: Any, parsed: Any, references: Any) -> Any:
        """Return a validator with a limited number of steps. Even with our own schema, others may write the values."""
        from jsonschema.validators import validator_for

        from streams_py.registry.json_schema_bounds import BoundedValidator

        with self._validators_lock:
            validator = self._validators.get(schema)
        if validator is None:
            is_own = _is_own(self, schema)
            try:
                kind = validator_for(parsed)
                validator = BoundedValidator(kind(parsed, registry=references), references, is_trusted=is_own)
            except Exception as error:
                if is_own:
                    raise
                self._forget(schema)
                raise _unusable(error, schema, self._registry) from None
            if not is_own:
                validator = _ForeignValidator(validator, schema, self._registry)
            with self._validators_lock:
                self._validators[schema] = validator
        return validator


class _ForeignValidator:
    """A validator with a schema from the registry. All its errors that do not concern the value are outages."""

    def __init__(self, validator: Any, schema: Any, client: Any) -> None:
        self._validator = validator
        self._schema = schema
        self._client = client

    def validate(self, value: Any) -> None:
        from jsonschema.exceptions import ValidationError

        try:
            self._validator.validate(value)
        except (UnfitError, ValidationError):
            raise
        except Exception as error:
            raise _unusable(error, self._schema, self._client) from None


def _is_own(serde: Any, schema: Any) -> bool:
    """Whether a schema comes from the program, not from the registry."""
    if schema is None:
        return True
    if schema.schema_type == _PROTOBUF:  # a Protobuf serde's own schema is the class of its messages
        return False
    return not hasattr(serde, "_schema") or schema == serde._schema


def _check_references(schema: Any, client: Any) -> list[str]:
    """Return the texts of a schema and of all its references, including indirect ones.

    Raises:
        _ReferencesError: The references are too many or too large.
    """
    from confluent_kafka.schema_registry.common.protobuf import _is_builtin

    is_protobuf = schema.schema_type == _PROTOBUF
    form = ("serialized",) if is_protobuf else ()  # as the parser requests it, so that the client's cache serves both
    names: set[str] = set()
    found, left, texts = 0, [schema], [schema.schema_str or ""]
    length = len(texts[0])
    _check_length(length)
    while left:
        for reference in left.pop().references or ():
            if is_protobuf and (_is_builtin(reference.name) or reference.name in names):
                continue
            names.add(reference.name)
            found += 1
            if found > _REFERENCES_MAX:
                raise _ReferencesError(f"more than {_REFERENCES_MAX} references, or circular references")
            left.append(client.get_version(reference.subject, reference.version, True, *form).schema)
            texts.append(left[-1].schema_str or "")
            length += len(texts[-1])
            _check_length(length)
    return texts


def _check_length(length: int) -> None:
    if length > _TEXT_MAX:
        raise _ReferencesError(f"longer than {_TEXT_MAX} characters with its references")


def _unusable(error: Exception, schema: Any, client: Any) -> Exception:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    if isinstance(error, StreamsError):
        return error
    name = _name_of(schema, client)
    client.clear_caches()
    if isinstance(error, SchemaRegistryError):  # its text may repeat parts of the request
        reason = f"a reference does not exist (error code {error.error_code})"
    else:
        has_own_text = isinstance(error, _ReferencesError | SchemaSizeError | StepsExceededError | UnfitError)
        reason = str(error) if has_own_text else type(error).__name__
    return RegistryUnavailableError(f"a schema in the registry cannot be used{name}: {reason}")


def _name_of(schema: Any, client: Any) -> str:
    """Return the id and the subject of a schema in the client's cache, for an error message."""
    with client._cache.lock:
        for subject, known in client._cache.schema_index.items():
            if schema in known:
                return f" (id {known[schema]}" + (f", subject {printable(subject, 100)})" if subject else ")")
    return ""
