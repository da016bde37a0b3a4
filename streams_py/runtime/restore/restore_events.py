"""Writes restorations as assignment events, in addition to calling the application's restore listener."""

from __future__ import annotations

from streams_protocol.types import TopicPartition
from streams_py.events.observers import RestoreObserver
from streams_py.runtime.restore.listener import RestoreListener


class RestoreEventsListener(RestoreListener):
    """Writes an event, then calls the application's listener."""

    def __init__(self, events: RestoreObserver, listener: RestoreListener) -> None:
        self._events = events
        self._listener = listener

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """As in :class:`RestoreListener`."""
        self._events.started(changelog, store, start, end)
        self._listener.on_restore_start(changelog, store, start, end)

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """As in :class:`RestoreListener`."""
        self._events.advanced(changelog, count)
        self._listener.on_batch_restored(changelog, store, batch_end, count)

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        """As in :class:`RestoreListener`."""
        self._events.ended(changelog)
        self._listener.on_restore_end(changelog, store, total)

    def on_restore_suspended(self, changelog: TopicPartition, store: str, total: int) -> None:
        """As in :class:`RestoreListener`."""
        self._events.suspended(changelog)
        self._listener.on_restore_suspended(changelog, store, total)
