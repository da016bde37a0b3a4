"""The error messages for values or bytes that a serde refuses.

Messages show only types and lengths, not values and bytes, because error messages are logged, and keys and values may
be secret. With the setting ``errors.show.record.bytes``, messages show the bytes of records that cannot be decoded.
"""

from __future__ import annotations

from typing import Any

from streams_py.errors import SerializationError
from streams_py.serdes.reasons import reason_of
from streams_py.serdes.serde import Serde

_SHOWN_BYTES_MAX = 64


def cannot_encode(
    error: Exception, serde: Serde[Any], value: object, *, topic: str, is_key: bool
) -> SerializationError:
    """Return the error for a value that ``serde`` cannot encode."""
    what = "key" if is_key else "value"
    return SerializationError(
        f"{what} of topic {topic!r}: serde {serde.name!r} cannot encode a {_type_name(value)}: {reason_of(error)}. "
        f"Use a {what} serde for the type of the {what}s, or convert them before this step"
    )


def cannot_decode(
    error: Exception, serde: Serde[Any], data: bytes | None, *, topic: str, is_key: bool, shows_bytes: bool = False
) -> SerializationError:
    """Return the error for bytes that ``serde`` cannot decode. ``shows_bytes``: whether to show the first bytes."""
    what = "key" if is_key else "value"
    length = 0 if data is None else len(data)
    start = ""
    if data and shows_bytes:
        start = f" ({data[:_SHOWN_BYTES_MAX].hex()}{'...' if length > _SHOWN_BYTES_MAX else ''})"
    return SerializationError(
        f"{what} of topic {topic!r}: serde {serde.name!r} cannot decode {length} bytes{start}: {reason_of(error)}. "
        f"Use the {what} serde that the topic was written with"
    )


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
