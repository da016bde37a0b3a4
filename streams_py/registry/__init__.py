"""Serdes with a schema registry: Avro, Protobuf and JSON Schema, compatible with Confluent's serializers for Java.

    registry = SchemaRegistry("http://localhost:8081")
    orders = builder.stream("orders", key=serdes.STRING, value=registry.avro(ORDER_SCHEMA, Order))

Requires the extra ``registry``.
"""

from streams_py.registry.schema_registry import SchemaRegistry

__all__ = ["SchemaRegistry"]
