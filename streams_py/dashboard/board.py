"""The content of the page in parts.

Each part has a version, so slow readers skip versions, but get the last one.
"""

from __future__ import annotations

import asyncio
import json
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final

from streams_py.errors import StreamsError
from streams_py.system.printable import printable_lines, printable_values

_LISTENERS_MAX: Final = 100


class Listener:
    """One open page. Created by :meth:`Board.listen`, on the event loop that serves the page."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._seen: dict[str, int] = {}

    def wake(self) -> None:
        """Wake the listener.

        Can be called from any thread. Does nothing if the event loop has ended.
        """
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            return

    async def changes(self, timeout_s: float) -> list[tuple[str, str]]:
        """Return (part, JSON text) of the parts that have changed since the last call.

        Returns an empty list after ``timeout_s`` without a change.
        """
        found = self._board.since(self._seen)
        if not found and not self._board.is_closed:
            try:
                await asyncio.wait_for(self._news.wait(), timeout_s)
            except TimeoutError:
                return []
            found = self._board.since(self._seen)
        self._news.clear()
        self._seen |= {part: number for part, number, _ in found}
        return [(part, text) for part, _, text in found]


class Board:
    """The newest content of each part, and the listeners that wait for changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: dict[str, tuple[int, str]] = {}
        # Weak references, because a page that is closed before its response starts never calls leave().
        self._listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self.is_closed = False

    def publish(self, part: str, value: Mapping[str, Any]) -> None:
        """Publish a part, with foreign texts made printable.

        Unchanged content does not wake listeners.
        """
        text = json.dumps(printable_values(value, printable_lines), separators=(",", ":"))
        with self._lock:
            number, shown = self._parts.get(part, (0, ""))
            if text == shown:
                return
            self._parts[part] = (number + 1, text)
        self._wake()

    def since(self, seen: Mapping[str, int]) -> list[tuple[str, int, str]]:
        """Return (part, version, JSON text) of all parts that are newer than ``seen``."""
        with self._lock:
            return [(part, n, text) for part, (n, text) in self._parts.items() if n > seen.get(part, 0)]

    def listen(self) -> Listener:
        """Return a new listener. Raises StreamsError if there are too many."""
        with self._lock:
            if len(self._listeners) >= _LISTENERS_MAX:
                raise StreamsError(f"{_LISTENERS_MAX} pages are open; close one")
            listener = Listener(self)
            self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Remove the listener of a closed page."""
        with self._lock:
            self._listeners.discard(listener)

    def close(self) -> None:
        """Close the board and wake all listeners: no changes follow."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        for listener in self._waiting():
            listener.wake()

    def _waiting(self) -> Iterator[Listener]:
        with self._lock:
            return iter(tuple(self._listeners))
