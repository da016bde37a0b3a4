"""Schemas that several test modules use."""

from __future__ import annotations

from typing import Any


def doubling(levels: int) -> dict[str, Any]:
    """Alternatives that refer to two alternatives each. None of them accepts the record."""
    parts: dict[str, Any] = {
        f"p{n}": {"anyOf": [{"$ref": f"#/$defs/p{n + 1}"}, {"$ref": f"#/$defs/p{n + 1}"}]} for n in range(levels)
    }
    return {"$ref": "#/$defs/p0", "$defs": {**parts, f"p{levels}": {"type": "number"}}}
