"""Who hears about restorations, and how: without any lock of this library held, in order, on the updater's thread.

A listener may ask the client anything (its metrics, say) and take its time. So the state updater only notes what there
is to tell while it holds its lock, and tells it when the lock is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from streams_protocol.types import TaskId, TopicPartition
from streams_py.runtime.restore.changelog import ChangelogInWork

__all__ = ["RestoreListener", "RestoreNews", "StandbyUpdateListener", "SuspendReason"]


class RestoreListener:
    """Told about the restoration of active tasks, and of global stores before anything runs; override what you need
    (Kafka's ``StateRestoreListener``).

    Called on a thread of the client that holds no lock; an error ends the stream thread whose tasks are restored, or
    the client's start.
    """

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """Replaying begins; offsets from ``start`` up to, not including, ``end``. ``changelog`` is a partition of the
        topic itself for a global store, or a table that has no changelog of its own."""

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """``count`` more records are in the store; ``batch_end`` is the offset of the last one."""

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        """Everything is restored."""

    def on_restore_suspended(self, changelog: TopicPartition, store: str, total: int) -> None:
        """The task was taken away before the end."""


class SuspendReason(Enum):
    """Why a copy is not kept here any more."""

    PROMOTED = "promoted"
    """It goes on as the active task, on this thread."""
    MIGRATED = "migrated"
    """It is somebody else's, or nobody's, or the client closes."""


class StandbyUpdateListener:
    """Told about the copies that standbys and warm-ups keep; override what you need (KIP-988's
    ``StandbyUpdateListener``).

    Called on a thread of the client that holds no lock; an error ends the stream thread whose tasks they are. Ends of
    changelogs are those that the consumer has heard of.
    """

    def on_update_start(self, changelog: TopicPartition, store: str, start: int) -> None:
        """Following begins at the offset ``start``."""

    def on_batch_loaded(
        self, changelog: TopicPartition, store: str, task: TaskId, batch_end: int, count: int, end: int
    ) -> None:
        """``count`` more records are in the copy; ``batch_end`` is the offset of the last one, ``end`` that behind the
        changelog's last one."""

    def on_update_suspended(
        self, changelog: TopicPartition, store: str, position: int, end: int, reason: SuspendReason
    ) -> None:
        """The copy ends with the offset before ``position``."""


_REASONS = (SuspendReason.MIGRATED, SuspendReason.PROMOTED)


class RestoreNews:
    """What listeners are still to hear: one of them of active tasks, the other one of copies. Noting is thread-safe;
    :meth:`tell` is for one thread."""

    def __init__(self, listener: RestoreListener | None, standby_listener: StandbyUpdateListener | None) -> None:
        self._listener = listener or RestoreListener()
        self._standby_listener = standby_listener or StandbyUpdateListener()
        self._pending: deque[Callable[[], None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pending)

    def started(self, changelog: ChangelogInWork) -> None:
        """The position of a changelog is known now, and the end of an active's one."""
        listener, standby_listener = self._listener, self._standby_listener
        task, partition, end = changelog.task, changelog.partition, changelog.end
        store, start = task.store_of(partition), max(0, changelog.position or 0)
        if not task.is_active:
            self._pending.append(lambda: standby_listener.on_update_start(partition, store, start))
        elif end is not None:
            self._pending.append(lambda: listener.on_restore_start(partition, store, start, end))

    def replayed(self, changelog: ChangelogInWork, batch_end: int, count: int, lag: int | None) -> None:
        """Records up to the offset ``batch_end`` are in the store; the consumer knows of ``lag`` more."""
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
        """An active's changelog is restored."""
        listener, partition, total = self._listener, changelog.partition, changelog.total
        store = changelog.task.store_of(partition)
        self._pending.append(lambda: listener.on_restore_end(partition, store, total))

    def removed(self, changelog: ChangelogInWork, *, promoted: bool) -> None:
        """The task is taken away, or a copy becomes an active. Nothing is told of what did not begin."""
        listener, standby_listener = self._listener, self._standby_listener
        task, partition, total = changelog.task, changelog.partition, changelog.total
        store = task.store_of(partition)
        if not task.is_active and changelog.position is not None:
            position = max(0, changelog.position)
            end, reason = max(changelog.known_end, position), _REASONS[promoted]
            self._pending.append(lambda: standby_listener.on_update_suspended(partition, store, position, end, reason))
        elif task.is_active and total and not changelog.is_done:
            self._pending.append(lambda: listener.on_restore_suspended(partition, store, total))

    def tell(self) -> None:
        """Call the listeners for everything noted so far; raises what they raise."""
        while self._pending:
            self._pending.popleft()()
