"""Bundles: a small commit of a store, written as a single entry of the database.

RocksDB's memtable keeps every version of an overwritten key, and each version costs 1 to 2 us. A counter that is
committed ten times a second would cost more there than in all the rest of its processing. So a commit that mostly
overwrites keys of the previous commits is written as a *bundle*: one entry with all of its keys and values, in the same
batch as the changelog positions and in the same column family. This makes it as durable as any other commit.

Bundled entries also stay in memory, so that they can be read. When enough of them have collected, they are written to
the store's column family key by key, each key once. Opening a database first writes out the bundles that it finds, so
no other code has to know about bundles.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import islice
from typing import Final

BUNDLE: Final = b"\0bundle "
"""Key prefix of bundles. No topic name starts with it."""

_ENTRIES_MIN: Final = 64
"""Minimum number of entries in a bundle. A bundle is written twice, so fewer entries are cheaper to write directly."""
_SAMPLED: Final = 128
"""Number of keys that :func:`is_worth_it` examines."""
_COUNT: Final = struct.Struct("<I")
_REMOVED: Final = -1


def bundle_key(store: str, number: int) -> bytes:
    """Return the key of a store's bundle. ``number`` is less than 65,536."""
    return BUNDLE + number.to_bytes(2, "big") + store.encode()


def name_of(key: bytes) -> str:
    """Return the name of the store whose bundle has this key."""
    return key[len(BUNDLE) + 2 :].decode()


def is_worth_it(data: Mapping[bytes, bytes | None], before: Mapping[bytes, bytes | None]) -> bool:
    """Whether most entries of a commit overwrite recently committed entries, judged by a sample of the keys."""
    if len(data) < _ENTRIES_MIN:
        return False
    sampled = min(len(data), _SAMPLED)
    return 2 * sum(map(before.__contains__, islice(data, sampled))) >= sampled


def packed(data: Mapping[bytes, bytes | None]) -> bytes:
    """Encode entries (None: deleted) as one value: count, sizes of all keys and all values, keys, values."""
    values = data.values()
    sizes = [*map(len, data), *[_REMOVED if value is None else len(value) for value in values]]
    return b"".join((_COUNT.pack(len(data)), struct.pack(f"<{len(sizes)}i", *sizes), *data, *filter(None, values)))


def unpacked(bundle: bytes) -> dict[bytes, bytes | None]:
    """Decode the entries of a bundle."""
    (count,) = _COUNT.unpack_from(bundle)
    sizes = struct.unpack_from(f"<{2 * count}i", bundle, _COUNT.size)
    at = _COUNT.size + 8 * count
    parts: list[bytes | None] = []
    for size in sizes:
        parts.append(None if size == _REMOVED else bundle[at : at + size])
        at += max(size, 0)
    return dict(zip(parts[:count], parts[count:], strict=True))  # type: ignore[arg-type]  # keys are there
