"""JSON in UTF-8, by orjson when it is installed and by the standard library otherwise.

Both write the same compact text. Keys of topics are written with sorted member names, so that equal objects are equal
keys. What only one of the two accepts (integers beyond 64 bits, dates) is better turned into text before it gets here.
"""

from __future__ import annotations

import dataclasses
import json as _json
import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, overload

from streams_py.serdes.msgpack import MsgspecSerde, is_struct
from streams_py.serdes.serde import Serde

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter, ValidationError

__all__ = ["JSON", "json", "without_values", "wrong_members"]

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


class _JsonModel(Serde[T]):
    """A pydantic model or a dataclass. Pydantic checks the types of its members, both ways, and builds what is nested.

    Members are written by the encoder of plain JSON, so that the text is the same with and without a class.
    """

    def __init__(self, cls: type[T], inner: _Json) -> None:
        if not dataclasses.is_dataclass(cls) and not hasattr(cls, "model_validate_json"):
            raise TypeError(f"json() takes a pydantic model or a dataclass (or a msgspec.Struct), got {cls!r}")
        self._cls = cls
        self._inner = inner

    @property
    def name(self) -> str:
        return f"json ({self._cls.__qualname__})"

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        from pydantic_core import PydanticSerializationError

        encode, cls = self._inner.serializer(topic, is_key=is_key), self._cls
        plain = self._adapter().dump_python

        def serialize(value: T) -> bytes:
            if not isinstance(value, cls):
                raise TypeError(f"expected {cls.__qualname__}, got {type(value).__name__}")
            try:
                members = plain(value, mode="json", by_alias=True, warnings="error")
            except PydanticSerializationError as error:
                raise ValueError(wrong_members(error)) from None
            return encode(members)

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        from pydantic import ValidationError

        validate = self._adapter().validate_json
        # A model says itself what becomes of members it does not have; a dataclass has no place for them.
        expected = {field.name for field in dataclasses.fields(self._cls)} if _is_plain(self._cls) else None
        inner = self._inner.deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> T:
            try:
                value: T = validate(data, strict=True)
            except ValidationError as error:
                raise ValueError(without_values(error)) from None
            if expected is not None:
                unknown = inner(data).keys() - expected
                if unknown:
                    raise ValueError(
                        f"members that {self._cls.__qualname__} does not have: {', '.join(sorted(unknown))}"
                    )
            return value

        return deserialize

    def _adapter(self) -> TypeAdapter[T]:
        from pydantic import TypeAdapter  # `import streams_py` stays light

        return TypeAdapter(self._cls)


def _is_plain(cls: type[Any]) -> TypeGuard[type[DataclassInstance]]:
    return dataclasses.is_dataclass(cls) and not hasattr(cls, "__pydantic_validator__")


def without_values(error: ValidationError) -> str:
    """What is wrong and where. Values are left out: they may be secret."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'the whole'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    )


def wrong_members(error: Exception) -> str:
    """What pydantic could not write, and where. Its own text shows the values."""
    found = re.findall(r"Expected `([^`]*)`[^\[]*\[(?:field_name='(\w+)')?", str(error))
    return "; ".join(f"{field or 'the whole'}: expected {kind}" for kind, field in found) or "it cannot be written"


@overload
def json(*, sort_keys: bool = ...) -> Serde[Any]: ...
@overload
def json(cls: type[T], *, sort_keys: bool = ...) -> Serde[T]: ...


def json(cls: type[Any] | None = None, *, sort_keys: bool = False) -> Serde[Any]:
    """JSON text. With a pydantic model, a dataclass or a ``msgspec.Struct``: its members as a JSON object, and back.

    What is nested in it comes back as what it was; a member of the wrong type is an error, when it is written and when
    it is read.
    """
    if cls is not None and is_struct(cls):
        return MsgspecSerde(cls, "json", sort_keys=sort_keys)  # which checks types when it reads
    inner = _Json(sort_keys=sort_keys)
    return inner if cls is None else _JsonModel(cls, inner)


JSON: Serde[Any] = _Json()
"""What JSON can say: dict, list, str, int, float, bool."""
