"""Checks of the types of arguments, made by the call that passes them: serdes, and plain types by annotation.

Plain types are text, numbers, tables, windows and options. Functions and topics have separate checks with better
messages. Annotations are read as text and classes are compared by name, because the DSL's classes import each other
only for type checking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Final

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.caller import locate, user_line
from streams_py.topology.declare.names import check_name

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


_PLAIN: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "str": (lambda given: isinstance(given, str), "text"),
    "bool": (lambda given: isinstance(given, bool), "True or False"),
    "int": (lambda given: isinstance(given, int) and not isinstance(given, bool), "a whole number"),
    "Duration": (
        lambda given: isinstance(given, int | timedelta) and not isinstance(given, bool),
        "milliseconds (int) or a timedelta",
    ),
    "Iterable": (lambda given: isinstance(given, Iterable), "a list of it"),
    "Mapping": (lambda given: isinstance(given, Mapping), "a mapping, such as a dict"),
    "TextIO": (lambda given: callable(getattr(given, "write", None)), "an open text file"),
}

_CLASSES: Final[Mapping[str, str]] = {
    "KStream": "a KStream", "KTable": "a KTable", "GlobalKTable": "a GlobalKTable",
    "KGroupedStream": "a KGroupedStream",
    "TimeWindows": "TimeWindows.of(...)", "SlidingWindows": "SlidingWindows.of(...)",
    "SessionWindows": "SessionWindows.of(...)", "JoinWindows": "JoinWindows.of(...)",
    "EmitStrategy": "an EmitStrategy, such as EmitStrategy.ON_WINDOW_CLOSE",
    "ResetPolicy": "a ResetPolicy, such as ResetPolicy.EARLIEST",
    "Materialized": "Materialized(...)", "Suppressed": "Suppressed.until_window_closes() or until_time_limit(...)",
    "StoreBuilder": "a declaration such as key_value_store('name')",
}  # fmt: skip


def admits_none(annotation: str) -> bool:
    """Whether an annotation allows None."""
    return not {"None", "Any", "object"}.isdisjoint(_alternatives(annotation))


def type_check(annotation: str) -> Callable[[object, str], None] | None:
    """Return a check for an argument, or None if the annotation includes other types.

    The check takes the argument and its name for messages.
    """
    kinds = [alternative for alternative in _alternatives(annotation) if alternative != "None"]
    if not kinds or not all(kind in _PLAIN or kind in _CLASSES for kind in kinds):
        return None
    wanted = " or ".join(_CLASSES[kind] if kind in _CLASSES else _PLAIN[kind][1] for kind in kinds)

    def check(given: object, what: str) -> None:
        if not any(_is(given, kind) for kind in kinds):
            raise TopologyError(f"{what} is {kind_of(given)}; it takes {wanted}")
        if isinstance(given, Mapping) and annotation.startswith("Mapping[str, str]"):
            _check_texts(given, what)

    return check


def check_legal_name(given: object, what: str) -> None:
    """Raise TopologyError unless the value can be part of a topic name."""
    if not isinstance(given, str):
        raise TopologyError(f"{what} is {kind_of(given)}; it takes a name (str)")
    try:
        check_name(given)
    except TopologyError as error:
        raise TopologyError(f"{what}: {error}") from None


def _check_texts(given: Mapping[object, object], what: str) -> None:
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TopologyError(f"{what} has {name!r}: {value!r}; names and values are text, such as {str(value)!r}")


def _is(given: object, kind: str) -> bool:
    if kind in _PLAIN:
        return _PLAIN[kind][0](given)
    return any(base.__name__ == kind for base in type(given).__mro__)


def _alternatives(annotation: str) -> list[str]:
    """Return the alternatives of an annotation, without their parameters.

    ``"KTable[K, V | None] | None"`` gives KTable and None.
    """
    depth, parts = 0, [""]
    for character in annotation:
        depth += (character == "[") - (character == "]")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.partition("[")[0].strip() for part in parts]
