"""A model of the local state of one process: the positions of each task's stores, on disk and in a running thread.

While a thread works on a copy, its position grows at the restore rate up to the end of the changelogs; it is computed
on request. A thread waits for a task if another thread of the process still holds the task's directory.

An active task runs when its stores have reached the end offsets that the state updater received. A wrong end offset
would leave a store incomplete. So two faults of the requests for end offsets are injected: brokers that do not answer,
and a client library that returns invented offsets when a broker fails during the request (offset -1001, reported as
success). The real function :func:`streams_py.adapters.confluent.answers.offset_of` reads the answers. An end offset
below the position is rejected.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streams_protocol.types import TaskId
from streams_py.adapters.confluent.answers import offset_of
from streams_py.member.group_model.copies import restored
from streams_py.ports import AdminError
from streams_py.testing.simulator.faults.faults import Fault, OngoingFaults
from streams_py.testing.simulator.models.cluster import MADE_UP_OFFSETS, LibraryAnswer, SimulatedCluster
from streams_py.testing.simulator.models.timeline import Timeline
from streams_py.testing.simulator.mutants import BELIEVE_EVERY_ANSWER, CHECKPOINT_FIRST

RESTORE_RETRY_MS: Final = 1_000


class ToldEnd(NamedTuple):
    """End offset of a task's changelogs as reported; ``lacking`` is the number of records after it."""

    offset: int
    lacking: int


class SimulatedRestore:
    """Answers requests for end offsets of one process, and determines its checkpoints when it is killed."""

    def __init__(
        self, cluster: SimulatedCluster, ongoing_faults: OngoingFaults, rng: random.Random, mutant: str | None
    ) -> None:
        self._cluster = cluster
        self._ongoing_faults = ongoing_faults
        self._rng = rng
        self._mutant = mutant

    def end_of(self, task: TaskId, position: int) -> ToldEnd | None:
        """Return the end of the task's changelogs; None if it is unknown and the request must be repeated."""
        truth = self._cluster.end_of_task(task)
        if self._ongoing_faults.occurs(Fault.RESTORE_UNANSWERED, self._rng):
            return None
        end = truth
        if self._ongoing_faults.occurs(Fault.RESTORE_MADE_UP, self._rng):
            end = self._rng.choice((*MADE_UP_OFFSETS, position // 2 if position else -1))
        if self._mutant == BELIEVE_EVERY_ANSWER:
            return ToldEnd(end, max(0, truth - max(end, position)))
        answer = offset_of(LibraryAnswer(end))
        if isinstance(answer, AdminError) or answer < position:
            return None
        return ToldEnd(answer, truth - answer)

    def torn(self, position: int, before: int | None) -> tuple[int | None, int]:
        """Return (checkpoint, number of its records that the store lacks) after a kill during a checkpoint.

        The store is flushed before the checkpoint is written, so a correct checkpoint never claims too much.
        """
        if self._mutant == CHECKPOINT_FIRST:
            return position, position - (before or 0)
        return (position if self._rng.random() < 0.5 else before), 0


@dataclass(slots=True)
class _Copy:
    offset: int = 0
    """Sum of the positions in the task's changelogs, in records, at ``at_ms``."""
    at_ms: int = 0
    holder: object | None = None
    """The thread that has it open, or has locked its directory."""
    working: bool = False
    """Whether it is open (catching up or running), and not only locked."""
    running: bool = False
    """Whether it is active and restored. It then writes the changelogs itself, so it is always at their end."""
    checkpoint: int | None = None
    """Position of the checkpoint on disk; None without a checkpoint."""
    known_end: ToldEnd | None = None
    """Reported end of its changelogs; None until there is a valid answer. Nothing is restored before."""
    lacking: int = 0
    """Number of records before its position that its stores lack."""
    stored_lacking: int = 0
    """Number of records before its checkpoint that the stores on disk lack."""
    waiting: list[object] = field(default_factory=list)
    """Threads that received the task while another thread holds it."""


@dataclass(slots=True)
class LocalState:
    """The state directory of one process. Threads may be any objects."""

    timeline: Timeline
    cluster: SimulatedCluster
    restore_records_per_s: int
    restore: SimulatedRestore
    on_restored: Callable[[TaskId, object, int], None]
    """Called with task, thread and number of missing records when an active task is found to be restored."""
    _copies: dict[TaskId, _Copy] = field(default_factory=dict)

    def open(self, task: TaskId, thread: object) -> None:
        """Open a task for a thread, immediately or when its current holder releases it."""
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
        """Request the end of the changelogs until there is a valid answer. The restore starts then."""
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
        """Release a task of a thread. ``clean``: write a checkpoint; otherwise an older one remains."""
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
        """Set the checkpoint of a task whose thread is killed while it writes it."""
        copy = self._copies.get(task)
        if copy is not None and copy.holder is thread and copy.working:
            copy.checkpoint, lacking = self.restore.torn(self._position(task, copy), copy.checkpoint)
            copy.stored_lacking = copy.lacking + lacking

    def lose_checkpoint(self, task: TaskId) -> None:
        """Discard the checkpoint: after an unclean stop with exactly-once the state is invalid."""
        copy = self._copies.get(task)
        if copy is not None:
            copy.checkpoint = None

    def wipe(self) -> None:
        """Delete everything, as if the disk were lost."""
        self._copies.clear()

    def lock_free_directories(self, thread: object) -> list[TaskId]:
        """Lock every free task directory; return all that this thread has locked without working on them."""
        mine = []
        for task, copy in self._copies.items():
            if copy.holder is None and copy.checkpoint is not None:
                copy.holder = thread
            if copy.holder is thread and not copy.working:
                mine.append(task)
        return sorted(mine)

    def unlock(self, thread: object) -> None:
        """Release the directories that the thread has only locked."""
        for task, copy in self._copies.items():
            if copy.holder is thread and not copy.working:
                self._let_go(task, copy)

    def release_everything(self, thread: object, *, clean: bool) -> None:
        """Release all tasks of a stopped thread."""
        for task in self._copies:
            self.close(task, thread, clean=clean)

    def held(self, task: TaskId, thread: object) -> bool:
        """Return whether this thread works on the task."""
        copy = self._copies.get(task)
        return copy is not None and copy.holder is thread and copy.working

    def position(self, task: TaskId) -> int | None:
        """Return the position of the task's state, in records; None without state."""
        copy = self._copies.get(task)
        if copy is None:
            return None
        return self._position(task, copy) if copy.working else copy.checkpoint

    def runs(self, task: TaskId, thread: object) -> bool:
        """Return whether an active task of this thread is restored. A restored task stays restored."""
        copy = self._copies.get(task)
        if copy is None or copy.holder is not thread or not copy.working:
            return False
        if not copy.running and copy.known_end is not None:
            short = copy.known_end.lacking  # above 0 only if the reported end was wrong
            position = self._position(task, copy)
            if position >= (copy.known_end.offset if short else self.cluster.end_of_task(task)):
                copy.running = True
                copy.lacking += short
                self.on_restored(task, thread, copy.lacking)
        return copy.running

    def stop_running(self, task: TaskId, thread: object) -> None:
        """Turn an active task into a standby without closing it."""
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
