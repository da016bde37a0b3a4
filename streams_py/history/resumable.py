"""A task that continues where an earlier task, possibly in another process, has stopped.

The caller keeps what the task needs: its position with the committed metadata, which contains stream times, and the
entries of its changelogs. The stores are in memory and are restored from these entries, as in a live task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import UnsupportedOperationError
from streams_py.history.fold import Expiry, Fold
from streams_py.history.records import Columns, HistoryProducer, HistoryRecord
from streams_py.history.task import StageTopology, StillClock
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.offline.executor import EverythingDelivered, TaskEnvironment, TaskExecutor
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import changelog_topic

_CREATE_TIME = 1


class TaskPosition(NamedTuple):
    """The position of a task: the offset of the next record, and the metadata that is committed with it (``text``)."""

    offset: int
    text: str


class Change(NamedTuple):
    """A change of a changelog entry. A null value means that the entry is deleted."""

    topic: str
    key: bytes
    value: bytes | None
    timestamp_ms: int


class ResumableTask:
    """A task with one input topic.

    ``position`` and ``entries`` come from the earlier task. For the first task, pass no position and no entries.
    ``entries`` must be grouped by topic.
    """

    def __init__(
        self, topology: StageTopology, number: int, position: TaskPosition | None = None, entries: Iterable[Change] = ()
    ) -> None:
        stage, settings = topology.orders.stage, topology.settings
        (self._topic,) = stage.inputs
        self._id = TaskId(stage.id, number)
        self._input = TopicPartition(self._topic, number)
        self._folds = {topic: Fold() for topic in sorted(stage.changelogs)}
        self._producer = HistoryProducer(stage.outputs, self._folds)
        self._aging = {
            topic: _ExpiringKeys(expiry)
            for store in topology.nodes.stores
            if (topic := changelog_topic(store, settings.application_id)) in self._folds
            and (expiry := Expiry.of(store)) is not None
        }
        self._inputs = EverythingDelivered()
        environment = TaskEnvironment(
            settings=settings,
            producer=self._producer,
            clock=StillClock(),
            directory=StateDirectory("unused", settings.application_id, persistent=False),
            inputs=self._inputs,
            owner="preview",
        )
        self._executor = TaskExecutor(self._id, topology.nodes, [self._input], environment)
        task = self._executor.task
        task.initialize()
        for topic, changes in groupby(entries, lambda change: change.topic):
            self._restore(topic, changes)
        task.complete_restoration({} if position is None else {self._input: OffsetAndMetadata(*position)})

    def _restore(self, topic: str, changes: Iterable[Change]) -> None:
        changelog, aging = TopicPartition(topic, self._id.partition), self._aging.get(topic)
        records = []
        for at, change in enumerate(changes):
            stamp = (_CREATE_TIME, change.timestamp_ms)
            records.append(HistoryRecord((*changelog, at, change.key, change.value, stamp, None)))
            if aging is not None:
                aging.note(change.key)
        self._executor.task.stores.restore(changelog, records)

    def feed(self, records: Sequence[HistoryRecord]) -> None:
        """Process records, in offset order. Errors of user code name the node, topic, partition and offset."""
        executor, task = self._executor, self._executor.task
        self._inputs.next_offsets[self._input] = records[-1].offset() + 1
        executor.add(self._input, records)
        while task.buffered_records:
            executor.step(task.buffered_records)
        if executor.had_punctuators:
            raise UnsupportedOperationError(
                f"task {self._id}: a processor has scheduled a punctuator; run this topology live", task_id=self._id
            )

    @property
    def columns(self) -> Mapping[str, Columns]:
        """Topic -> records that were written since the caller last cleared them."""
        return self._producer.columns

    def commit(self) -> tuple[TaskPosition, Iterator[Change]]:
        """Return the position, and the changes of changelog entries since the last call.

        Expired windows and sessions are among the changes, as deleted entries.
        """
        task = self._executor.task
        self._executor.commit()
        position = task.committable_offsets()[self._input]
        return TaskPosition(position.offset, position.metadata), self._changes()

    def _changes(self) -> Iterator[Change]:
        for topic, fold in self._folds.items():
            taken = fold.take()
            aging = self._aging.get(topic)
            for key, (value, timestamp_ms, _) in taken.items():
                if aging is not None:
                    aging.note(key)
                yield Change(topic, key, value, timestamp_ms)
            for key in () if aging is None else aging.expired():
                yield Change(topic, key, None, -1)

    def close(self) -> None:
        """Close the task and discard its state."""
        self._executor.task.close_dirty()


class _ExpiringKeys:
    """The keys of a changelog, by the time from which they expire."""

    def __init__(self, expiry: Expiry) -> None:
        self._expiry = expiry
        self._keys: dict[int, set[bytes]] = {}
        self._latest_ms = -1

    def note(self, key: bytes) -> None:
        time_ms = self._expiry.time_of(key)
        self._keys.setdefault(time_ms, set()).add(key)
        self._latest_ms = max(self._latest_ms, time_ms)

    def expired(self) -> Iterator[bytes]:
        """Yield the keys that have expired since the last call."""
        cutoff_ms = self._latest_ms - self._expiry.kept_ms
        for time_ms in [time_ms for time_ms in self._keys if time_ms <= cutoff_ms]:
            yield from sorted(self._keys.pop(time_ms))
