"""Reactions of a running task to recreated topics: deleted and created again.

* An **input topic**: the task reads the new topic from its beginning, because its position was an offset in the old
  topic. Until the change is noticed, the task may read records of the new topic at the old position. It then reads
  these records again. With the reset policy ``none`` the thread fails.
* A **repartition topic**: records that were not processed are lost, so the thread fails, unless
  ``recreated.internal.topics`` is ``continue``.
* A **changelog topic**: the store is complete, but its topic is not. The error is logged.
* An input topic that is also the changelog of a table: the table starts over with the records of the new topic.

A topic may also be replaced while no thread reads it. That is detected when the task starts: this process, or the
task's database, knows the committed offset and the id of its topic. Another member may have committed a newer offset
since; that offset is accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StreamsError, TaskCorruptedError
from streams_py.ports import BEGINNING, Clock, OffsetAndMetadata, RecordConsumer, RecordProducer
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.runtime.commit.start_positions import StartPositions
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.thread.topic_ids import TopicIds

_log = logging.getLogger(__name__)

_LOST_MS: Final = 5_000
"""Time limit in ms for the cluster to report a topic's id, before the reset policy applies to an invalid position."""


class TopicChanges:
    """Compares the topic ids of the positions of one stream thread with the ids that the cluster reports.

    Args:
        ids: The ids that the cluster reports.
        known: The committed offsets that this client knows, and the ids of their topics.
        start_positions: The reset policies.
        internal: The application's repartition topics.
        continues: Whether the thread continues when a repartition topic was recreated
            (``recreated.internal.topics=continue``). Otherwise it fails.
    """

    def __init__(
        self,
        ids: TopicIds,
        known: KnownCommits,
        start_positions: StartPositions,
        clock: Clock,
        *,
        internal: Collection[str],
        continues: bool,
    ) -> None:
        self._ids = ids
        self._known = known
        self._start_positions = start_positions
        self._clock = clock
        self._internal = frozenset(internal)
        self._continues = continues
        self._seen: Mapping[str, str] = {}
        self._lost: dict[TopicPartition, tuple[int, int]] = {}

    def watch(self, tasks: Collection[ActiveTask]) -> None:
        """Set the active tasks of the thread."""
        partitions = {tp for task in tasks for tp in (*task.input_partitions, *task.stores.changelog_partitions)}
        self._ids.watch(self, {partition.topic for partition in partitions})

    # -- when a task starts ----------------------------------------------------------------------------------

    def is_outdated(self, partition: TopicPartition, id: str | None) -> bool:
        """Whether a position in the topic with this id belongs to a topic that was replaced since."""
        now = self._ids.now.get(partition.topic)
        return id is not None and now is not None and now != id

    def committed(self, task: ActiveTask, partition: TopicPartition, at: OffsetAndMetadata) -> OffsetAndMetadata:
        """Return the committed position of a partition, or the beginning if the position's topic was replaced since.

        Raises:
            StreamsError: The thread must not continue there.
        """
        before = self._id_of(task, partition, at.offset)
        if not self.is_outdated(partition, before):
            return at
        self._report(task.id, partition, at.offset, f"{before} and is {self._ids.now[partition.topic]}")
        return OffsetAndMetadata(BEGINNING, at.metadata)

    def _id_of(self, task: ActiveTask, partition: TopicPartition, offset: int) -> str | None:
        """Return the id of the topic that the committed offset belongs to, if this process or its disk knows it."""
        if (known := self._known.topic_id(partition)) is not None and self._known.at_least(partition) == offset:
            return known
        inputs = task.stores.inputs
        return inputs.id_of(partition) if inputs.offsets.get(partition) == offset else None

    def started(self, task: ActiveTask, partition: TopicPartition, at: OffsetAndMetadata | None) -> None:
        """Note that a task starts to read a partition. ``at``: the group's committed position."""
        now = self._ids.now.get(partition.topic)
        if now is None and at is not None:  # use the id that this process knows, to compare later answers with
            now = self._id_of(task, partition, at.offset)
        if now is not None:
            task.topic_ids[partition.topic] = now
        task.stores.inputs.topic_ids = task.topic_ids

    def _report(self, task: TaskId, partition: TopicPartition, offset: int, ids: str) -> None:
        if partition.topic in self._internal:
            lost = (
                f"task {task}: repartition topic {partition.topic} was deleted and created again (its id was {ids}): "
                "records that were not processed before are lost"
            )
            if not self._continues:
                raise StreamsError(
                    f"{lost}. Reset the application (streams-py reset) to process its input again, or set "
                    "recreated.internal.topics=continue to continue without them"
                )
            _log.error("%s. Continuing at its beginning (recreated.internal.topics=continue)", lost)
            return
        self._start_positions.after_reset(partition)  # raises if the reset policy is "none"
        _log.warning(
            "task %s: topic %s was deleted and created again (its id was %s). Offset %d of %s is not valid in the new "
            "topic: reading it from its beginning",
            task,
            partition.topic,
            ids,
            offset,
            partition,
        )

    # -- while tasks run -------------------------------------------------------------------------------------

    def check(self, tasks: Sequence[ActiveTask], consumer: RecordConsumer, producer: RecordProducer) -> None:
        """Handle changed topic ids.

        Raises:
            TaskCorruptedError: Tables start over.
            StreamsError: The thread must not continue.
        """
        now = self._ids.now
        if now is self._seen:
            return
        self._seen = now
        corrupted: dict[TaskId, set[TopicPartition]] = {}
        acked: Mapping[TopicPartition, int] | None = None
        for task in tasks:
            for partition in sorted(task.stores.changelog_partitions - task.stores.source_changelogs):
                if (id := now.get(partition.topic)) is not None:
                    acked = producer.acked_offsets() if acked is None else acked
                    task.stores.changelog_replaced(partition, id, acked.get(partition))
            changed = self._changed(task, now)
            for partition in changed:
                self._lost.pop(partition, None)
                before = task.topic_ids[partition.topic]
                position = consumer.position(partition)
                self._report(task.id, partition, position or 0, f"{before} and is {now[partition.topic]}")
                task.positions.start_again_at(partition)
                consumer.seek(partition, BEGINNING)
            task.topic_ids |= {at.topic: now[at.topic] for at in task.input_partitions if at.topic in now}
            if tables := task.stores.source_changelogs & set(changed):
                corrupted[task.id] = set(tables)
        if corrupted:
            names = ", ".join(sorted({partition.topic for tables in corrupted.values() for partition in tables}))
            raise TaskCorruptedError(f"tables of {names} have rows of a topic that was deleted", corrupted)

    def _changed(self, task: ActiveTask, now: Mapping[str, str]) -> list[TopicPartition]:
        known = task.topic_ids
        return sorted(
            partition
            for partition in task.input_partitions
            if partition.topic in known and now.get(partition.topic, known[partition.topic]) != known[partition.topic]
        )

    # -- positions that a log does not have --------------------------------------------------------------------

    def note_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Note partitions whose logs end before the position: they were truncated, or their topics were recreated.

        The next answers about topic ids tell which, if ids are known.
        """
        now_ms = self._clock.monotonic_ms()
        for partition in partitions:
            since_ms = now_ms if partition.topic in self._ids.now else now_ms - _LOST_MS
            self._lost[partition] = (self._ids.requests, since_ms)
        self._ids.check_soon()

    def take_lost(self) -> list[TopicPartition]:
        """Return the partitions of :meth:`note_lost` to which the reset policy applies, each of them once.

        Either the cluster has reported the same topic id again, or it has not reported an id in time. Recreated topics
        are left to :meth:`check`, which reads them from the beginning.
        """
        if not self._lost:
            return []
        now_ms = self._clock.monotonic_ms()
        same = [
            partition
            for partition, (requests, since_ms) in self._lost.items()
            if self._ids.is_confirmed(partition.topic, since=requests) or now_ms - since_ms >= _LOST_MS
        ]
        for partition in same:
            del self._lost[partition]
        return same
