"""Checks that arguments are serdes, made by the call that passes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.caller import locate, user_line

_SERDES: Final[Mapping[object, str]] = {
    str: "serdes.STRING", int: "serdes.INT64", float: "serdes.FLOAT64", bytes: "serdes.BYTES", bool: "serdes.BOOL",
    dict: "serdes.JSON", list: "serdes.JSON",
}  # fmt: skip


def check_serde(given: object, what: str) -> None:
    """Raise TopologyError unless ``given`` is a serde."""
    if isinstance(given, Serde):
        return
    if isinstance(given, type) and issubclass(given, Serde):
        raise TopologyError(f"{what} is the class {given.__name__}; pass an object, {given.__name__}()")
    if isinstance(given, type):
        fitting = _SERDES.get(given, f"serdes.json({given.__name__})")
        raise TopologyError(f"{what} is the type {given.__name__}, not a serde; use {fitting}")
    raise TopologyError(f"{what} is {kind_of(given)}, not a serde; use one of streams_py.serdes, such as serdes.STRING")


def check_serdes_of(what: str, *, key: object, value: object) -> None:
    """Raise TopologyError, with the user's line, unless both are serdes or None."""
    for part, given in (("key", key), ("value", value)):
        if given is not None:
            try:
                check_serde(given, f"{what}: {part}")
            except TopologyError as error:
                locate(error, user_line())
                raise


def kind_of(given: object) -> str:
    """Return the description of an argument for messages."""
    if given is None:
        return "None"
    return f"the type {given.__name__}" if isinstance(given, type) else f"of type {type(given).__name__}"
