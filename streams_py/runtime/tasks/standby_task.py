"""A standby task: only replays changelogs, so that it can take over (Kafka Streams' ``StandbyTask``)."""

from __future__ import annotations

from typing import ClassVar

from streams_py.runtime.tasks.task import Task, TaskPhase


class StandbyTask(Task):
    """A standby task. It is RUNNING as soon as its stores are open, and the state updater replays records into them.

    It never needs a commit: it reads no input, and the state updater writes its checkpoints.
    """

    is_active: ClassVar[bool] = False

    def initialize(self) -> None:
        """Open the stores. LockError: nothing has happened, try again later."""
        super().initialize()
        self._go(TaskPhase.RUNNING)
