"""The interface of a serde, and serdes built from two functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["Serde", "SerdeDefaults", "serde", "serde_or_default"]

T = TypeVar("T")


class Serde(ABC, Generic[T]):
    """A converter between values of one Python type and bytes.

    The runtime calls :meth:`serializer` and :meth:`deserializer` once per topic, and calls the returned functions for
    every record. So they should be fast, such as bound C functions. They are never called with ``None``: a null key or
    value stays null. For a value or bytes that they cannot convert, they may raise any exception; the runtime adds
    topic, partition, offset, node and both types.
    """

    @abstractmethod
    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        """Return the function that encodes the keys (``is_key``) or values of ``topic``."""

    @abstractmethod
    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        """Return the function that decodes the keys (``is_key``) or values of ``topic``."""

    @property
    def name(self) -> str:
        """The name in error messages."""
        return type(self).__name__

    def with_defaults(self, defaults: SerdeDefaults) -> Serde[T]:
        """Return this serde with default serdes for unspecified inner serdes. Most serdes have none."""
        return self

    def is_declared(self, value: object) -> bool:
        """Whether the value has the type that this serde is declared for. True if the serde declares no type.

        A sink calls this for a value that cannot be written. A value of another type is an error in the program, so the
        application stops. For all other values, the production exception handler is called.
        """
        kind: type[Any] | None = self.plain_type
        return kind is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool)))

    @property
    def plain_type(self) -> type[T] | None:
        """A guarantee that allows stores to cache objects instead of bytes; None: no guarantee.

        A type T guarantees: objects of exactly T (not of a subclass) are immutable, and decoding an encoded value
        returns an equal value of type T.
        """
        return None

    @property
    def struct_format(self) -> str | None:
        """The format character of :mod:`struct` if the bytes are one big-endian number, otherwise None.

        It allows a store to pack timestamp and value in one step. Requires ``plain_type``.
        """
        return None

    @property
    def fixed_size(self) -> int | None:
        """The length in bytes if all values have the same length, otherwise None. Kafka's list serde uses it."""
        return None


class SerdeDefaults(NamedTuple):
    """The default serdes of a builder or of the configuration."""

    key: Serde[Any] | None = None
    """The serde of keys, or None."""
    value: Serde[Any] | None = None
    """The serde of values, or None."""


def serde_or_default(given: Serde[Any] | None, defaults: SerdeDefaults, *, is_key: bool) -> Serde[Any] | None:
    """Return ``given`` with defaults for its inner serdes, or the default serde if ``given`` is None."""
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
    """Create a serde from two functions, which are never called with None.

    Subclass :class:`Serde` instead if the functions depend on the topic (for example, with a schema registry).

    Args:
        serialize: Encodes a value.
        deserialize: Decodes bytes.
        name: The name in error messages. Default: the name of ``serialize``.
    """
    return _FunctionSerde(serialize, deserialize, name or str(getattr(serialize, "__qualname__", serialize)))
