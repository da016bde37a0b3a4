"""The stores of one task: opening, restoring, committing and closing them (Kafka Streams' ProcessorStateManager).

For each changelog partition the last offset contained in its store is known or not. It is in the database, beside the
data, and is learnt from there when the task opens; it moves on while records are restored, and with what the producer
got acknowledged when the task commits. It is worth nothing in another topic of the same name, so the topic's id is kept
with it. What a task writes is in memory until then (:mod:`streams_py.state.disk`), so
whatever is on disk is a committed state, also after a crash. A store of which nothing is known is *emptied* before it
is restored from the beginning: a compacted changelog may have lost the deletions that old files never saw. Stores in
memory are never known at the start.

The checkpoint file tells others how far the stores are: tools, and the report of tasks that are not open here. No task
is restored from it.

One thread at a time uses this object; the stores may be read by others.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from streams_protocol import OFFSET_UNKNOWN
from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import LockError, StateError, StateStoreMigratedError, UnknownStateStoreError
from streams_py.ports import BEGINNING, RawRecord, SortedPart
from streams_py.state.buffers.suppress_buffer import SuppressionBuffer
from streams_py.state.caching.cache import RecordCache, flush_until_clean
from streams_py.state.custom.own_store import OwnStore, as_used, own_store
from streams_py.state.directory.checkpoint import CheckpointFile
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.metrics.measured_stores import MeasuredStores, Measuring
from streams_py.state.opening.stores import Store, StoreDefaults, changelog_topic, is_persistent, kept_as, open_store
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
    from streams_py.state.disk.database import TaskDatabase

__all__ = ["TaskState"]

_logger = logging.getLogger(__name__)

_BEFORE_ALL = -1  # the position of a store that is complete when all of its changelog is replayed over it


class TaskState:
    """Stores of one task.

    ``owner`` is the name of the stream thread, for the lock of the task's directory. Satisfies the runtime's
    ``TaskStores``.
    """

    def __init__(
        self,
        task_id: TaskId,
        builders: Iterable[StoreBuilder],
        *,
        application_id: str,
        directory: StateDirectory,
        owner: str,
        defaults: StoreDefaults | None = None,
        cache: RecordCache | None = None,
        snapshots: Snapshots | None = None,
        measuring: Measuring | None = None,
    ) -> None:
        self.task_id = task_id
        self._builders = {builder.name: builder for builder in builders}
        self._application_id = application_id
        self._directory = directory
        self._owner = owner
        self._defaults = defaults or StoreDefaults()
        self._kept_as = kept_as(self._builders.values(), self._defaults)
        self._cache = cache
        self._snapshots = snapshots
        self._stores: dict[str, Store] = {}
        self._measured = MeasuredStores(self._builders, measuring)
        self._own: dict[str, CustomStore] = {}
        self._database: TaskDatabase | None = None
        self._is_open = False
        self._store_by_changelog = {
            TopicPartition(changelog_topic(builder, application_id), task_id.partition): builder.name
            for builder in self._builders.values()
            if builder.logging or builder.source_topic is not None
        }
        self._offsets: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        """Of stores on disk: the positions that are in the database."""
        self._logged: dict[TopicPartition, int] = {}
        """Those that are there after a crash, at least, while what is restored goes past the write-ahead log."""
        self._topics = ChangelogTopics(task_id)
        self.inputs = CommittedInputs()
        """What the group had committed when what is on disk was; nothing without such stores."""
        self._checkpoint = CheckpointFile()
        self._damage: StateError | None = None

    # -- what others ask ---------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True between :meth:`open` and :meth:`close`."""
        return self._is_open

    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]:  # those of its stores
        return frozenset(self._store_by_changelog)

    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """Those changelogs that are source topics."""
        return frozenset(
            changelog for changelog, name in self._store_by_changelog.items() if self._builders[name].source_topic
        )

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """Offset of the last record contained in each store; a changelog of which nothing is known is missing."""
        return dict(self._offsets)

    def offset_sum(self) -> int:
        """Records contained in all stores; what is unknown counts 0."""
        return sum(offset + 1 for offset in self._offsets.values())

    @property
    def stores(self) -> Mapping[str, Store]:
        """The open stores by name."""
        return dict(self._stores)

    def store(self, name: str) -> Store | CustomStateStore:
        """An open store. UnknownStateStoreError, or InvalidStateStoreError while the task's stores are closed."""
        found = self._stores.get(name)
        if found is not None:
            return as_used(found)
        if name in self._builders:
            raise StateStoreMigratedError(f"the stores of task {self.task_id} are not open", task_id=self.task_id)
        known = ", ".join(sorted(self._builders)) or "none"
        raise UnknownStateStoreError(f"task {self.task_id} has no store {name!r}; its stores: {known}")

    def store_of(self, changelog: TopicPartition) -> str:
        """Name of the store that a changelog partition belongs to."""
        return self._store_by_changelog[changelog]

    def store_figures(self, seconds: float) -> Iterator[tuple[str, str, Mapping[str, float]]]:
        """Kafka's tag, name and figures of each open store; those of use are over so many seconds. Thread-safe."""
        return self._measured.figures(self._stores, self._database, self._defaults, seconds)

    def cache_figures(self) -> Iterator[tuple[str, float, Mapping[str, float]]]:
        """Of each cached store that is measured: its name, the bytes in its cache, and Kafka's figures of the share of
        reads that it answered. Thread-safe."""
        return self._measured.of_caches(self._stores)

    # -- opening and closing -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the task, open its stores, learn their positions. LockError when another thread has the task."""
        if self._is_open:
            return
        if not self._directory.lock(self.task_id, self._owner):
            holder = self._directory.owner_of(self.task_id)
            raise LockError(f"task {self.task_id} is still held by {holder}", task_id=self.task_id)
        try:
            self._open_stores(self._prepare())
            self._learn_positions()
        except BaseException:
            self._close_stores()
            self._directory.unlock(self.task_id, self._owner)
            raise
        self._is_open = True

    def _prepare(self) -> str | None:
        """The task's directory, when any store is persistent."""
        on_disk = self._kept_as and self._directory.is_persistent
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
            from streams_py.state.disk.layouts import set_changed_aside
            from streams_py.state.tasks.initial_state import database_of  # not loaded without persistent stores

            self._database = database_of(self.task_id, path, self._kept_as, self._snapshots)
            set_changed_aside(self._database, [self._builders[name] for name in self._kept_as], self._changelogs_of)
        nobody = RecordContext()
        for name, builder in self._builders.items():
            self._stores[name] = open_store(
                builder,
                application_id=self._application_id,
                context=nobody,
                defaults=self._defaults,
                disk=None if self._database is None else self._database.store,
                cache=self._cache,
                task_id=self.task_id,
                directory=self._own_directory(name),
            )
            self._measured.watch(name, self._stores[name])
            own = own_store(self._stores[name])
            if own is not None:
                self._own[name] = own

    def _topic_files(self) -> dict[str, str]:
        """By topic: where its id is kept, for stores of the user's own that may keep files."""
        places = {name: self._own_directory(name) for name in self._own}
        return {
            changelog.topic: f"{path}.topic"
            for changelog, name in self._store_by_changelog.items()
            if (path := places.get(name)) is not None
        }

    def _own_directory(self, store: str) -> str | None:
        """Where a store of the user's own may keep files; nothing is there unless it makes it."""
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
                if changelog in known:  # and the store's files are gone
                    database.forget([changelog])
                store.clear()
            else:
                self._offsets[changelog] = offset
        self._committed = dict(self._offsets)
        self._checkpoint.begin(self._offsets)
        for name, own in self._own.items():
            offset, changelogs = own.committed_offset(), self._changelogs_of(name)
            if offset is None:
                own.clear()
            self._offsets.update({changelog: offset for changelog in changelogs if offset is not None})

    def attach(self, record: RecordContext, changelog_writer: Callable[[str, int], ChangeLog] | None) -> None:
        """From now on stores log with this context through these writers; None: nobody writes (standby)."""
        self.end_loading()  # a copy is read, too
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
                self._snapshots.opened(self.task_id, self._database, self._kept_as, logs)

    def close(self, *, wipe: bool = False) -> None:
        """Close the stores and unlock; ``wipe``: delete everything of the task. What is not committed is dropped.

        Goes on after an error, and raises the first one at the end.
        """
        if not self._is_open:
            return
        self._is_open = False
        errors = self._close_stores()
        damage, self._damage = self._damage, None
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
        """Whether this error is about damaged files of this task. Then :meth:`close` sets its database aside."""
        if self._database is None or self._database.place.is_gone:
            return False
        from streams_py.state.tasks.initial_state import is_damage_in

        if is_damage_in(self._database.path, error):
            self._damage = error
        return self._damage is error

    def close_files_aside(self) -> bool:
        """Begin :meth:`close` with what takes time, while others go on. To be asked again until it is True, which
        raises what went wrong; the task stays locked until it is closed."""
        return self._database is None or self._database.close_aside()

    def _close_stores(self) -> list[StateError]:
        errors: list[StateError] = []
        if self._snapshots is not None:
            self._snapshots.closing(self.task_id)
        closing: list[Callable[[], None]] = [store.close for store in self._stores.values()]
        if self._database is not None:
            closing.append(self._database.close)
            with contextlib.suppress(OSError):  # of a directory that was deleted, say
                os.utime(self._directory.task_path(self.task_id))  # needed until now, not until its last file
        for close in closing:
            try:
                close()
            except (Exception, SystemExit) as error:  # a store of the user's own may do anything
                _logger.warning("task %s: closing its stores: %s", self.task_id, text_of(error))
                errors.append(
                    StateError(f"closing the stores of task {self.task_id}: {text_of(error)}", task_id=self.task_id)
                )
        self._stores, self._own, self._database = {}, {}, None
        self._topics.use(None)
        self._offsets, self._committed = {}, {}
        self.inputs.use(None)
        return errors

    # -- restoration -------------------------------------------------------------------------------------------

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """False when the position is in another topic than the one with this id, which the topic has before anything is
        restored from it. None, or a position from before ids were noted: it is believed."""
        store = self._store_by_changelog[changelog]
        on_disk = self._database is not None and self._stores[store].persistent
        return topic_id is None or self._topics.is_of(
            changelog, topic_id, store=store, position_known=changelog in self._offsets, on_disk=on_disk
        )

    def changelog_replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None) -> None:
        """A changelog has this id while the task runs. After another id, the next restore replays all of it."""
        store = self._store_by_changelog[changelog]
        if not self._topics.replaced(changelog, topic_id, acked, store=store):
            return
        self._offsets[changelog] = _BEFORE_ALL
        if self._database is not None and self._stores[store].persistent:
            self._committed[changelog] = _BEFORE_ALL
            self._database.note_topic_ids({changelog.topic: topic_id}, {changelog: _BEFORE_ALL})

    def restore_position(self, changelog: TopicPartition) -> int:
        """Offset of the next record to restore, or BEGINNING."""
        offset = self._offsets.get(changelog)
        return BEGINNING if offset is None else offset + 1

    def restore(
        self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False, last: int | None = None
    ) -> None:
        """Apply records of a changelog, in offset order, past caches and logs. ``in_bulk``: nobody needs them before
        :meth:`flush_restored`; of many, a killed process restores the last ones again. ``last``: offset of the last
        record that was read, when records were left out."""
        if not records and last is None:
            return
        name = self._store_by_changelog[changelog]
        store = self._stores[name]
        end = {changelog: records[-1].offset() if last is None else last}
        if isinstance(store, SuppressionBuffer | OwnStore):
            store.restore_records(records)
        elif self._database is not None and store.persistent:
            was_logged = self._database.is_logged
            load = partial(store.restore, changelog_entries(records))
            self._database.restore(load, end, in_bulk=max(1, len(records)) if in_bulk else 0)
            if was_logged and not self._database.is_logged:
                self._logged = dict(self._committed)
            self._committed.update(end)
        else:
            store.restore(changelog_entries(records))
        self._offsets.update(end)
        if name in self._own:
            self._commit_own()

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Where files for :meth:`take_in` go, and whether their values are stamped; None when the store takes none."""
        if self._database is None:
            return None
        from streams_py.state.disk.sorted_files import place_of

        builder = self._builders[self._store_by_changelog[changelog]]
        return place_of(builder, self._directory.task_path(self.task_id)) if builder.name in self._kept_as else None

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Have what sorted files contain, behind all that was restored; without a last offset the position stays."""
        if self._database is None:
            return
        end, store = {} if part.last is None else {changelog: part.last}, self._store_by_changelog[changelog]
        self._stores[store].clear_cache()
        self._database.take_in(store, part.files, end)
        self._committed, self._offsets = self._committed | end, self._offsets | end

    @property
    def awaits_disk(self) -> bool:
        """True while the disk has to catch up before more is restored in bulk."""
        database = self._database  # a task that was taken away is closed meanwhile
        return database is not None and database.is_behind

    def flush_restored(self) -> bool:
        """Bring to the disk what was restored in bulk; to be asked again until it is True. Any thread may."""
        database = self._database
        return database is None or database.settle_aside()

    def end_loading(self) -> None:
        """All is restored: be open for reading and writing."""
        if self._database is not None:
            self._database.end_loading()

    # -- committing --------------------------------------------------------------------------------------------

    def flush_caches(self, order: Iterable[str]) -> None:
        """Write and forward what the record caches of these stores hold, until nothing is dirty any more."""
        flush_until_clean([self._stores[name] for name in order])

    def clear_caches(self) -> None:
        """Forget what the caches hold."""
        for store in self._stores.values():
            store.clear_cache()

    def update_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Newer last offsets of changelogs; those of other tasks are left out. An older one is ignored: it is what this
        thread wrote before the task went away and came back. When the ones after it are older too, the changelog has
        begun anew under this task. That of a source topic is taken as it is: a group whose offsets were reset reads it
        again, and its store contains more."""
        for changelog, offset in offsets.items():
            store = self._store_by_changelog.get(changelog)
            if store is None or self._topics.is_ambiguous(changelog, offset):
                continue
            at = self._offsets.get(changelog, offset)
            is_input = self._builders[store].source_topic is not None
            if is_input or self._topics.begins_anew(changelog, at, offset, store=store):
                self._offsets[changelog] = offset  # all that was written to it is in the store
            else:
                self._offsets[changelog] = max(offset, at)

    @property
    def uncommitted_bytes(self) -> int:  # of the stores on disk, about
        return 0 if self._database is None else self._database.uncommitted_bytes

    def commit(self, inputs: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """What was written, and the offsets, are the committed state from now on, also after a crash. To be called
        when the group has the offsets, those of ``inputs`` among them, or the transaction is committed."""
        self._commit_own()
        if self._database is None:
            return
        moved = {
            changelog: offset
            for changelog in self._persistent_changelogs()
            if (offset := self._offsets.get(changelog)) is not None and offset != self._committed.get(changelog)
        }
        told = self.inputs.news(inputs)
        if self._database.commit(moved, told):
            self.inputs.note(told)
        self._committed.update(moved)

    def _commit_own(self) -> None:
        for name, own in self._own.items():
            changelog = next(iter(self._changelogs_of(name)), None)
            own.commit(None if changelog is None else self._offsets.get(changelog))

    def roll_back(self) -> None:
        """Drop what was written since the last commit, in caches and on its way to disk, and what is known of it: a
        commit that failed may have moved the offsets already."""
        self.clear_caches()
        if self._database is not None:
            self._database.end_loading()  # what is restored from here on is another restoration
            self._database.roll_back()
            ahead = set(self._persistent_changelogs()) - self._committed.keys()
            self._offsets = {changelog: at for changelog, at in self._offsets.items() if changelog not in ahead}
            self._offsets |= self._committed
            for store in self._stores.values():
                if isinstance(store, WindowedEntries) and store.persistent:
                    store.roll_back()

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """The stores of these cannot be trusted: they are emptied when the task opens next, and restored from the
        beginning."""
        for changelog in changelogs:
            self._offsets.pop(changelog, None)
            self._committed.pop(changelog, None)
        if self._database is not None:
            self._database.forget(changelogs)
        self.inputs.use(self._database)
        for changelog in changelogs:
            self._topics.forget(changelog)
            own = self._own.get(self._store_by_changelog.get(changelog, ""))
            if own is not None:
                own.clear()
                own.commit(None)
        self.checkpoint(enforce=True)

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file, if enforced or when positions moved far enough. Failing to is only a warning:
        nothing is restored from it."""
        if not self._is_open or self._database is None:
            return
        if not (enforce or self._checkpoint.is_due(self._committed)) or self._database.place.is_gone:
            return
        known = self._committed if self._database.is_logged else self._logged
        reached = {changelog: known.get(changelog, _BEFORE_ALL) for changelog in self._persistent_changelogs()}
        offsets = {at: OFFSET_UNKNOWN if offset == _BEFORE_ALL else offset for at, offset in reached.items()}
        try:
            self._checkpoint.write(self._directory.task_path(self.task_id), offsets)
        except OSError as error:
            _logger.warning("task %s: cannot write its checkpoint, going on without: %s", self.task_id, error)
