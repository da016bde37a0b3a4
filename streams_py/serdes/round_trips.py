"""Compare a value with the value that was written and read back, and describe the difference.

Messages name members and types. They never show a value or a key of a mapping, because those are record contents.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

_SCALARS = (int, float, str, bytes)
_MISSING = object()


class UnfitError(ValueError):
    """A value or bytes that a serde refuses. The message does not show them."""


def lost(written: object, back: object, where: str = "the value") -> str | None:
    """Describe in one phrase how ``back`` differs from ``written``. None if it does not differ.

    The ``__eq__`` of classes is not used, because it may ignore members or compare identities.
    """
    if written is back:
        return None
    if written.__class__ is not back.__class__:
        return _other_class(written, back, where)
    if isinstance(written, dict):
        return _lost_of_mapping(written, back, where)
    if isinstance(written, list | tuple | deque):
        return _lost_of_sequence(written, back, where)
    members = _members(written)
    if members is not None:
        return _lost_of_members(members, _members(back) or {}, where)
    if _equal(written, back):
        return None
    return f"{where} ({type(written).__name__}) comes back as another value"


def _other_class(written: object, back: object, where: str) -> str | None:
    if isinstance(written, _SCALARS) and isinstance(back, _SCALARS) and _equal(written, back):
        return None  # 1 for a declared float, a member of an IntEnum for a declared int
    if isinstance(written, _zone_class()) or isinstance(back, _zone_class()):
        return None if _equal(written, back) else f"{where} comes back as another value"
    gone = sorted((_members(written) or {}).keys() - (_members(back) or {}).keys())
    without = f" without {', '.join(gone)}" if gone and _members(back) is not None else ""
    return f"{where} is {_a(written)}, and comes back as {_a(back)}{without}"


def _zone_class() -> type[Any]:
    from datetime import tzinfo

    return tzinfo


def _lost_of_mapping(written: dict[Any, Any], back: Any, where: str) -> str | None:
    if len(written) != len(back):
        return f"{where} comes back with {len(back)} entries instead of {len(written)}"
    for key, value in written.items():
        found = back.get(key, _MISSING) if type(back) is dict else dict(back).get(key, _MISSING)
        if found is _MISSING:
            return f"{where} comes back with other keys (a key is {_a(key)})"
        what = lost(value, found, _below(where, "*"))
        if what is not None:
            return what
    return None


def _lost_of_sequence(written: Any, back: Any, where: str) -> str | None:
    if len(written) != len(back):
        return f"{where} comes back with {len(back)} items instead of {len(written)}"
    found = (lost(one, other, _below(where, str(i))) for i, (one, other) in enumerate(zip(written, back, strict=True)))
    return next((what for what in found if what is not None), None)


def _lost_of_members(written: dict[str, Any], back: dict[str, Any], where: str) -> str | None:
    for name, value in written.items():
        if name not in back:
            return f"{_below(where, name)} is not written"
        if value is _MISSING:
            continue
        what = lost(value, back[name], _below(where, name))
        if what is not None:
            return what
    more = sorted(back.keys() - written.keys())
    return f"{_below(where, more[0])} was not set, and comes back" if more else None


def _members(value: Any) -> dict[str, Any] | None:
    """Return the members of a model, dataclass or struct by name, including private ones. None for other values."""
    kind = type(value)
    if hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_fields"):
        fields = {name: value.__dict__[name] for name in kind.__pydantic_fields__ if name in value.__dict__}
        return {**fields, **(value.__pydantic_extra__ or {}), **(value.__pydantic_private__ or {})}
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name, _MISSING) for field in dataclasses.fields(kind)}
    if hasattr(kind, "__struct_fields__"):
        return {name: getattr(value, name) for name in kind.__struct_fields__}
    return None


def _equal(written: Any, back: Any) -> bool:
    try:
        return bool(written == back) or (written != written and back != back)  # NaN is not equal to itself
    except Exception:  # the comparison of a user's class
        return False


def _below(where: str, name: str) -> str:
    return name if where == "the value" else f"{where}.{name}"


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
