"""JSON in UTF-8, by orjson when it is installed and by the standard library otherwise.

Both write the same compact text. Keys of topics are written with sorted member names, so that equal objects are equal
keys. What only one of the two accepts (integers beyond 64 bits, dates) is better turned into text before it gets here.
"""

from __future__ import annotations

import dataclasses
import json as _json
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar, overload

from streams_py.serdes.serde import Serde

__all__ = ["JSON", "json"]

T = TypeVar("T")


class _Json(Serde[Any]):
    name = "json"

    def __init__(self, *, sort_keys: bool = False, use_orjson: bool | None = None) -> None:
        self._sort_keys = sort_keys
        self._use_orjson = find_spec("orjson") is not None if use_orjson is None else use_orjson

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[Any], bytes]:
        sort_keys = self._sort_keys or is_key
        if not self._use_orjson:
            return _standard_encoder(sort_keys)
        import orjson  # optional dependency, and `import streams_py` stays light

        if not sort_keys:
            return orjson.dumps
        dumps, sorted_keys = orjson.dumps, orjson.OPT_SORT_KEYS
        return lambda value: dumps(value, None, sorted_keys)

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], Any]:
        if not self._use_orjson:
            return _json.loads
        import orjson  # as above

        return orjson.loads


def _standard_encoder(sort_keys: bool) -> Callable[[Any], bytes]:
    encode = _json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys, default=_dataclass_members
    ).encode
    return lambda value: encode(value).encode()


def _dataclass_members(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form")


class _JsonDataclass(Serde[T]):
    def __init__(self, cls: type[T], inner: _Json) -> None:
        if not dataclasses.is_dataclass(cls):
            raise TypeError(f"json() takes a dataclass, got {cls!r}")
        self._cls = cls
        self._inner = inner

    @property
    def name(self) -> str:
        return f"json ({self._cls.__qualname__})"

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        encode, cls = self._inner.serializer(topic, is_key=is_key), self._cls

        def serialize(value: T) -> bytes:
            if not isinstance(value, cls):
                raise TypeError(f"expected {cls.__qualname__}, got {type(value).__name__}")
            return encode(value)

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        decode, cls = self._inner.deserializer(topic, is_key=is_key), self._cls
        return lambda data: cls(**decode(data))


@overload
def json(*, sort_keys: bool = ...) -> Serde[Any]: ...
@overload
def json(cls: type[T], *, sort_keys: bool = ...) -> Serde[T]: ...


def json(cls: type[Any] | None = None, *, sort_keys: bool = False) -> Serde[Any]:
    """JSON text. With a dataclass: its members as a JSON object, and back by ``cls(**members)`` (nested dataclasses
    come back as plain dicts)."""
    inner = _Json(sort_keys=sort_keys)
    return inner if cls is None else _JsonDataclass(cls, inner)


JSON: Serde[Any] = _Json()
"""What JSON can say: dict, list, str, int, float, bool."""
