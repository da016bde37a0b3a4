"""Conversion between the objects of a store and its stored bytes.

A plain store stores the serialized values. A timestamped store stores ``i64 timestamp`` + serialized value. Its
changelog records have only the serialized value, and the timestamp as the record's timestamp (Kafka Streams'
ValueAndTimestampSerializer and ChangeLoggingTimestampedKeyValueBytesStore). Numbers are packed together with their
timestamp in one step.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streams_py.errors import StreamsError
from streams_py.serdes import Serde, cannot_decode, cannot_encode
from streams_py.serdes.reasons import cause_of
from streams_py.topology.declare.stores import ValueAndTimestamp

K = TypeVar("K")
V = TypeVar("V")

TIMESTAMP_BYTES = 8
_TIMESTAMP = struct.Struct(">q")
_new_tuple = tuple.__new__

pack_timestamp = _TIMESTAMP.pack


def timestamp_of(data: bytes) -> int:
    """Return the timestamp at the start of a timestamped store's bytes, in ms."""
    timestamp: int = _TIMESTAMP.unpack_from(data)[0]
    return timestamp


class StoreCodec(Generic[K, V]):
    """The serialization functions of one store, created once from its serdes.

    ``topic`` is the full name of the changelog topic, even if the store has no changelog, because serdes with a schema
    registry need a topic name.
    """

    def __init__(self, topic: str, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        self.topic = topic
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.encode_key: Callable[[K], bytes] = key_serde.serializer(topic, is_key=True)
        self.decode_key: Callable[[bytes], K] = key_serde.deserializer(topic, is_key=True)
        self.encode_value: Callable[[V], bytes] = value_serde.serializer(topic, is_key=False)
        self.decode_value: Callable[[bytes], V] = value_serde.deserializer(topic, is_key=False)

    def copier(self) -> Callable[[V], V] | None:
        """Return ``copy(value)``, which returns an equal value without shared objects. None if values are immutable."""
        if self.value_serde.plain_type is not None:
            return None
        encode, decode = self.encode_value, self.decode_value
        return lambda value: decode(encode(value))

    def timestamped_encoder(self) -> Callable[[V, int], bytes]:
        """Return ``encode(value, timestamp_ms)``, which returns the bytes of a timestamped store."""
        encode_value = self.encode_value
        number = self.value_serde.struct_format
        plain_type = self.value_serde.plain_type
        if number is None or plain_type is None:
            return lambda value, timestamp: pack_timestamp(timestamp) + encode_value(value)
        pack = struct.Struct(f">q{number}").pack

        def encode(value: V, timestamp: int) -> bytes:
            if value.__class__ is plain_type:
                return pack(timestamp, value)
            return pack_timestamp(timestamp) + encode_value(value)

        return encode

    def timestamped_decoder(self) -> Callable[[bytes], ValueAndTimestamp[V]]:
        """Return ``decode(data)``, which decodes bytes of a timestamped store to a ``ValueAndTimestamp``."""
        decode_parts = self.parts_decoder()
        pair: type[ValueAndTimestamp[V]] = ValueAndTimestamp
        return lambda data: _new_tuple(pair, decode_parts(data))  # skips the Python-level __new__ of named tuples

    def parts_decoder(self) -> Callable[[bytes], tuple[V, int]]:
        """Return ``decode(data)``, which decodes bytes of a timestamped store to a tuple (value, timestamp_ms)."""
        decode_value = self.decode_value
        number = self.value_serde.struct_format
        if number is None:
            return lambda data: (decode_value(data[TIMESTAMP_BYTES:]), timestamp_of(data))
        unpack = struct.Struct(f">q{number}").unpack

        def decode_number(data: bytes) -> tuple[V, int]:
            timestamp, value = unpack(data)
            return value, timestamp

        return decode_number

    def stored_decoder(self) -> Callable[[bytes], tuple[int, V]]:
        """Return ``decode(data)``, which decodes bytes of a timestamped store to (timestamp_ms, value), as stored."""
        decode_value = self.decode_value
        number = self.value_serde.struct_format
        if number is None:
            return lambda data: (timestamp_of(data), decode_value(data[TIMESTAMP_BYTES:]))
        unpack: Callable[[bytes], Any] = struct.Struct(f">q{number}").unpack
        return unpack

    # -- checked -----------------------------------------------------------------------------------------------

    def key_bytes(self, key: K) -> bytes:
        """Serialize a key.

        Raises:
            SerializationError: The serde rejects the key. The message names serde and topic.
        """
        try:
            return self.encode_key(key)
        except Exception as error:
            raise self.key_error(error, key) from cause_of(error)

    def value_bytes(self, value: V) -> bytes:
        """Serialize a value.

        Raises:
            SerializationError: The serde rejects the value. The message names serde and topic.
        """
        try:
            return self.encode_value(value)
        except Exception as error:
            raise self.value_error(error, value) from cause_of(error)

    # -- errors ------------------------------------------------------------------------------------------------

    def key_error(self, error: Exception, key: object) -> StreamsError:
        """Return the error to raise for a key that could not be encoded."""
        return _kept(error) or cannot_encode(error, self.key_serde, key, topic=self.topic, is_key=True)

    def value_error(self, error: Exception, value: object) -> StreamsError:
        """Return the error to raise for a value that could not be encoded."""
        return _kept(error) or cannot_encode(error, self.value_serde, value, topic=self.topic, is_key=False)

    def stored_error(self, error: Exception, data: bytes, *, is_key: bool) -> StreamsError:
        """Return the error to raise for stored bytes that cannot be decoded."""
        serde: Serde[Any] = self.key_serde if is_key else self.value_serde
        return _kept(error) or cannot_decode(error, serde, data, topic=self.topic, is_key=is_key)


def _kept(error: Exception) -> StreamsError | None:
    return error if isinstance(error, StreamsError) else None
