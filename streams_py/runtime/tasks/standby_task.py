"""A standby task: replays changelogs so that it can take over, nothing else (Kafka Streams' ``StandbyTask``)."""

from __future__ import annotations

from typing import ClassVar

from streams_py.runtime.tasks.task import Task, TaskPhase

__all__ = ["StandbyTask"]


class StandbyTask(Task):
    """RUNNING as soon as its stores are open; records come through :meth:`restore`."""

    is_active: ClassVar[bool] = False
    commit_needed: ClassVar[bool] = False
    """Standbys read no input, so they never have offsets to commit; their checkpoints are the state updater's."""
    commit_requested: ClassVar[bool] = False

    def initialize(self) -> None:
        """Open the stores. LockError: try again later, nothing has happened."""
        self._check(TaskPhase.CREATED)
        if not self.stores.is_open:
            self.stores.open()
        self._go(TaskPhase.RESTORING)
        self._go(TaskPhase.RUNNING)
