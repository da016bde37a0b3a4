"""The interface of a serde, and serdes made from two functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["Serde", "SerdeDefaults", "serde", "serde_or_default"]

T = TypeVar("T")


class Serde(ABC, Generic[T]):
    """Turns values of one Python type into bytes and back.

    A serde is asked once per topic for a function, which then sees every record: return something fast, such as a
    bound C function. ``None`` never reaches these functions: a null key or value stays null. Raise any exception for a
    value or for bytes that do not fit; the runtime adds topic, partition, offset, node and both types.
    """

    @abstractmethod
    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        """The function that encodes keys (or values) of ``topic``."""

    @abstractmethod
    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        """The function that decodes keys (or values) of ``topic``."""

    @property
    def name(self) -> str:
        """Shown in errors."""
        return type(self).__name__

    def with_defaults(self, defaults: SerdeDefaults) -> Serde[T]:
        """This serde with default serdes where it leaves inner ones open; nearly all leave nothing open."""
        return self

    def is_declared(self, value: object) -> bool:
        """Whether the value has the type that this serde is declared for; True when it declares no type.

        A sink asks it about a value that could not be written. A value of another type is a mistake in the program,
        so the application stops. About any other value the production exception handler is asked.
        """
        kind: type[Any] | None = self.plain_type
        return kind is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool)))

    @property
    def plain_type(self) -> type[T] | None:
        """A promise that lets stores hold objects instead of bytes; None promises nothing.

        A type T says: objects of exactly T (no subclass) cannot change, and decoding what was encoded gives the same
        value as a T again.
        """
        return None

    @property
    def struct_format(self) -> str | None:
        """Format character of :mod:`struct` when the bytes are one big-endian number, else None.

        Lets a store pack timestamp and value in one step. Needs ``plain_type``.
        """
        return None

    @property
    def fixed_size(self) -> int | None:
        """Length in bytes when all values have the same, as Kafka's list serde knows it; else None."""
        return None


class SerdeDefaults(NamedTuple):
    """The serdes of whatever does not name its own: of a builder, or of the configuration."""

    key: Serde[Any] | None = None
    value: Serde[Any] | None = None


def serde_or_default(given: Serde[Any] | None, defaults: SerdeDefaults, *, is_key: bool) -> Serde[Any] | None:
    """``given`` with defaults where it asks for them: as a whole, or inside of it."""
    if given is None:
        return defaults.key if is_key else defaults.value
    return given.with_defaults(defaults)


class _FunctionSerde(Serde[T]):
    __slots__ = ("_deserialize", "_name", "_serialize")

    def __init__(self, serialize: Callable[[T], bytes], deserialize: Callable[[bytes], T], name: str) -> None:
        self._serialize = serialize
        self._deserialize = deserialize
        self._name = name

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        return self._serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        return self._deserialize

    @property
    def name(self) -> str:
        return self._name


def serde(*, serialize: Callable[[T], bytes], deserialize: Callable[[bytes], T], name: str | None = None) -> Serde[T]:
    """A serde from two functions. ``name`` is shown in errors; by default that of ``serialize``.

    Neither function is ever called with None. Subclass :class:`Serde` instead when the topic matters (a schema
    registry, for example).
    """
    return _FunctionSerde(serialize, deserialize, name or str(getattr(serialize, "__qualname__", serialize)))
