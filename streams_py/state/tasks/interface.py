"""What the runtime uses of a task's stores: those of one task (``TaskState``), or all global stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import StateError
from streams_py.ports import RawRecord, SortedPart
from streams_py.state.stores.key_value import ChangeLog
from streams_py.state.tasks.committed_inputs import CommittedInputs
from streams_py.topology.declare.nodes import RecordContext


class TaskStores(Protocol):
    """A task's stores and their changelog positions.

    The *position* of a changelog is the offset of the last record that its store contains.
    """

    @property
    def is_open(self) -> bool: ...
    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]: ...
    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """Changelogs that are source topics."""

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """Offset of the last record in each store, by changelog. Changelogs without a known offset are missing."""

    def open(self) -> None:
        """Lock the task's directory, open the stores, and read their positions. LockError if it is locked."""

    def attach(self, record: RecordContext, changelog_writer: Callable[[str, int], ChangeLog] | None) -> None:
        """Set record context and changelog writers of the stores. None: the stores don't write (standby)."""

    def store(self, name: str) -> Any:
        """Return an open store."""

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """Whether the position in this changelog belongs to this topic, not to a former topic of the same name."""

    def changelog_replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None) -> None:
        """Note the new id of a changelog of a running task. ``acked``: offset of the last acknowledged write."""

    def restore_position(self, changelog: TopicPartition) -> int: ...
    def restore(
        self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False, last: int | None = None
    ) -> None:
        """Apply records of a changelog, in offset order.

        Args:
            in_bulk: Whether the records need not be on disk before :meth:`flush_restored`.
            last: Offset of the last record that was read, if that record is not among the records here.
        """

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Return the directory for :meth:`take_in`'s files and whether values are stamped; None if not supported."""

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Add the contents of sorted files, which follow all records that were restored so far."""

    @property
    def awaits_disk(self) -> bool:
        """Whether bulk restoration must pause until the disk has caught up."""

    def flush_restored(self) -> bool:
        """Flush bulk-restored records to disk. Call it until it returns True. Thread-safe."""

    def end_loading(self) -> None:
        """Finish the restoration: open the stores for reading and writing."""

    def store_of(self, changelog: TopicPartition) -> str: ...
    def flush_caches(self, order: Iterable[str]) -> None:
        """Write and forward the record caches of these stores until no entry is dirty."""

    def clear_caches(self) -> None: ...
    def update_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set newer last offsets of changelogs, which were acknowledged to the producer."""

    @property
    def uncommitted_bytes(self) -> int:
        """Approximate number of bytes in memory that wait for the next commit."""

    def store_metrics(self, seconds: float) -> Iterable[tuple[str, str, Mapping[str, float]]]:
        """Return Kafka's tag, name and metrics of each open store. Thread-safe."""

    def cache_metrics(self) -> Iterable[tuple[str, float, Mapping[str, float]]]:
        """Return name, cached bytes and Kafka's hit-ratio metrics of each measured cache. Thread-safe."""

    @property
    def inputs(self) -> CommittedInputs:
        """The group's committed input offsets that belong to the state on disk, if known."""

    def commit(self, inputs: Mapping[TopicPartition, int]) -> None:
        """Make the writes and changelog offsets the committed state, together with these committed input offsets."""

    def roll_back(self) -> None:
        """Drop the writes since the last commit."""

    def note_damage(self, error: StateError) -> bool:
        """Whether this error reports damaged files of these stores. If so, :meth:`close` moves the files aside."""

    @property
    def damage(self) -> StateError | None:
        """The first error of any thread that reported damaged files of these stores. Thread-safe."""

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """Restore these changelogs from the beginning the next time the task opens."""

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file if enforced, or if positions have moved far enough since the last one."""

    def close_files_aside(self) -> bool:
        """Do the slow part of :meth:`close` on a background thread.

        Call it until it returns True or raises the error of the background thread.
        """

    def close(self, *, wipe: bool = False) -> None:
        """Close the stores and unlock the directory. ``wipe``: delete all files of the task."""
