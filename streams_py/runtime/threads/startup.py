"""Starting restored tasks where the group has committed."""

from __future__ import annotations

import logging

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailable, TimeoutExceeded
from streams_py.ports import Clock, Membership
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.start_positions import StartPositions
from streams_py.runtime.threads.task_table import TaskTable

__all__ = ["TaskStarter"]

_log = logging.getLogger(__name__)

_FETCH_TIMEOUT_MS = 10_000


class TaskStarter:
    """Starts the tasks of one stream thread; on that thread only."""

    def __init__(
        self,
        table: TaskTable,
        membership: Membership,
        start_positions: StartPositions,
        clock: Clock,
        *,
        task_timeout_ms: int,
    ) -> None:
        self._table = table
        self._membership = membership
        self._start_positions = start_positions
        self._clock = clock
        self._task_timeout_ms = task_timeout_ms
        self._waiting_since_ms: dict[TaskId, int] = {}

    def start_restored(self) -> dict[TopicPartition, int]:
        """Run the actives whose stores are complete; where each of their partitions is to be read from.

        A broker that cannot say it yet is asked again next time; TimeoutExceeded names the task that has waited for
        longer than ``task.timeout.ms``.
        """
        restored = self._table.restored()
        if not restored:
            return {}
        partitions = {partition for task in restored for partition in task.input_partitions}
        try:
            committed = self._membership.committed(partitions, timeout_ms=_FETCH_TIMEOUT_MS)
        except BrokerUnavailable as error:
            for task in restored:
                self._check_timeout(task, error)
            return {}
        positions: dict[TopicPartition, int] = {}
        for task in restored:
            self._waiting_since_ms.pop(task.id, None)
            for partition in task.input_partitions:
                offset = committed.get(partition)
                positions[partition] = (
                    offset.offset if offset is not None else self._start_positions.after_reset(partition)
                )
            self._table.start(task, committed)
        return positions

    def _check_timeout(self, task: ActiveTask, error: BrokerUnavailable) -> None:
        now = self._clock.monotonic_ms()
        waited_ms = now - self._waiting_since_ms.setdefault(task.id, now)
        if waited_ms > self._task_timeout_ms:
            raise TimeoutExceeded(
                f"committed offsets of task {task.id} could not be read for {waited_ms} ms "
                f"(task.timeout.ms is {self._task_timeout_ms}): {error}",
                task_id=task.id,
            ) from error
        _log.warning("committed offsets of task %s not read yet: %s; trying again", task.id, error)
