"""MessagePack by msgspec, which is an extra: JSON's values in fewer bytes, and plain bytes too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar, overload

from streams_py.errors import ConfigError
from streams_py.serdes.round_trips import UnfitError, lost
from streams_py.serdes.serde import Serde

__all__ = ["MsgspecSerde", "is_struct", "msgpack"]

T = TypeVar("T")


class MsgspecSerde(Serde[T]):
    """Structs of msgspec (or dataclasses, or whatever it can say) as JSON or MessagePack.

    Msgspec checks no types when it writes, and a struct of a subclass is written but not read as such. So a struct is
    read again after it was written, which costs less than looking at its members from Python.

    TypeError for a class that msgspec cannot read.
    """

    def __init__(self, cls: type[T] | None, format: Literal["json", "msgpack"], *, sort_keys: bool = False) -> None:
        self._cls = cls
        self._format = format
        self._sort_keys = sort_keys
        try:
            import msgspec
        except ImportError:
            raise ConfigError(
                f"{format}() needs msgspec; install it with: pip install 'kafka-streams-py[msgspec]'"
            ) from None
        self._module: Any = msgspec.json if format == "json" else msgspec.msgpack
        with suppress(NameError):  # a class that it names is defined further down
            self.deserializer("", is_key=False)

    @property
    def name(self) -> str:
        return self._format if self._cls is None else f"{self._format} ({self._cls.__qualname__})"

    def is_declared(self, value: object) -> bool:
        return not isinstance(self._cls, type) or isinstance(value, self._cls)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        # Keys of topics are written with sorted member names, so that equal objects are equal keys.
        order = "sorted" if is_key or self._sort_keys else None
        encode: Callable[[T], bytes] = self._module.Encoder(order=order).encode
        cls = self._cls
        if cls is None:
            return encode
        decode = self.deserializer(topic, is_key=is_key)
        # A struct's own comparison looks at all members and their classes, unless it was replaced.
        compares = is_struct(cls) and cls.__eq__ is _struct_equality()

        def serialize(value: T) -> bytes:
            if not isinstance(value, cls):
                raise TypeError(f"expected {cls.__qualname__}, got {type(value).__name__}")
            data = encode(value)
            try:
                back = decode(data)
            except ValueError as error:
                raise UnfitError(f"it could not be read again: {error}") from None
            if not (compares and back == value):
                what = lost(value, back)
                if what is not None:
                    raise UnfitError(f"it would not come back as it is: {what}")
            return data

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        decoder = self._module.Decoder() if self._cls is None else self._module.Decoder(self._cls)
        decode: Callable[[bytes], T] = decoder.decode
        return decode


def _struct_equality() -> Any:
    import msgspec

    return msgspec.Struct.__eq__


def is_struct(cls: type[Any]) -> bool:
    """True for subclasses of ``msgspec.Struct``; loads nothing."""
    return hasattr(cls, "__struct_fields__") and hasattr(cls, "__struct_config__")


@overload
def msgpack(*, sort_keys: bool = ...) -> Serde[Any]: ...
@overload
def msgpack(cls: type[T], *, sort_keys: bool = ...) -> Serde[T]: ...


def msgpack(cls: type[Any] | None = None, *, sort_keys: bool = False) -> Serde[Any]:
    """MessagePack, by msgspec (extra ``msgspec``). With ``cls``: a ``msgspec.Struct`` or a dataclass, whose types are
    checked when it is read."""
    return MsgspecSerde(cls, "msgpack", sort_keys=sort_keys)
