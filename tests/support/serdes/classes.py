"""Classes whose instances are values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import BaseModel

from streams_py.serdes import Serde


def round_trip(serde: Serde[Any], value: Any, *, is_key: bool = False) -> Any:
    data = serde.serializer("t", is_key=is_key)(value)
    return serde.deserializer("t", is_key=is_key)(data)


class Event(BaseModel):
    id: int


class Bag(BaseModel):
    events: list[Event] = []
    first: Event | None = None
    named: dict[str, Event] = {}
    pair: tuple[int, Event] = (1, Event(id=0))


@dataclass
class Row:
    id: int


class Struct(msgspec.Struct):
    id: int


@dataclass
class Loose:
    x: Any
