"""Small commits of a store, each as one entry of the database.

RocksDB's memtable keeps every version of a key that is overwritten, and each costs it 1 to 2 us: a counter that is
committed ten times a second would cost more in there than in all the rest of its way. So a commit that mostly writes
keys which the commits before it have written, too, goes in as a *bundle*: one entry with all its keys and values,
beside the positions and in the same batch with them. It is committed then like any other. What was bundled stays in
memory as well, for reading, and is written key by key, each once, when there is enough of it. A database that is opened
begins with the bundles that it finds, so nobody else need know of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import islice
from typing import Final

__all__ = ["BUNDLE", "bundle_key", "is_worth_it", "name_of", "packed", "unpacked"]

BUNDLE: Final = b"\0bundle "
"""What the keys of bundles begin with; no topic begins like this."""

_ENTRIES_MIN: Final = 64
"""Fewer cost RocksDB no more than a bundle, which is written once more later."""
_LOOKED_AT: Final = 128
_COUNT: Final = struct.Struct("<I")
_REMOVED: Final = -1


def bundle_key(store: str, number: int) -> bytes:
    """The key of a store's bundle; ``number`` is less than 65,536."""
    return BUNDLE + number.to_bytes(2, "big") + store.encode()


def name_of(key: bytes) -> str:
    """The store whose bundle has this key."""
    return key[len(BUNDLE) + 2 :].decode()


def is_worth_it(data: Mapping[bytes, bytes | None], before: Mapping[bytes, bytes | None]) -> bool:
    """Whether most of what is committed overwrites what was committed lately; some of it tells."""
    if len(data) < _ENTRIES_MIN:
        return False
    looked_at = min(len(data), _LOOKED_AT)
    return 2 * sum(map(before.__contains__, islice(data, looked_at))) >= looked_at


def packed(data: Mapping[bytes, bytes | None]) -> bytes:
    """The entries (None: removed) as one value: how many, the sizes of the keys and of the values, keys, values."""
    values = data.values()
    sizes = [*map(len, data), *[_REMOVED if value is None else len(value) for value in values]]
    return b"".join((_COUNT.pack(len(data)), struct.pack(f"<{len(sizes)}i", *sizes), *data, *filter(None, values)))


def unpacked(bundle: bytes) -> dict[bytes, bytes | None]:
    """The entries of a bundle."""
    (count,) = _COUNT.unpack_from(bundle)
    sizes = struct.unpack_from(f"<{2 * count}i", bundle, _COUNT.size)
    at = _COUNT.size + 8 * count
    parts: list[bytes | None] = []
    for size in sizes:
        parts.append(None if size == _REMOVED else bundle[at : at + size])
        at += max(size, 0)
    return dict(zip(parts[:count], parts[count:], strict=True))  # type: ignore[arg-type]  # keys are there
