"""The stores of one task: opening, restoring, committing and closing them (Kafka Streams' ProcessorStateManager).

The *position* of a changelog partition is the offset of the last record that its store contains. It may be unknown. The
database stores positions together with the data, and they are read when the task opens. A position advances while
records are restored, and at each commit to the last acknowledged offset of the producer. A position has no meaning in
another topic with the same name, so the id of the topic is stored with it.

The writes of a task are in memory until it commits (:mod:`streams_py.state.disk`). So the files always have a committed
state, even after a crash. A store whose position is unknown is *emptied* before it is restored from the beginning: a
compacted changelog may no longer have the tombstones of keys that are in old files. Stores in memory have no position
at the start.

The checkpoint file publishes the positions, for tools and for reports of tasks that are not open on this instance. It
is never used to restore a task.

One thread at a time uses this object. Other threads may read the stores.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from streams_protocol import OFFSET_UNKNOWN
from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import LockError, StateError, StateStoreMigratedError, UnknownStateStoreError
from streams_py.ports import BEGINNING, RawRecord, SortedPart
from streams_py.state.buffers.suppress_buffer import SuppressionBuffer
from streams_py.state.caching.cache import RecordCache, flush_until_clean
from streams_py.state.custom.store_adapter import CustomStoreAdapter, as_used, custom_store_of
from streams_py.state.directory.checkpoint import CheckpointFile
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.metrics.measured_stores import MeasuredStores, Measuring
from streams_py.state.opening.stores import (
    Store,
    StoreDefaults,
    changelog_topic,
    disk_layouts,
    is_persistent,
    open_store,
)
from streams_py.state.snapshots.snapshots import Snapshots
from streams_py.state.stores.changelog_entries import changelog_entries
from streams_py.state.stores.key_value import ChangeLog, with_headers
from streams_py.state.tasks.changelog_topics import ChangelogTopics
from streams_py.state.tasks.committed_inputs import CommittedInputs
from streams_py.state.windowed.entries import WindowedEntries
from streams_py.system.printable import text_of
from streams_py.topology.declare.custom_stores import CustomStateStore, CustomStore
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder

if TYPE_CHECKING:
    from streams_py.state.disk.bulk_load import BulkLoad
    from streams_py.state.disk.database import TaskDatabase

_logger = logging.getLogger(__name__)

_BEFORE_ALL = -1  # the position before the first record: all of the changelog is replayed on top of the store


@dataclass(frozen=True, slots=True)
class StoreEnvironment:
    """What the stores of all tasks of one stream thread have in common."""

    directory: StateDirectory
    owner: str
    """Name of the stream thread, which locks the directories of its tasks."""
    defaults: StoreDefaults = field(default_factory=StoreDefaults)
    cache: RecordCache | None = None
    snapshots: Snapshots | None = None


class TaskState:
    """The stores of one task. Implements the runtime's ``TaskStores``."""

    def __init__(
        self,
        task_id: TaskId,
        builders: Iterable[StoreBuilder],
        environment: StoreEnvironment,
        *,
        application_id: str,
        measuring: Measuring | None = None,
    ) -> None:
        self.task_id = task_id
        self._builders = {builder.name: builder for builder in builders}
        self._application_id = application_id
        self._directory = environment.directory
        self._owner = environment.owner
        self._defaults = environment.defaults
        self._disk_layouts = disk_layouts(self._builders.values(), self._defaults)
        self._cache = environment.cache
        self._snapshots = environment.snapshots
        self._stores: dict[str, Store] = {}
        self._measured = MeasuredStores(self._builders, measuring)
        self._custom: dict[str, CustomStore] = {}
        self._database: TaskDatabase | None = None
        self._bulk: BulkLoad | None = None
        self._is_open = False
        self._store_by_changelog = {
            TopicPartition(changelog_topic(builder, application_id), task_id.partition): builder.name
            for builder in self._builders.values()
            if builder.logging or builder.source_topic is not None
        }
        self._offsets: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        """The positions in the database, of stores on disk."""
        self._logged: dict[TopicPartition, int] = {}
        """The positions that survive a crash, at least, while a bulk restore bypasses the write-ahead log."""
        self._topics = ChangelogTopics(task_id)
        self.inputs = CommittedInputs()
        """The input offsets that the group had committed at the last commit to disk. Empty without stores on disk."""
        self._checkpoint = CheckpointFile()

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the stores are open."""
        return self._is_open

    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]:
        """The changelog partitions of all stores."""
        return frozenset(self._store_by_changelog)

    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """The changelog partitions that are partitions of source topics."""
        return frozenset(
            changelog for changelog, name in self._store_by_changelog.items() if self._builders[name].source_topic
        )

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """The position of each changelog: the offset of the last record in its store. Unknown positions are missing."""
        return dict(self._offsets)

    def offset_sum(self) -> int:
        """Return the number of changelog offsets that the stores contain in total. Unknown positions count 0."""
        return sum(offset + 1 for offset in self._offsets.values())

    @property
    def stores(self) -> Mapping[str, Store]:
        """The open stores by name."""
        return dict(self._stores)

    def store(self, name: str) -> Store | CustomStateStore:
        """Return an open store.

        Raises:
            UnknownStateStoreError: The task has no such store.
            StateStoreMigratedError: The task's stores are not open.
        """
        found = self._stores.get(name)
        if found is not None:
            return as_used(found)
        if name in self._builders:
            raise StateStoreMigratedError(f"the stores of task {self.task_id} are not open", task_id=self.task_id)
        known = ", ".join(sorted(self._builders)) or "none"
        raise UnknownStateStoreError(f"task {self.task_id} has no store {name!r}; its stores: {known}")

    def store_of(self, changelog: TopicPartition) -> str:
        """Return the name of the store that a changelog partition belongs to."""
        return self._store_by_changelog[changelog]

    def store_metrics(self, seconds: float) -> Iterator[tuple[str, str, Mapping[str, float]]]:
        """Yield Kafka's tag, the name and the metrics of each open store. Thread-safe.

        ``seconds``: the time for which operations were counted, to compute rates.
        """
        return self._measured.metrics(self._stores, self._database, self._defaults, seconds)

    def cache_metrics(self) -> Iterator[tuple[str, float, Mapping[str, float]]]:
        """Yield name, bytes in the cache and hit ratios of each measured store with a cache. Thread-safe."""
        return self._measured.of_caches(self._stores)

    # -- opening and closing -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the task, open its stores, and read their positions.

        Raises:
            LockError: Another thread has the task.
        """
        if self._is_open:
            return
        if not self._directory.lock(self.task_id, self._owner):
            holder = self._directory.owner_of(self.task_id)
            raise LockError(f"task {self.task_id} is still locked by {holder}", task_id=self.task_id)
        try:
            self._open_stores(self._prepare())
            self._learn_positions()
        except BaseException:
            self._close_stores()
            self._directory.unlock(self.task_id, self._owner)
            raise
        self._is_open = True

    def _prepare(self) -> str | None:
        """Prepare and return the task's directory. None if no store is on disk."""
        on_disk = self._disk_layouts and self._directory.is_persistent
        return self._directory.prepare_task(self.task_id) if on_disk else None

    def _persistent_changelogs(self) -> list[TopicPartition]:
        return [
            changelog
            for changelog, name in self._store_by_changelog.items()
            if is_persistent(self._builders[name], self._defaults)
        ]

    def _changelogs_of(self, store: str) -> list[TopicPartition]:
        return [changelog for changelog, name in self._store_by_changelog.items() if name == store]

    def _open_stores(self, path: str | None) -> None:
        if path is not None:
            from streams_py.state.disk.bulk_load import BulkLoad
            from streams_py.state.disk.layouts import set_changed_aside
            from streams_py.state.tasks.initial_state import database_of  # not loaded without persistent stores

            self._database = database_of(self.task_id, path, self._disk_layouts, self._snapshots)
            self._bulk = BulkLoad(self._database)
            on_disk = [self._builders[name] for name in self._disk_layouts]
            set_changed_aside(self._database, on_disk, self._changelogs_of)
        no_record = RecordContext()
        for name, builder in self._builders.items():
            self._stores[name] = open_store(
                builder,
                application_id=self._application_id,
                context=no_record,
                defaults=self._defaults,
                disk=None if self._database is None else self._database.store,
                cache=self._cache,
                task_id=self.task_id,
                directory=self._custom_directory(name),
            )
            self._measured.watch(name, self._stores[name])
            custom = custom_store_of(self._stores[name])
            if custom is not None:
                self._custom[name] = custom

    def _topic_files(self) -> dict[str, str]:
        """Return the file with the topic's id, by topic, for the changelogs of custom stores that may have files."""
        directories = {name: self._custom_directory(name) for name in self._custom}
        return {
            changelog.topic: f"{path}.topic"
            for changelog, name in self._store_by_changelog.items()
            if (path := directories.get(name)) is not None
        }

    def _custom_directory(self, store: str) -> str | None:
        """Return the directory in which a custom store may keep files. Only the store itself creates it."""
        if self._builders[store].supplier is None or not self._directory.is_persistent:
            return None
        return os.path.join(self._directory.task_path(self.task_id), "own", store)

    def _learn_positions(self) -> None:
        self._offsets = {}
        database = self._database
        known = {} if database is None else database.positions()
        self._topics.use(database, self._topic_files())
        self.inputs.use(database)
        for changelog, name in self._store_by_changelog.items():
            store = self._stores[name]
            if database is None or not store.persistent:
                continue
            offset = known.get(changelog) if name in database.found_stores else None
            if offset is None:
                if changelog in known:  # the position is known, but the store's files are missing
                    database.forget([changelog])
                store.clear()
            else:
                self._offsets[changelog] = offset
        self._committed = dict(self._offsets)
        self._checkpoint.begin(self._offsets)
        for name, custom in self._custom.items():
            offset, changelogs = custom.committed_offset(), self._changelogs_of(name)
            if offset is None:
                custom.clear()
            self._offsets.update({changelog: offset for changelog in changelogs if offset is not None})

    def attach(self, record: RecordContext, changelog_writer: Callable[[str, int], ChangeLog] | None) -> None:
        """Use this record context and these changelog writers from now on. None: nothing is logged (standby)."""
        self.end_loading()  # standbys are read too
        self._topics.change_writer()
        self._measured.attach(record)
        for name, store in self._stores.items():
            builder = self._builders[name]
            log = None
            if changelog_writer is not None and builder.logging and builder.source_topic is None:
                log = changelog_writer(changelog_topic(builder, self._application_id), self.task_id.partition)
                if builder.logs_headers:
                    log = with_headers(log, record)
            store.rebind(log=log, context=record)
        if self._snapshots is not None and self._database is not None:
            self._snapshots.closing(self.task_id)
            if changelog_writer is not None:
                logs = self.changelog_partitions - self.source_changelogs
                self._snapshots.opened(self.task_id, self._database, self._disk_layouts, logs)

    def close(self, *, wipe: bool = False) -> None:
        """Close the stores and unlock the task. Uncommitted writes are dropped.

        Everything is closed even after an error; the first error is raised at the end.

        Args:
            wipe: Whether to delete all files of the task.
        """
        if not self._is_open:
            return
        self._is_open = False
        damage = self.damage
        errors = self._close_stores()
        try:
            if damage is not None:
                from streams_py.state.tasks.initial_state import set_damaged_aside

                set_damaged_aside(self.task_id, self._directory.task_path(self.task_id), damage)
            if wipe and self._directory.is_persistent:
                self._directory.wipe_task(self.task_id)
        finally:
            self._directory.unlock(self.task_id, self._owner)
        if errors and damage is None:  # damaged files cannot be flushed, and their database is set aside
            raise errors[0]

    def note_damage(self, error: StateError) -> bool:
        """Return whether an error reports damaged files of this task. If so, :meth:`close` sets its database aside."""
        return self._database is not None and self._database.note_failure(error)

    @property
    def damage(self) -> StateError | None:
        """The first error that reported damaged files of this task, on any thread. Thread-safe."""
        database = self._database
        return None if database is None else database.damage

    def close_files_aside(self) -> bool:
        """Start the slow part of :meth:`close` in the background; return whether it has finished.

        The caller calls this again until it returns True, or raises the error of the background work. The task stays
        locked until :meth:`close`.
        """
        return self._database is None or self._database.close_in_background()

    def _close_stores(self) -> list[StateError]:
        errors: list[StateError] = []
        if self._snapshots is not None:
            self._snapshots.closing(self.task_id)
        closing: list[Callable[[], None]] = [store.close for store in self._stores.values()]
        if self._database is not None:
            closing.append(self._database.close)
            with contextlib.suppress(OSError):  # for example, the directory was deleted
                # The cleaner must count the age of the directory from now, not from its last change.
                os.utime(self._directory.task_path(self.task_id))
        for close in closing:
            try:
                close()
            except (Exception, SystemExit) as error:  # a custom store may raise anything
                text = text_of(error)
                _logger.warning("task %s: closing a store failed: %s", self.task_id, text)
                errors.append(
                    StateError(f"closing a store of task {self.task_id} failed: {text}", task_id=self.task_id)
                )
        self._stores, self._custom, self._database, self._bulk = {}, {}, None, None
        self._topics.use(None)
        self._offsets, self._committed = {}, {}
        self.inputs.use(None)
        return errors

    # -- restoration -------------------------------------------------------------------------------------------

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """Return False if the position refers to another topic than the one with this id. Called before restoring.

        If either id is unknown (``topic_id`` is None, or the position was stored without an id), the result is True.
        """
        store = self._store_by_changelog[changelog]
        on_disk = self._database is not None and self._stores[store].persistent
        return topic_id is None or self._topics.is_of(
            changelog, topic_id, store=store, position_known=changelog in self._offsets, on_disk=on_disk
        )

    def changelog_replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None) -> None:
        """Note the id of a changelog topic while the task runs.

        If the id has changed, the next restore replays the whole changelog.
        """
        store = self._store_by_changelog[changelog]
        if not self._topics.replaced(changelog, topic_id, acked, store=store):
            return
        self._offsets[changelog] = _BEFORE_ALL
        if self._database is not None and self._stores[store].persistent:
            self._committed[changelog] = _BEFORE_ALL
            self._database.note_topic_ids({changelog.topic: topic_id}, {changelog: _BEFORE_ALL})

    def restore_position(self, changelog: TopicPartition) -> int:
        """Return the offset of the next record to restore, or BEGINNING."""
        offset = self._offsets.get(changelog)
        return BEGINNING if offset is None else offset + 1

    def restore(
        self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False, last: int | None = None
    ) -> None:
        """Apply changelog records in offset order, bypassing caches and logs.

        Args:
            changelog: The changelog partition.
            records: The records.
            in_bulk: Whether the records need not be on disk before :meth:`flush_restored` has returned True. If there
                are many, the last ones are restored again after a crash.
            last: Offset of the last record that was read, if records at the end were left out.
        """
        if not records and last is None:
            return
        name = self._store_by_changelog[changelog]
        store = self._stores[name]
        end = {changelog: records[-1].offset() if last is None else last}
        if isinstance(store, SuppressionBuffer | CustomStoreAdapter):
            store.restore_records(records)
        elif self._bulk is not None and store.persistent:
            database = self._bulk.database
            was_logged = database.is_logged
            load = partial(store.restore, changelog_entries(records))
            self._bulk.restore(load, end, in_bulk=max(1, len(records)) if in_bulk else 0)
            if was_logged and not database.is_logged:
                self._logged = dict(self._committed)
            self._committed.update(end)
        else:
            store.restore(changelog_entries(records))
        self._offsets.update(end)
        if name in self._custom:
            self._commit_custom_stores()

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Return the folder of files for :meth:`take_in`, and whether their values start with a timestamp.

        None if the store cannot ingest files.
        """
        if self._database is None:
            return None
        from streams_py.state.disk.sorted_files import sorted_files_target

        builder = self._builders[self._store_by_changelog[changelog]]
        if builder.name not in self._disk_layouts:
            return None
        return sorted_files_target(builder, self._directory.task_path(self.task_id))

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Ingest sorted files, on top of all restored records. Without a last offset, the position does not change."""
        if self._bulk is None:
            return
        end, store = {} if part.last is None else {changelog: part.last}, self._store_by_changelog[changelog]
        self._stores[store].clear_cache()
        self._bulk.take_in(store, part.files, end)
        self._committed, self._offsets = self._committed | end, self._offsets | end

    @property
    def awaits_disk(self) -> bool:
        """Whether a bulk restore has to pause until the disk has caught up."""
        bulk = self._bulk  # the owner may close the task meanwhile
        return bulk is not None and bulk.is_behind

    def flush_restored(self) -> bool:
        """Flush records restored in bulk to disk, in the background; return whether this has finished. Thread-safe.

        The caller calls this again until it returns True.
        """
        database = self._database
        return database is None or database.flush_in_background()

    def end_loading(self) -> None:
        """End a bulk restore, and open the database for reading and writing."""
        if self._bulk is not None:
            self._bulk.end_loading()

    # -- committing --------------------------------------------------------------------------------------------

    def flush_caches(self, order: Iterable[str]) -> None:
        """Flush the record caches of these stores until no entry is dirty."""
        flush_until_clean([self._stores[name] for name in order])

    def clear_caches(self) -> None:
        """Drop all entries of the record caches, dirty ones too."""
        for store in self._stores.values():
            store.clear_cache()

    def update_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Advance positions to the last acknowledged offsets. Changelogs of other tasks are ignored.

        An offset below the position is ignored once: this thread may have written it before the task moved away and
        came back. If later offsets are below the position too, the changelog was recreated while the task runs, and the
        position becomes the new offset.

        Offsets of a source topic are always accepted. If the group's offsets were reset, the task reads the topic
        again, and the store then contains more than its position says.
        """
        for changelog, offset in offsets.items():
            store = self._store_by_changelog.get(changelog)
            if store is None or self._topics.is_ambiguous(changelog, offset):
                continue
            at = self._offsets.get(changelog, offset)
            is_input = self._builders[store].source_topic is not None
            if is_input or self._topics.was_recreated(changelog, at, offset, store=store):
                self._offsets[changelog] = offset  # the store has every record written to it
            else:
                self._offsets[changelog] = max(offset, at)

    @property
    def uncommitted_bytes(self) -> int:
        """Approximate size of the uncommitted writes of stores on disk, in bytes."""
        return 0 if self._database is None else self._database.uncommitted_bytes

    def commit(self, inputs: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Commit all writes and positions, so that they survive a crash.

        To be called after the group's offsets, including ``inputs``, or the transaction have been committed.

        Args:
            inputs: The committed offsets of input partitions.
        """
        self._commit_custom_stores()
        if self._database is None:
            return
        moved = {
            changelog: offset
            for changelog in self._persistent_changelogs()
            if (offset := self._offsets.get(changelog)) is not None and offset != self._committed.get(changelog)
        }
        changed = self.inputs.changed(inputs)
        if self._database.commit(moved, changed):
            self.inputs.note(changed)
        self._committed.update(moved)

    def _commit_custom_stores(self) -> None:
        for name, custom in self._custom.items():
            changelog = next(iter(self._changelogs_of(name)), None)
            custom.commit(None if changelog is None else self._offsets.get(changelog))

    def roll_back(self) -> None:
        """Drop all uncommitted writes, in caches and in the database's layers, and go back to the committed positions.

        A failed commit may have advanced the positions already.
        """
        self.clear_caches()
        if self._database is not None:
            self.end_loading()  # records restored from now on belong to a new restore
            self._database.roll_back()
            ahead = set(self._persistent_changelogs()) - self._committed.keys()
            self._offsets = {changelog: at for changelog, at in self._offsets.items() if changelog not in ahead}
            self._offsets |= self._committed
            for store in self._stores.values():
                if isinstance(store, WindowedEntries) and store.persistent:
                    store.roll_back()

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """Discard the positions of these changelogs, because their stores cannot be trusted.

        The next time the task opens, the stores are emptied and restored from the beginning.
        """
        for changelog in changelogs:
            self._offsets.pop(changelog, None)
            self._committed.pop(changelog, None)
        if self._database is not None:
            self._database.forget(changelogs)
        self.inputs.use(self._database)
        for changelog in changelogs:
            self._topics.forget(changelog)
            custom = self._custom.get(self._store_by_changelog.get(changelog, ""))
            if custom is not None:
                custom.clear()
                custom.commit(None)
        self.checkpoint(enforce=True)

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file if positions have moved far enough, or if ``enforce``.

        A failure is only logged as a warning, because the file is never used to restore a task.
        """
        if not self._is_open or self._database is None:
            return
        if not (enforce or self._checkpoint.is_due(self._committed)) or self._database.location.is_gone:
            return
        known = self._committed if self._database.is_logged else self._logged
        reached = {changelog: known.get(changelog, _BEFORE_ALL) for changelog in self._persistent_changelogs()}
        offsets = {at: OFFSET_UNKNOWN if offset == _BEFORE_ALL else offset for at, offset in reached.items()}
        try:
            self._checkpoint.write(self._directory.task_path(self.task_id), offsets)
        except OSError as error:
            _logger.warning("task %s: cannot write its checkpoint, continuing without it: %s", self.task_id, error)
