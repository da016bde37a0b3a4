"""A standby task: only replays changelogs, so that it can take over (Kafka Streams' ``StandbyTask``)."""

from __future__ import annotations

from typing import ClassVar

from streams_py.runtime.tasks.task import Task, TaskPhase


class StandbyTask(Task):
    """A standby task. It is RUNNING as soon as its stores are open, and the state updater replays records into them."""

    is_active: ClassVar[bool] = False
    commit_needed: ClassVar[bool] = False
    """Always False: standby tasks read no input, and the state updater writes their checkpoints."""
    commit_requested: ClassVar[bool] = False

    def initialize(self) -> None:
        """Open the stores. LockError: nothing has happened, try again later."""
        self._check(TaskPhase.CREATED)
        if not self.stores.is_open:
            self.stores.open()
        self._go(TaskPhase.RESTORING)
        self._go(TaskPhase.RUNNING)
