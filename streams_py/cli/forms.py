"""Keys and values as text, for ``streams-py produce`` and ``consume``.

The name of a serde selects the form.

All serdes of configuration files (:func:`streams_py.serdes.resolve_serde`) are available. The topics that an
application creates need a prefix before the name of the serde:

========================  ===============================================  ==================
name                      topics                                           shown as
========================  ===============================================  ==================
``window-string``         windowed tables and streams: key, start          ``[a@0/10000]``
``session-string``        sessions, their changelogs too: key, end, start  ``[a@0/10000]``
``stored-window-string``  changelogs of window stores: key, start, number  ``[a@0/10000]#1``
``change-int64``          repartition topics of tables (values)            ``2 <- 1``
========================  ===============================================  ==================

The bytes of a time window do not contain its end (:mod:`streams_py.serdes.windowed`): the end is shown if the window
size is given. The values of all other changelogs, also of timestamped and versioned stores, have the plain serde.
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

SERDES_ALLOWED: Final = f"{SERDE_NAMES}, or package.module:NAME"

_STORED_WINDOW: Final = struct.Struct(">qi")
_WINDOWED_TEXT: Final = re.compile(r"\[?(?P<key>.*)@(?P<start>-?\d+)(?:/(?P<end>-?\d+))?\]?", re.DOTALL)


@dataclass(frozen=True)
class Form:
    """A serde, and the functions for its text and its JSON value.

    ``read`` parses the text, ``show`` returns it, and ``plain`` returns the JSON value.
    ``read`` raises ValueError if the text is not valid for the serde.
    """

    serde: Serde[Any]
    read: Callable[[str], Any]
    show: Callable[[Any], str]
    plain: Callable[[Any], Any]


def form_named(name: str, *, setting: str, is_key: bool, window_ms: int | None = None) -> Form:
    """Return the form called ``name``.

    Raises a ConfigError that names ``setting`` if ``name`` is unknown.
    """
    for prefix, make in _MADE_OF_OTHERS.items():
        if name.startswith(prefix):
            inner = form_named(name.removeprefix(prefix), setting=setting, is_key=is_key)
            if prefix == "change-" and is_key:
                raise ConfigError(f"{setting}: {name!r} is not a form of keys; only values have it", key=setting)
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
    """Keys in a window store's changelog.

    The number distinguishes records with the same key and time, in stores that keep duplicates (stream-stream joins).
    In other stores it is 0.
    """

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
                raise SerializationError(f"{len(data)} bytes are too few for a key of a window store")
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
        raise ValueError("only the application can write changes of a table")

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
