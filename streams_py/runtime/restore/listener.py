"""Who hears about restorations, and how: without any lock of this library held, in order, on the updater's thread.

A listener may ask the client anything (its metrics, say) and take its time. So the state updater only notes what there
is to tell while it holds its lock, and tells it when the lock is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from streams_protocol.types import TopicPartition

__all__ = ["RestoreListener", "RestoreNews"]


class RestoreListener:
    """Told about the restoration of active tasks; override what you need (Kafka's ``StateRestoreListener``).

    Called on a thread of the client that holds no lock; an error ends the stream thread whose tasks are restored.
    """

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """Replaying begins; offsets from ``start`` up to, not including, ``end``."""

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """``count`` more records are in the store; ``batch_end`` is the offset of the last one."""

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        """Everything is restored."""

    def on_restore_suspended(self, changelog: TopicPartition, store: str, total: int) -> None:
        """The task was taken away before the end."""


class RestoreNews:
    """What a listener is still to hear. Noting is thread-safe; :meth:`tell` is for one thread."""

    def __init__(self, listener: RestoreListener) -> None:
        self._listener = listener
        self._pending: deque[Callable[[], None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pending)

    def start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """Note :meth:`RestoreListener.on_restore_start`."""
        self._pending.append(lambda: self._listener.on_restore_start(changelog, store, start, end))

    def batch(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """Note :meth:`RestoreListener.on_batch_restored`."""
        self._pending.append(lambda: self._listener.on_batch_restored(changelog, store, batch_end, count))

    def end(self, changelog: TopicPartition, store: str, total: int) -> None:
        """Note :meth:`RestoreListener.on_restore_end`."""
        self._pending.append(lambda: self._listener.on_restore_end(changelog, store, total))

    def suspended(self, changelog: TopicPartition, store: str, total: int) -> None:
        """Note :meth:`RestoreListener.on_restore_suspended`."""
        self._pending.append(lambda: self._listener.on_restore_suspended(changelog, store, total))

    def tell(self) -> None:
        """Call the listener for everything noted so far; raises what it raises."""
        while self._pending:
            self._pending.popleft()()
