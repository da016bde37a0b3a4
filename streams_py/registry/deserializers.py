"""confluent-kafka's deserializers, with checks of a record's bytes against the schema they were written with.

This module imports the extra ``registry``; import it where a deserializer is created.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.common.schema_registry_client import RuleMode, RulePhase
from confluent_kafka.schema_registry.common.serde import ParsedSchemaCache
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

from streams_py.errors import RegistryUnavailableError
from streams_py.registry.avro_bounds import bounds_of
from streams_py.registry.avro_size import mark_parsed
from streams_py.registry.caches import SchemaCache, parsed_size
from streams_py.serdes.round_trips import UnfitError

_Check = Callable[[bytes], None]
_ID_SETTING = "schema.id.deserializer"


class BoundedAvroDeserializer(AvroDeserializer):
    """A deserializer that refuses data that stops the decoder or the process (:mod:`avro_bounds`).

    Encoding rules of the writer's schema may replace the data of a record. The data that the decoder gets is checked.
    """

    def __init__(self, client: Any, schema: str, from_dict: Any, settings: dict[str, Any]) -> None:
        self._framed = threading.local()  # interactive queries read stores on other threads
        self._bounds = SchemaCache(lambda schema, _: parsed_size(self, schema), is_parsed=True)
        given = settings.get(_ID_SETTING, dual_schema_id_deserializer)

        def remember(data: bytes, context: Any, schema_id: Any) -> Any:
            self._framed.context = context
            self._framed.parsed = []
            self._framed.payload = payload = given(data, context, schema_id)
            return payload

        super().__init__(client, schema, from_dict, conf={**settings, _ID_SETTING: remember})
        self._parsed_schemas = _PinnedSchemas(self._framed)
        mark_parsed(self._reader_schema)

    def _get_writer_schema(self, schema_id: Any, subject: Any = None, *args: Any, **kwargs: Any) -> Any:
        schema = super()._get_writer_schema(schema_id, subject, *args, **kwargs)
        if not self._has_encoding_rules(schema, subject):
            self._check(schema, self._framed.payload)
        return schema

    def _execute_rules_with_phase(
        self, context: Any, subject: Any, phase: Any, mode: Any, source: Any, target: Any, message: Any, *args: Any
    ) -> Any:
        result = super()._execute_rules_with_phase(context, subject, phase, mode, source, target, message, *args)
        if phase == RulePhase.ENCODING and mode == RuleMode.READ and self._has_encoding_rules(target, subject):
            self._check(target, result)
        return result

    def _has_encoding_rules(self, schema: Any, subject: Any) -> bool:
        """Whether the base class calls :meth:`_execute_rules_with_phase` with rules, which may replace the data."""
        if not getattr(schema.rule_set, "encoding_rules", None) or self._framed.context is None:
            return False
        parsed = self._get_parsed_schema(schema)
        if subject is None and isinstance(parsed, dict):
            more = (self._registry, self._subject_name_conf) if self._strategy_accepts_client else ()
            subject = self._subject_name_func(self._framed.context, parsed.get("name"), *more)
        return subject is not None

    def _check(self, schema: Any, payload: Any) -> None:
        parsed = self._get_parsed_schema(schema)
        known, check = self._bounds.get(schema, (None, None))
        if known is not parsed:  # the references of the schema may have other contents now
            check = None if _is_plain_bytes(parsed) else self._bounds_of(schema, parsed)
            self._bounds[schema] = parsed, check
        if check is None or payload is None:
            return
        try:
            check(payload if isinstance(payload, bytes) else bytes(payload.getbuffer()[payload.tell() :]))
        except ValueError as error:
            raise UnfitError(str(error)) from None

    def _bounds_of(self, schema: Any, parsed: Any) -> _Check | None:
        try:
            return bounds_of(parsed)
        except RecursionError:
            self._parsed_schemas.parsed_schemas.pop(schema, None)
            raise RegistryUnavailableError("a schema in the registry cannot be used: nested too deeply") from None


class _PinnedSchemas(ParsedSchemaCache):
    """A cache of parsed schemas, marked as parsed, that returns the same parsed schema during one record of a thread.

    A record must be decoded with the schema that it was checked with. The cache may remove the schema meanwhile, or
    another thread may parse it again, with other references.
    """

    def __init__(self, framed: threading.local) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._framed = framed

    def get_parsed_schema(self, schema: Any) -> Any:
        used: list[tuple[Any, Any]] = getattr(self._framed, "parsed", [])
        for known, parsed in used:
            if schema is known:
                return parsed
        for known, parsed in used:
            if schema == known:
                return parsed
        found: Any = super().get_parsed_schema(schema)
        if found is not None:
            used.append((schema, found))
        return found

    def set(self, schema: Any, parsed_schema: Any) -> None:
        mark_parsed(parsed_schema)
        super().set(schema, parsed_schema)
        getattr(self._framed, "parsed", []).append((schema, parsed_schema))


def _is_plain_bytes(parsed: Any) -> bool:
    """Whether a record is not in Avro's encoding, but consists of the bytes alone."""
    return parsed == "bytes" or (isinstance(parsed, dict) and parsed.get("type") == "bytes")


class ExactProtobufDeserializer(ProtobufDeserializer):
    """A deserializer that refuses messages of another type. Without it, any message can be parsed as any type."""

    def __init__(self, message: Any, settings: dict[str, Any], client: Any) -> None:
        super().__init__(message, settings, client)
        self._expected = message.DESCRIPTOR.full_name
        self._written = SchemaCache(lambda key, _: parsed_size(self, key[0]), is_parsed=True)

    def _get_writer_schema(self, schema_id: Any, *args: Any, **kwargs: Any) -> Any:
        schema = super()._get_writer_schema(schema_id, *args, **kwargs)
        indexes = tuple(schema_id.message_indexes or ())
        parsed = self._get_parsed_schema(schema)
        known, name = self._written.get((schema, indexes), (None, ""))
        if known is not parsed:  # the references of the schema may have other contents now
            file, pool = parsed
            described = self._get_message_desc(pool, pool.FindFileByName(file.name), list(indexes))
            name = described.full_name
            self._written[schema, indexes] = parsed, name
        if name != self._expected:
            raise UnfitError(f"the record is a {name} (message index {list(indexes)}), expected {self._expected}")
        return schema
