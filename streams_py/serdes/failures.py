"""What a user reads when a serde refuses a value or bytes.

Values and bytes are not shown, only types and lengths: an error text ends up in logs, and keys and values may be
secret. A setting shows the bytes of records that cannot be read (``errors.show.record.bytes``).
"""

from __future__ import annotations

from typing import Any

from streams_py.errors import SerializationError
from streams_py.serdes.reasons import reason_of
from streams_py.serdes.serde import Serde

__all__ = ["cannot_decode", "cannot_encode"]

_SHOWN_BYTES_MAX = 64


def cannot_encode(
    error: Exception, serde: Serde[Any], value: object, *, topic: str, is_key: bool
) -> SerializationError:
    """The error for ``value`` that ``serde`` did not take."""
    what = "key" if is_key else "value"
    return SerializationError(
        f"{what} of topic {topic!r}: serde {serde.name!r} cannot encode a {_type_name(value)}: {reason_of(error)}. "
        f"Give the {what} serde that fits the {what}s, or convert them before they get here"
    )


def cannot_decode(
    error: Exception, serde: Serde[Any], data: bytes | None, *, topic: str, is_key: bool, shows_bytes: bool = False
) -> SerializationError:
    """The error for bytes that ``serde`` did not take. ``shows_bytes``: its text has the first of them."""
    what = "key" if is_key else "value"
    length = 0 if data is None else len(data)
    start = ""
    if data and shows_bytes:
        start = f" ({data[:_SHOWN_BYTES_MAX].hex()}{'...' if length > _SHOWN_BYTES_MAX else ''})"
    return SerializationError(
        f"{what} of topic {topic!r}: serde {serde.name!r} cannot decode {length} bytes{start}: {reason_of(error)}. "
        f"Give the {what} serde that the topic was written with"
    )


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
