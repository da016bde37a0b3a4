"""confluent-kafka's deserializers, with checks of a record's bytes against the schema they were written with.

This module imports the extra ``registry``; import it where a deserializer is created.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

from streams_py.registry.avro_bounds import bounds_of
from streams_py.serdes.round_trips import UnfitError

_ID_SETTING = "schema.id.deserializer"


class BoundedAvroDeserializer(AvroDeserializer):
    """A deserializer that refuses data with more items than bytes, or with too deep nesting (:mod:`avro_bounds`)."""

    def __init__(self, client: Any, schema: str, from_dict: Any, settings: dict[str, Any]) -> None:
        self._framed = threading.local()  # interactive queries read stores on other threads
        self._bounds: dict[Any, Callable[[bytes], None] | None] = {}
        given = settings.get(_ID_SETTING, dual_schema_id_deserializer)

        def remember(data: bytes, context: Any, schema_id: Any) -> Any:
            self._framed.payload = payload = given(data, context, schema_id)
            return payload

        super().__init__(client, schema, from_dict, conf={**settings, _ID_SETTING: remember})

    def _get_writer_schema(self, schema_id: Any, *args: Any, **kwargs: Any) -> Any:
        schema = super()._get_writer_schema(schema_id, *args, **kwargs)
        number = schema_id.id if schema_id.id is not None else schema_id.guid
        if number not in self._bounds:
            parsed = self._get_parsed_schema(schema)
            self._bounds[number] = None if _is_plain_bytes(parsed) else bounds_of(parsed)
        check = self._bounds[number]
        rules = getattr(schema, "rule_set", None)
        if check is not None and not getattr(rules, "encoding_rules", None):  # such rules change the bytes first
            payload = self._framed.payload
            try:
                check(payload if isinstance(payload, bytes) else bytes(payload.getbuffer()[payload.tell() :]))
            except ValueError as error:
                raise UnfitError(str(error)) from None
        return schema


def _is_plain_bytes(parsed: Any) -> bool:
    """Whether a record is not in Avro's encoding, but consists of the bytes alone."""
    return parsed == "bytes" or (isinstance(parsed, dict) and parsed.get("type") == "bytes")


class ExactProtobufDeserializer(ProtobufDeserializer):
    """A deserializer that refuses messages of another type. Without it, any message can be parsed as any type."""

    def __init__(self, message: Any, settings: dict[str, Any], client: Any) -> None:
        super().__init__(message, settings, client)
        self._expected = message.DESCRIPTOR.full_name
        self._written: dict[Any, str] = {}

    def _get_writer_schema(self, schema_id: Any, *args: Any, **kwargs: Any) -> Any:
        schema = super()._get_writer_schema(schema_id, *args, **kwargs)
        indexes = tuple(schema_id.message_indexes or ())
        written = (schema_id.id, schema_id.guid, indexes)
        name = self._written.get(written)
        if name is None:
            file, pool = self._get_parsed_schema(schema)
            described = self._get_message_desc(pool, pool.FindFileByName(file.name), list(indexes))
            name = self._written[written] = described.full_name
        if name != self._expected:
            raise UnfitError(f"the record is a {name} (message index {list(indexes)}), expected {self._expected}")
        return schema
