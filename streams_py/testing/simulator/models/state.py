"""Local state of one process: how far each task's stores are, on disk and in the hands of a thread.

A copy grows while a thread works on it, at the restore rate, up to the end of its changelogs; its position is computed
when somebody looks. A thread that gets a task whose directory another thread of the process still holds waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streams_protocol.types import TaskId
from streams_py.member.group_model.copies import restored
from streams_py.testing.simulator.models.cluster import SimulatedCluster
from streams_py.testing.simulator.models.restore import RESTORE_RETRY_MS, SimulatedRestore, ToldEnd
from streams_py.testing.simulator.models.timeline import Timeline

__all__ = ["LocalState"]


@dataclass(slots=True)
class _Copy:
    offset: int = 0
    """Sum of the positions in the task's changelogs, in records, at ``at_ms``."""
    at_ms: int = 0
    holder: object | None = None
    """The thread that has it open, or its directory locked."""
    working: bool = False
    """Open and catching up, or running; not merely locked."""
    running: bool = False
    """Active and restored: it writes the changelogs itself, so it is always at their end."""
    checkpoint: int | None = None
    """What is on disk; None when nothing is."""
    known_end: ToldEnd | None = None
    """Where its changelogs are believed to end; None while nobody has answered, and nothing is restored."""
    lacking: int = 0
    """Records that its position claims and its stores have not."""
    stored_lacking: int = 0
    """The same, of what is on disk."""
    waiting: list[object] = field(default_factory=list)
    """Threads that were given the task while another one has it."""


@dataclass(slots=True)
class LocalState:
    """State directory of one process. Threads are any hashable objects."""

    timeline: Timeline
    cluster: SimulatedCluster
    restore_records_per_s: int
    restore: SimulatedRestore
    on_restored: Callable[[TaskId, object, int], None]
    """Told when an active task of a thread is seen to be restored, and how many records its stores lack."""
    _copies: dict[TaskId, _Copy] = field(default_factory=dict)

    def open(self, task: TaskId, thread: object) -> None:
        """A thread is given the task; it has it at once, or as soon as the present holder lets go of it."""
        copy = self._copies.setdefault(task, _Copy())
        if copy.holder not in (None, thread):
            if thread not in copy.waiting:
                copy.waiting.append(thread)
        elif not copy.working:
            copy.holder, copy.working, copy.running = thread, True, False
            copy.offset, copy.at_ms = copy.checkpoint or 0, self.timeline.now_ms
            copy.lacking = 0 if copy.checkpoint is None else copy.stored_lacking
            copy.known_end = None
            self._ask(task, copy)

    def _ask(self, task: TaskId, copy: _Copy) -> None:
        """Ask where the changelogs end, until there is an answer to be believed; restoring begins then."""
        if not copy.working or copy.known_end is not None:
            return
        copy.known_end = self.restore.end_of(task, copy.offset)
        copy.at_ms = self.timeline.now_ms
        if copy.known_end is None:
            self.timeline.after(RESTORE_RETRY_MS, self._ask, task, copy)

    def _let_go(self, task: TaskId, copy: _Copy) -> None:
        copy.holder, copy.working, copy.running = None, False, False
        if copy.waiting:
            self.open(task, copy.waiting.pop(0))

    def close(self, task: TaskId, thread: object, *, clean: bool) -> None:
        """A thread lets go of a task; ``clean`` leaves a checkpoint, otherwise an older one stays."""
        copy = self._copies.get(task)
        if copy is None:
            return
        if thread in copy.waiting:
            copy.waiting.remove(thread)
        if copy.holder is not thread:
            return
        if copy.working and clean:
            copy.checkpoint, copy.stored_lacking = self._position(task, copy), copy.lacking
        self._let_go(task, copy)

    def tear_checkpoint(self, task: TaskId, thread: object) -> None:
        """The thread is killed while it writes the task's checkpoint."""
        copy = self._copies.get(task)
        if copy is not None and copy.holder is thread and copy.working:
            copy.checkpoint, lacking = self.restore.torn(self._position(task, copy), copy.checkpoint)
            copy.stored_lacking = copy.lacking + lacking

    def lose_checkpoint(self, task: TaskId) -> None:
        """An unclean end with exactly-once: the state is worth nothing any more."""
        copy = self._copies.get(task)
        if copy is not None:
            copy.checkpoint = None

    def wipe(self) -> None:
        """The disk is gone."""
        self._copies.clear()

    def lock_free_directories(self, thread: object) -> list[TaskId]:
        """Lock every task directory that nobody holds; returns all that this thread has locked without working."""
        mine = []
        for task, copy in self._copies.items():
            if copy.holder is None and copy.checkpoint is not None:
                copy.holder = thread
            if copy.holder is thread and not copy.working:
                mine.append(task)
        return sorted(mine)

    def unlock(self, thread: object) -> None:
        """Let go of directories that are only locked."""
        for task, copy in self._copies.items():
            if copy.holder is thread and not copy.working:
                self._let_go(task, copy)

    def release_everything(self, thread: object, *, clean: bool) -> None:
        """The thread has ended."""
        for task in self._copies:
            self.close(task, thread, clean=clean)

    def held(self, task: TaskId, thread: object) -> bool:
        """Whether this thread works on the task."""
        copy = self._copies.get(task)
        return copy is not None and copy.holder is thread and copy.working

    def position(self, task: TaskId) -> int | None:
        """How far the task's state is, in records; None when there is none."""
        copy = self._copies.get(task)
        if copy is None:
            return None
        return self._position(task, copy) if copy.working else copy.checkpoint

    def runs(self, task: TaskId, thread: object) -> bool:
        """Whether an active task of this thread is restored; once it is, it stays so."""
        copy = self._copies.get(task)
        if copy is None or copy.holder is not thread or not copy.working:
            return False
        if not copy.running and copy.known_end is not None:
            short = copy.known_end.lacking  # of an end that is not the true one
            position = self._position(task, copy)
            if position >= (copy.known_end.offset if short else self.cluster.end_of_task(task)):
                copy.running = True
                copy.lacking += short
                self.on_restored(task, thread, copy.lacking)
        return copy.running

    def stop_running(self, task: TaskId, thread: object) -> None:
        """An active task becomes a standby, in place."""
        copy = self._copies.get(task)
        if copy is not None and copy.holder is thread and copy.running:
            copy.offset, copy.at_ms, copy.running = self._position(task, copy), self.timeline.now_ms, False

    def _position(self, task: TaskId, copy: _Copy) -> int:
        if copy.running:
            return self.cluster.end_of_task(task)
        if copy.known_end is None:
            return copy.offset
        gained = (self.timeline.now_ms - copy.at_ms) * self.restore_records_per_s // 1000
        return restored(copy.offset, self.cluster.end_of_task(task), gained)
