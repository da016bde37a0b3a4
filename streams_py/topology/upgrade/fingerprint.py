"""Fingerprints of operators: equal texts for operators that do the same with equal functions.

Functions are compared by their code, so the same lambda in two files is equal. Names of nodes and stores do not count,
because they may have changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from streams_py.serdes import Serde

_DEPTH_MAX = 8
_PLAIN = (bool, int, float, complex, bytes, type(None), type(Ellipsis))


def digest(*texts: str) -> str:
    """Return a short text for long ones."""
    return blake2b("\0".join(texts).encode(), digest_size=12).hexdigest()


def fingerprint(thing: object, names: Collection[str]) -> str:
    """Return the text of an operator and its content. ``names`` are texts that do not count."""
    return _text(thing, names, 0, set())


def serde_text(serde: Serde[Any] | None) -> str:
    """Return the description of a serde, for people and for comparison."""
    if serde is None:
        return "the default serde"
    if "<lambda>" in serde.name:
        return f"{serde.name} {digest(fingerprint(serde, ()))}"
    parts = {
        key: serde_text(value) if isinstance(value, Serde) else str(value)
        for key, value in _members(serde).items()
        if isinstance(value, (Serde, str, *_PLAIN)) and key not in ("_name", "name")
    }
    inner = ", ".join(f"{key.strip('_')}={value}" for key, value in sorted(parts.items()))
    return f"{serde.name} ({inner})" if inner else serde.name


def _text(thing: Any, names: Collection[str], depth: int, above: set[int]) -> str:
    if isinstance(thing, str):
        return "~" if str(thing) in names else repr(str(thing))
    if isinstance(thing, _PLAIN):
        return repr(thing)
    if isinstance(thing, Serde):
        return serde_text(thing)
    if isinstance(thing, type | BuiltinFunctionType):
        return thing.__qualname__
    if depth > _DEPTH_MAX or id(thing) in above:
        return type(thing).__qualname__
    above = above | {id(thing)}

    def inside(member: Any) -> str:
        return _text(member, names, depth + 1, above)

    if isinstance(thing, FunctionType):
        cells = [_content(cell) for cell in thing.__closure__ or ()]
        return f"def({_code(thing.__code__)};{inside(thing.__defaults__)};{','.join(map(inside, cells))})"
    if isinstance(thing, MethodType):
        return f"{inside(thing.__func__)} of {inside(thing.__self__)}"
    if isinstance(thing, Mapping):
        return "{" + ",".join(f"{inside(key)}:{inside(value)}" for key, value in thing.items()) + "}"
    if isinstance(thing, list | tuple):
        return "(" + ",".join(map(inside, thing)) + ")"
    if isinstance(thing, set | frozenset):
        return "{" + ",".join(sorted(map(inside, thing))) + "}"
    members = ",".join(f"{key}={inside(value)}" for key, value in sorted(_members(thing).items()))
    return f"{type(thing).__qualname__}({members})"


def _members(thing: object) -> dict[str, Any]:
    found = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, slot):
                found[slot] = getattr(thing, slot)
    return found


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _code(code: CodeType) -> str:
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return digest(code.co_code.hex(), repr(code.co_names), *constants)
