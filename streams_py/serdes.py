"""Serdes: how keys and values become bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Serde"]

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
