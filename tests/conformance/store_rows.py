"""The content of a store as rows of a recording: serialized keys and values as hex text."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.formats.join_serdes import JoinSideKeySerde


def rows_of(store: Any, builder: StoreBuilder) -> list[list[Any]]:
    """One row per entry; of the store of an outer join one per waiting record."""
    return list(_rows(store, builder))


def _rows(store: Any, builder: StoreBuilder) -> Iterator[list[Any]]:
    encode_key: Callable[[Any], bytes] = store.codec.encode_key
    encode_value: Callable[[Any], bytes] = store.codec.encode_value
    for key, stored in store.all():
        match builder.kind:
            case StoreKind.KEY_VALUE if isinstance(builder.key_serde, JoinSideKeySerde):
                for element in _list_elements(encode_value(stored)):
                    yield [encode_key(key).hex(), element.hex()]
            case StoreKind.KEY_VALUE:
                yield [encode_key(key).hex(), encode_value(stored).hex()]
            case StoreKind.TIMESTAMPED_KEY_VALUE:
                yield [encode_key(key).hex(), encode_value(stored.value).hex(), stored.timestamp]
            case StoreKind.WINDOW:
                yield [encode_key(key.key).hex(), key.start, encode_value(stored).hex()]
            case StoreKind.TIMESTAMPED_WINDOW:
                yield [encode_key(key.key).hex(), key.start, encode_value(stored.value).hex(), stored.timestamp]
            case StoreKind.SESSION:
                yield [encode_key(key.key).hex(), key.start, key.end, encode_value(stored).hex()]


def _list_elements(data: bytes) -> Iterator[bytes]:
    """Elements of a list of variable length: layout byte, count, then length and bytes of each."""
    (count,) = struct.unpack_from(">i", data, 1)
    at = 5
    for _ in range(count):
        (length,) = struct.unpack_from(">i", data, at)
        yield data[at + 4 : at + 4 + length]
        at += 4 + length
