"""Listeners of restorations. They are called without any lock of this library, in order, on the updater's thread.

A listener may call any method of the client (for its metrics, say) and take its time. So the state updater only queues
calls while it holds its lock, and makes them when the lock is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from streams_protocol.types import TaskId, TopicPartition
from streams_py.events.observers import RestoreObserver
from streams_py.runtime.restore.changelog import ChangelogInWork

__all__ = ["ListenerCalls", "RestoreListener", "StandbyUpdateListener", "SuspendReason"]


class RestoreListener:
    """Called during the restoration of active tasks, and of global stores at the start; override the methods you need
    (Kafka's ``StateRestoreListener``).

    Called on a thread of the client that holds no lock. An error stops the stream thread whose tasks are restored, or
    the client's start.
    """

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """Replaying begins, from offset ``start`` up to, not including, ``end``.

        For a global store, or a table without its own changelog, ``changelog`` is a partition of the topic itself.
        """

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """``count`` more records are in the store. ``batch_end`` is the offset of the last one."""

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        """The changelog is completely restored."""

    def on_restore_suspended(self, changelog: TopicPartition, store: str, total: int) -> None:
        """The task was revoked before the restoration was complete."""


class SuspendReason(Enum):
    """Why a standby copy is no longer kept here."""

    PROMOTED = "promoted"
    """It becomes the active task on this thread."""
    MIGRATED = "migrated"
    """Another member has it, or no member, or the client closes."""


class StandbyUpdateListener:
    """Called for the copies of standby and warm-up tasks; override the methods you need (KIP-988's
    ``StandbyUpdateListener``).

    Called on a thread of the client that holds no lock. An error stops the stream thread of the tasks. End offsets are
    the ones that the consumer has received so far.
    """

    def on_update_start(self, changelog: TopicPartition, store: str, start: int) -> None:
        """Updates begin at the offset ``start``."""

    def on_batch_loaded(
        self, changelog: TopicPartition, store: str, task: TaskId, batch_end: int, count: int, end: int
    ) -> None:
        """``count`` more records are in the copy.

        ``batch_end`` is the offset of the last one, ``end`` the changelog's end offset.
        """

    def on_update_suspended(
        self, changelog: TopicPartition, store: str, position: int, end: int, reason: SuspendReason
    ) -> None:
        """Updates stop. The last record of the copy is before offset ``position``."""


_REASONS = (SuspendReason.MIGRATED, SuspendReason.PROMOTED)


class ListenerCalls:
    """Queued calls of the two listeners: for active tasks and for standby tasks.

    Queueing is thread-safe; :meth:`deliver` is for one thread.
    """

    def __init__(self, listener: RestoreListener | None, standby_listener: StandbyUpdateListener | None) -> None:
        self._listener = listener or RestoreListener()
        self._standby_listener = standby_listener or StandbyUpdateListener()
        self._pending: deque[Callable[[], None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pending)

    def started(self, changelog: ChangelogInWork) -> None:
        """Queue the start: a changelog's position is known now, and for an active task its end."""
        listener, standby_listener = self._listener, self._standby_listener
        task, partition, end = changelog.task, changelog.partition, changelog.end
        store, start = task.store_of(partition), max(0, changelog.position or 0)
        if not task.is_active:
            self._pending.append(lambda: standby_listener.on_update_start(partition, store, start))
        elif end is not None:
            self._pending.append(lambda: listener.on_restore_start(partition, store, start, end))

    def replayed(self, changelog: ChangelogInWork, batch_end: int, count: int, lag: int | None) -> None:
        """Queue a batch up to offset ``batch_end``. The consumer knows of ``lag`` more records."""
        listener, standby_listener = self._listener, self._standby_listener
        task, partition = changelog.task, changelog.partition
        store = task.store_of(partition)
        if task.is_active:
            self._pending.append(lambda: listener.on_batch_restored(partition, store, batch_end, count))
            return
        id, end = task.id, max(changelog.known_end, (changelog.position or 0) + (lag or 0))
        changelog.known_end = end
        self._pending.append(lambda: standby_listener.on_batch_loaded(partition, store, id, batch_end, count, end))

    def ended(self, changelog: ChangelogInWork) -> None:
        """Queue the end of an active task's changelog."""
        listener, partition, total = self._listener, changelog.partition, changelog.total
        store = changelog.task.store_of(partition)
        self._pending.append(lambda: listener.on_restore_end(partition, store, total))

    def removed(self, changelog: ChangelogInWork, *, promoted: bool) -> None:
        """Queue the removal of a task, or the promotion of a standby. Nothing is queued if it had not started."""
        listener, standby_listener = self._listener, self._standby_listener
        task, partition, total = changelog.task, changelog.partition, changelog.total
        store = task.store_of(partition)
        if not task.is_active and changelog.position is not None:
            position = max(0, changelog.position)
            end, reason = max(changelog.known_end, position), _REASONS[promoted]
            self._pending.append(lambda: standby_listener.on_update_suspended(partition, store, position, end, reason))
        elif task.is_active and total and not changelog.is_done:
            self._pending.append(lambda: listener.on_restore_suspended(partition, store, total))

    def deliver(self) -> None:
        """Make the queued calls. Raises the errors of the listeners."""
        while self._pending:
            self._pending.popleft()()


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
