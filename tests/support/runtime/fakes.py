"""Small fakes for the runtime's threads: a clock, records, a consumer, an admin client."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import OffsetOutOfRangeError
from streams_py.ports import BEGINNING, AdminError, AdminErrorKind, PartitionInfo, SortedPart, TopicCleanup, TopicSpec
from streams_py.runtime.restore.restoring_stores import RestoringStores


class FakeRecord:
    """A raw record."""

    def __init__(
        self, partition: TopicPartition, offset: int, key: bytes | None = b"k", value: bytes | None = b"v"
    ) -> None:
        self._partition, self._offset, self._key, self._value = partition, offset, key, value

    def topic(self) -> str:
        return self._partition.topic

    def partition(self) -> int:
        return self._partition.partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return (1, self._offset)

    def headers(self) -> None:
        return None


class FakeLog:
    """The broker's side of the fake consumer: offsets that exist in each partition, and the log's end."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, list[int]] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}

    def write(self, partition: TopicPartition, count: int, *, skip: int = 0) -> None:
        """Append ``count`` records, then ``skip`` offsets without records (transaction markers, compaction)."""
        end = self.ends.get(partition, 0)
        self.offsets.setdefault(partition, []).extend(range(end, end + count))
        self.ends[partition] = end + count + skip


@dataclass
class FakeConsumer:
    """Delivers a FakeLog's records from the assigned positions."""

    log: FakeLog
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    assignments: list[dict[TopicPartition, int | None]] = field(default_factory=list)
    closed: bool = False
    polled: threading.Event = field(default_factory=threading.Event)
    delivers_max: int = 1 << 30

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        self.assignments.append(dict(positions))
        self.positions = {
            partition: self.positions[partition]
            if offset is None
            else (self.log.starts.get(partition, 0) if offset == BEGINNING else offset)
            for partition, offset in positions.items()
        }

    def pause(self, partitions: Collection[TopicPartition]) -> None: ...
    def resume(self, partitions: Collection[TopicPartition]) -> None: ...

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def poll(self, max_records: int, timeout_ms: int) -> list[FakeRecord]:
        self.polled.set()
        gone = [p for p, at in self.positions.items() if at < self.log.starts.get(p, 0)]
        if gone:
            for partition in gone:
                del self.positions[partition]
            raise OffsetOutOfRangeError(gone, deleted=gone)
        records: list[FakeRecord] = []
        for partition, position in self.positions.items():
            present = [o for o in self.log.offsets.get(partition, []) if o >= position]
            found = present[: min(max_records, self.delivers_max)]
            records += [FakeRecord(partition, offset) for offset in found]
            self.positions[partition] = found[-1] + 1 if found else self.log.ends.get(partition, 0)
        return records

    def position(self, partition: TopicPartition) -> int | None:
        return self.positions.get(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        at = self.positions.get(partition)
        return None if at is None else max(0, self.log.ends.get(partition, 0) - at)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeAdmin:
    """Answers from a FakeLog; ``failures`` counts how many list-offsets requests fail first."""

    log: FakeLog
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    failures: int = 0
    leaderless: set[TopicPartition] = field(default_factory=set)
    topic_ids: dict[str, str] = field(default_factory=dict)
    unknown_topics: set[str] = field(default_factory=set)
    described: list[set[str]] = field(default_factory=list)
    asked: list[set[TopicPartition]] = field(default_factory=list)

    def list_offsets(
        self, partitions: Collection[TopicPartition], *, earliest: bool = False
    ) -> Mapping[TopicPartition, int | AdminError]:
        if not earliest:
            self.asked.append(set(partitions))
        if self.failures:
            self.failures -= 1
            return {}
        known = self.log.starts if earliest else self.log.ends
        return {partition: known.get(partition, 0) for partition in partitions}

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        return {partition: self.committed.get(partition) for partition in partitions}

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        self.described.append(set(names or ()))
        led: dict[str, tuple[PartitionInfo, ...] | AdminError] = {
            topic: (PartitionInfo(topic, 0, 1, (1,), frozenset(), id),) for topic, id in self.topic_ids.items()
        }
        led |= {topic: AdminError(AdminErrorKind.UNKNOWN_TOPIC, f"no {topic}") for topic in self.unknown_topics}
        return led | {
            partition.topic: (PartitionInfo(partition.topic, partition.partition, None, (1,), frozenset()),)
            for partition in self.leaderless
        }

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        return {}

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def delete_retention_ms(self, topics: Collection[str]) -> Mapping[str, int | AdminError | None]:
        return dict.fromkeys(topics)

    def cleanup(self, topics: Collection[str]) -> Mapping[str, TopicCleanup | AdminError]:
        return dict.fromkeys(topics, AdminError(AdminErrorKind.UNSUPPORTED, "topics have no configuration here"))

    def cluster_id(self) -> None: ...
    def remove_member(self, group: str, instance_id: str, member_id: str) -> None: ...
    def close(self) -> None: ...


class FakeTask(RestoringStores):
    """A task as the state updater sees it, without stores."""

    changelog_partitions = frozenset[TopicPartition]()
    source_changelogs = frozenset[TopicPartition]()
    awaits_disk = False
    damage = None

    def __init__(
        self,
        id: TaskId,
        changelogs: Sequence[TopicPartition],
        *,
        is_active: bool,
        source_changelogs: Collection[TopicPartition] = (),
        checkpoint: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.id = id
        self.is_active = is_active
        self.changelog_partitions = frozenset(changelogs)
        self.source_changelogs = frozenset(source_changelogs)
        self.checkpointed = dict(checkpoint or {})
        self.topic_ids: dict[str, str] = {}
        self.restored: list[tuple[TopicPartition, int]] = []
        self.checkpoints: list[bool] = []
        self.flushed_after: list[int] = []
        self.limits: dict[TopicPartition, int] = {}
        self.reached: dict[TopicPartition, int] = {}
        self.error: Exception | None = None
        self.flush_error: Exception | None = None
        self.is_flushed = True
        self.is_ready = False
        self.expiring: set[TopicPartition] = set()
        self.never_written = set()
        self.input_partitions = frozenset({TopicPartition("in", id.partition)})
        self.takes_files: dict[TopicPartition, tuple[str, bool]] = {}
        self.taken_in: list[tuple[TopicPartition, SortedPart]] = []

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        return topic_id is None or self.topic_ids.setdefault(changelog.topic, topic_id) == topic_id

    def expires(self, changelog: TopicPartition) -> bool:
        return changelog in self.expiring

    def restore_position(self, changelog: TopicPartition) -> int:
        return self.checkpointed[changelog] + 1 if changelog in self.checkpointed else BEGINNING

    def note_never_written(self, changelog: TopicPartition) -> None:
        self.never_written.add(changelog)

    def note_limit(self, changelog: TopicPartition, committed: int) -> None:
        self.limits[changelog] = committed

    def note_position(self, changelog: TopicPartition, position: int) -> None:
        self.reached[changelog] = position

    def restore(self, changelog: TopicPartition, records: Sequence[FakeRecord]) -> None:
        if self.error is not None:
            raise self.error
        self.restored += [(changelog, record.offset()) for record in records]
        self.is_ready = False

    def flush_restored(self) -> bool:
        self.flushed_after.append(len(self.restored))
        if self.flush_error is not None:
            raise self.flush_error
        return self.is_flushed

    def end_loading(self) -> None:
        self.is_ready = True

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        return self.takes_files.get(changelog)

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        if self.error is not None:
            raise self.error
        assert self.flushed_after[-1] == len(self.restored)
        self.taken_in.append((changelog, part))

    def store_of(self, changelog: TopicPartition) -> str:
        return f"store of {changelog.topic}"

    def checkpoint(self, *, enforce: bool) -> None:
        self.checkpoints.append(enforce)
