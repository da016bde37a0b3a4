"""MessagePack, by the optional package msgspec: JSON's values in fewer bytes, and also bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar, overload

from streams_py.errors import ConfigError
from streams_py.serdes.round_trips import UnfitError, lost
from streams_py.serdes.serde import Serde

T = TypeVar("T")


class MsgspecSerde(Serde[T]):
    """A serde for msgspec structs, dataclasses and other types that msgspec supports, as JSON or MessagePack.

    Msgspec does not check types when it writes, and an object of a subclass is written but read back as the declared
    class. So each value is read back after writing, which costs less than checking its members in Python.

    Raises:
        TypeError: Msgspec does not support the class.
    """

    def __init__(self, cls: type[T] | None, format: Literal["json", "msgpack"], *, sort_keys: bool = False) -> None:
        self._cls = cls
        self._format = format
        self._sort_keys = sort_keys
        try:
            import msgspec
        except ImportError:
            raise ConfigError(
                f"{format}() requires msgspec; install it with: pip install 'kafka-streams-py[msgspec]'"
            ) from None
        self._module: Any = msgspec.json if format == "json" else msgspec.msgpack
        with suppress(NameError):  # a class that it refers to may be defined later in the module
            self.deserializer("", is_key=False)

    @property
    def name(self) -> str:
        return self._format if self._cls is None else f"{self._format} ({self._cls.__qualname__})"

    def is_declared(self, value: object) -> bool:
        return not isinstance(self._cls, type) or isinstance(value, self._cls)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        # Record keys are written with sorted member names, so that equal objects are equal keys.
        order = "sorted" if is_key or self._sort_keys else None
        encode: Callable[[T], bytes] = self._module.Encoder(order=order).encode
        cls = self._cls
        if cls is None:
            return encode
        decode = self.deserializer(topic, is_key=is_key)
        # A struct's __eq__ compares all members and their classes, unless the class overrides it.
        compares = is_struct(cls) and cls.__eq__ is _struct_equality()

        def serialize(value: T) -> bytes:
            if not isinstance(value, cls):
                raise TypeError(f"expected {cls.__qualname__}, got {type(value).__name__}")
            data = encode(value)
            try:
                back = decode(data)
            except ValueError as error:
                raise UnfitError(f"it cannot be read back: {error}") from None
            if not (compares and back == value):
                what = lost(value, back)
                if what is not None:
                    raise UnfitError(f"it would change when it is read back: {what}")
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
    """Whether ``cls`` is a subclass of ``msgspec.Struct``. Does not import msgspec."""
    return hasattr(cls, "__struct_fields__") and hasattr(cls, "__struct_config__")


@overload
def msgpack(*, sort_keys: bool = ...) -> Serde[Any]: ...
@overload
def msgpack(cls: type[T], *, sort_keys: bool = ...) -> Serde[T]: ...


def msgpack(cls: type[Any] | None = None, *, sort_keys: bool = False) -> Serde[Any]:
    """Return a serde for MessagePack, by msgspec (extra ``msgspec``).

    Args:
        cls: A ``msgspec.Struct`` or a dataclass, whose types are checked when reading. Default: plain values.
        sort_keys: Whether to sort member names. Record keys are always sorted.
    """
    return MsgspecSerde(cls, "msgpack", sort_keys=sort_keys)
