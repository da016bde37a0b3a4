"""How ``streams-py produce`` and ``consume`` write a key or a value in a line of text, by the name of its serde.

Beside the serdes of configuration files (:func:`streams_py.serdes.resolve_serde`) there are those of the topics that an
application makes, with the name of the serde inside behind them:

========================  ===============================================  ==================
name                      topics                                           shown as
========================  ===============================================  ==================
``window-string``         windowed tables and streams: key, start          ``[a@0/10000]``
``session-string``        sessions, their changelogs too: key, end, start  ``[a@0/10000]``
``stored-window-string``  changelogs of window stores: key, start, number  ``[a@0/10000]#1``
``change-int64``          repartition topics of tables (values)            ``2 <- 1``
========================  ===============================================  ==================

Where a time window ends is not in its bytes (:mod:`streams_py.serdes.windowed`): it is shown when the size is given.
Values of all other changelogs, timestamped and versioned stores included, are those of the plain serde.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from streams_py.errors import ConfigError, SerializationError
from streams_py.serdes import Serde, Windowed, resolve_serde, session_windowed, time_windowed
from streams_py.serdes.named import SERDE_NAMES
from streams_py.system.printable import json_printable, printable
from streams_py.topology.formats.change_serde import ChangeSerde

__all__ = ["SERDES_ALLOWED", "Form", "form_named"]

SERDES_ALLOWED: Final = f"{SERDE_NAMES}, or package.module:NAME"

_STORED_WINDOW: Final = struct.Struct(">qi")
_WINDOWED_TEXT: Final = re.compile(r"\[?(?P<key>.*)@(?P<start>-?\d+)(?:/(?P<end>-?\d+))?\]?", re.DOTALL)


@dataclass(frozen=True)
class Form:
    """The bytes of a key or a value, its text in a line, and the JSON value that stands for it.

    ``read`` raises ValueError for text that is none of it.
    """

    serde: Serde[Any]
    read: Callable[[str], Any]
    show: Callable[[Any], str]
    plain: Callable[[Any], Any]


def form_named(name: str, *, setting: str, is_key: bool, window_ms: int | None = None) -> Form:
    """What ``name`` means; ConfigError naming ``setting`` when it means nothing."""
    for prefix, make in _MADE_OF_OTHERS.items():
        if name.startswith(prefix):
            inner = form_named(name.removeprefix(prefix), setting=setting, is_key=is_key)
            if prefix == "change-" and is_key:
                raise ConfigError(f"{setting}: {name!r} is a form of values, and keys have none like it", key=setting)
            return make(inner, window_ms)
    serde = resolve_serde(name, setting=setting)
    return Form(serde, _READERS.get(serde.name, json.loads), _shown, _plain)


# -- values --------------------------------------------------------------------------------------------------


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "string": str,
    "bytes": lambda text: text.encode(),
    "int16": int,
    "int32": int,
    "int64": int,
    "float32": float,
    "float64": float,
    "uuid": uuid.UUID,
    "bool": _boolean,
    "void": lambda text: None,
}


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return json_printable(json.dumps(value, ensure_ascii=False))
    return printable(str(value))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value


# -- keys within a window ------------------------------------------------------------------------------------


def _windowed(serde: Serde[Any], inner: Form, *, end_known: bool) -> Form:
    def read(text: str) -> Windowed[Any]:
        found = _WINDOWED_TEXT.fullmatch(text)
        if found is None or (end_known and found["end"] is None):
            raise ValueError("expected KEY@START/END" if end_known else "expected KEY@START")
        start = int(found["start"])
        return Windowed(inner.read(found["key"]), start, start if found["end"] is None else int(found["end"]))

    def show(windowed: Windowed[Any]) -> str:
        end = f"/{windowed.end}" if end_known else ""
        return f"[{inner.show(windowed.key)}@{windowed.start}{end}]"

    def plain(windowed: Windowed[Any]) -> Any:
        shown = {"key": inner.plain(windowed.key), "start": windowed.start}
        return shown | {"end": windowed.end} if end_known else shown

    return Form(serde, read, show, plain)


def _time_window(inner: Form, window_ms: int | None) -> Form:
    return _windowed(time_windowed(inner.serde, window_ms or 0), inner, end_known=window_ms is not None)


def _session(inner: Form, _: int | None) -> Form:
    return _windowed(session_windowed(inner.serde), inner, end_known=True)


class _StoredWindowSerde(Serde[tuple[Windowed[Any], int]]):
    """Keys of a window store's changelog. The number tells records of one key and time apart, in stores that keep them
    all (joins of streams); elsewhere it is 0."""

    def __init__(self, inner: Serde[Any], window_ms: int) -> None:
        self._inner = inner
        self._window_ms = window_ms

    @property
    def name(self) -> str:
        return f"stored-window {self._inner.name}"

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[tuple[Windowed[Any], int]], bytes]:
        encode = self._inner.serializer(topic, is_key=is_key)
        return lambda stored: encode(stored[0].key) + _STORED_WINDOW.pack(stored[0].start, stored[1])

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], tuple[Windowed[Any], int]]:
        decode = self._inner.deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> tuple[Windowed[Any], int]:
            if len(data) < _STORED_WINDOW.size:
                raise SerializationError(f"{len(data)} bytes are no key of a window store")
            start, number = _STORED_WINDOW.unpack_from(data, len(data) - _STORED_WINDOW.size)
            return Windowed(decode(data[: -_STORED_WINDOW.size]), start, start + self._window_ms), number

        return deserialize


def _stored_window(inner: Form, window_ms: int | None) -> Form:
    form = _time_window(inner, window_ms)

    def show(stored: tuple[Windowed[Any], int]) -> str:
        windowed, number = stored
        return form.show(windowed) + (f"#{number}" if number else "")

    def plain(stored: tuple[Windowed[Any], int]) -> Any:
        windowed, number = stored
        return form.plain(windowed) | {"number": number}

    serde = _StoredWindowSerde(inner.serde, window_ms or 0)
    return Form(serde, lambda text: (form.read(text), 0), show, plain)


# -- changes of a table --------------------------------------------------------------------------------------


def _change(inner: Form, _: int | None) -> Form:
    def one(value: Any, how: Callable[[Any], Any], absent: Any) -> Any:
        return absent if value is None else how(value)

    def read(text: str) -> Any:
        raise ValueError("changes of a table are written by the application only")

    return Form(
        ChangeSerde(inner.serde),
        read,
        lambda change: f"{one(change.new, inner.show, 'nothing')} <- {one(change.old, inner.show, 'nothing')}",
        lambda change: {"new": one(change.new, inner.plain, None), "old": one(change.old, inner.plain, None)},
    )


_MADE_OF_OTHERS: Final[Mapping[str, Callable[[Form, int | None], Form]]] = {
    "window-": _time_window,
    "session-": _session,
    "stored-window-": _stored_window,
    "change-": _change,
}
