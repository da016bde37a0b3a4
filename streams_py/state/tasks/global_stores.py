"""The global stores of a client: opening, filling and closing them, and their positions.

The topic of a global store serves as its changelog, with all of its partitions. A position here is the offset of the
*next* record of a partition. The database stores positions together with the data, and ``global/.py-checkpoint`` below
``state.dir`` has a copy for tools. Changes are not logged, and nothing is committed to a group (Kafka Streams'
``GlobalStateManagerImpl``).

Many records of a global table are restored like records of a task: bypassing the write-ahead log, each batch together
with the position that the store reaches with it. So a killed process leaves an earlier position with the data that
belongs to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from streams_protocol.types import TopicPartition
from streams_py.errors import IllegalStateError, StateError, UnknownStateStoreError
from streams_py.ports import BEGINNING, RawRecord, SortedPart
from streams_py.state.custom.store_adapter import as_used, custom_store_of
from streams_py.state.directory.checkpoint import write_checkpoint
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.metrics.measured_stores import MeasuredStores, Measuring
from streams_py.state.opening.stores import Store, StoreDefaults, is_persistent, open_store
from streams_py.state.stores.changelog_entries import changelog_entries
from streams_py.state.stores.key_value import ChangeLog
from streams_py.state.tasks.committed_inputs import CommittedInputs
from streams_py.topology.declare.custom_stores import CustomStateStore
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.physical.assembly import GlobalStore

if TYPE_CHECKING:
    from streams_py.state.disk.bulk_load import BulkLoad
    from streams_py.state.disk.database import TaskDatabase

_CHECKPOINT_EVERY_RECORDS = 10_000

_log = logging.getLogger(__name__)


class GlobalStores:
    """All global stores of a client. One thread writes, any thread reads. Implements ``TaskStores``."""

    def __init__(
        self,
        stores: Mapping[str, tuple[GlobalStore, str]],
        *,
        application_id: str,
        directory: StateDirectory,
        defaults: StoreDefaults,
        measuring: Measuring | None = None,
    ) -> None:
        """Create closed stores. ``stores``: name -> (declaration, topic)."""
        self._declared = dict(stores)
        self._application_id = application_id
        self._directory = directory
        self._defaults = defaults
        self._measured = MeasuredStores({name: of.builder for name, (of, _) in stores.items()}, measuring)
        self._stores: dict[str, Store] = {}
        self._database: TaskDatabase | None = None
        self._bulk: BulkLoad | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        """The positions in the database."""
        self._topic_ids: dict[str, str] = {}
        self._checkpointed: dict[TopicPartition, int] = {}
        self.inputs = CommittedInputs()
        """Empty: no consumer group reads the topics of global stores."""
        self.is_open = False

    # -- implementation of TaskStores --------------------------------------------------------------------------

    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]:
        """Empty: the topics of global stores are not changelogs of a task."""
        return frozenset()

    source_changelogs = changelog_partitions

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """Empty: a global store is filled from its topic, and has no changelog."""
        return {}

    def attach(self, record: RecordContext, changelog_writer: Callable[[str, int], ChangeLog] | None) -> None:
        """Use this record context from now on. Nothing is logged."""
        self.end_loading()
        self._measured.attach(record)
        for store in self._stores.values():
            store.rebind(log=None, context=record)

    def store(self, name: str) -> Store | CustomStateStore:
        """Return an open store.

        Raises:
            UnknownStateStoreError: No global store with this name is open.
        """
        found = self._stores.get(name)
        if found is None:
            raise UnknownStateStoreError(
                f"global store {name!r} is not open, or does not exist; declared: {sorted(self._declared)}"
            )
        return as_used(found)

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """Return True: global stores have no changelogs. See :meth:`use_topics`."""
        return True

    def changelog_replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None) -> None:
        """Do nothing: global stores have no changelogs."""

    def recreated_topics(self, ids: Mapping[str, str | None]) -> dict[str, tuple[str, str]]:
        """Return the topics that were deleted and created again since a store was filled from them.

        A topic whose old or new id is unknown is not included.

        Args:
            ids: Topic -> current id; None: unknown.

        Returns:
            Topic -> (old id, new id).
        """
        filled = {partition.topic for partition in self._positions}
        both = {topic: (self._topic_ids.get(topic), now) for topic, now in ids.items() if topic in filled}
        return {topic: (before, now) for topic, (before, now) in both.items() if before and now and now != before}

    def use_topics(self, ids: Mapping[str, str | None]) -> None:
        """Store the current ids of the topics, before anything is read. Stores of recreated topics are emptied."""
        known = self._topic_ids
        for topic, (before, now) in self.recreated_topics(ids).items():
            self._empty(topic, [partition for partition in self._positions if partition.topic == topic], before, now)
        self._topic_ids = known | {topic: now for topic, now in ids.items() if now is not None}
        if self._database is not None and self._topic_ids != known:
            self._database.note_topic_ids(self._topic_ids)

    def _empty(self, topic: str, stale: Collection[TopicPartition], before: str, now: str) -> None:
        names = [name for name, (_, of) in self._declared.items() if of == topic]
        _log.warning(
            "topic %s was deleted and created again since global store %s was filled from it (its id was %s and is "
            "%s): emptying the store and filling it from the new topic",
            topic,
            ", ".join(names),
            before,
            now,
        )
        if self._database is not None:
            self._database.forget(stale)
        self._positions = {p: offset for p, offset in self._positions.items() if p.topic != topic}
        self._written = {p: offset for p, offset in self._written.items() if p.topic != topic}
        for name in names:
            self._stores[name].clear()

    def restore_position(self, changelog: TopicPartition) -> int:
        """Return the offset of the next record to restore, or BEGINNING."""
        return self._positions.get(changelog, BEGINNING)

    def restore(
        self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False, last: int | None = None
    ) -> None:
        """Write records of a global table's topic to its store.

        Args:
            changelog: The partition that the records are from.
            records: The records. All must have the same class.
            in_bulk: Whether to store the position reached with them too. The records need not be on disk before
                :meth:`flush_restored` has returned True.
            last: Offset of the last record that was read, if records at the end were left out.
        """
        entries = changelog_entries(records)
        stores: list[Any] = [
            self._stores[name]
            for name, (declared, topic) in self._declared.items()
            if topic == changelog.topic and declared.is_table
        ]
        on_disk = [store for store in stores if self._database is not None and store.persistent]
        for store in stores:
            if store not in on_disk:
                store.restore(entries)
        if self._bulk is None or not on_disk:
            return

        def load() -> None:
            for store in on_disk:
                store.restore(entries)

        end = {changelog: (records[-1].offset() if last is None else last) + 1} if in_bulk else {}
        self._bulk.restore(load, end, in_bulk=max(1, len(records)) if in_bulk else 0)
        self._positions = self._positions | end
        self._written |= end

    def sorted_files(self, changelog: TopicPartition) -> None:
        """Return None: global stores cannot ingest files, because one thread fills them."""

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Raise IllegalStateError. No caller creates files, because :meth:`sorted_files` returns None."""
        raise IllegalStateError(f"global store {self.store_of(changelog)!r} cannot ingest files")

    @property
    def awaits_disk(self) -> bool:
        """Whether a bulk restore has to pause until the disk has caught up."""
        return self._bulk is not None and self._bulk.is_behind

    def flush_restored(self) -> bool:
        """Flush records restored in bulk to disk, in the background; return whether this has finished.

        The caller calls this again until it returns True.
        """
        return self._database is None or self._database.flush_in_background()

    def end_loading(self) -> None:
        """End a bulk restore, and open the database for reading and writing."""
        if self._bulk is not None:
            self._bulk.end_loading()

    def store_of(self, changelog: TopicPartition) -> str:
        """Return the name of the store that a topic fills."""
        return next(name for name, (_, topic) in self._declared.items() if topic == changelog.topic)

    def flush_caches(self, order: Iterable[str]) -> None:
        """Do nothing: global stores have no caches."""

    def clear_caches(self) -> None:
        """Do nothing: global stores have no caches."""

    def update_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Do nothing: nothing is produced."""

    def note_damage(self, error: StateError) -> bool:
        """Return whether an error reports damaged files. If so, :meth:`close` sets the database aside."""
        return self._database is not None and self._database.note_failure(error)

    @property
    def damage(self) -> StateError | None:
        """The first error that reported damaged files, on any thread. Thread-safe."""
        database = self._database
        return None if database is None else database.damage

    # -- life --------------------------------------------------------------------------------------------------

    @property
    def stores(self) -> Mapping[str, Store | CustomStateStore]:
        """The open stores by name."""
        opened = self._stores.copy()  # another thread may close them meanwhile
        return {name: as_used(store) for name, store in opened.items()}

    def open(self) -> None:
        """Open all stores and read their positions.

        Raises:
            LockError: The id of the cluster is not known yet.
        """
        on_disk = [
            name for name, (declared, _) in self._declared.items() if is_persistent(declared.builder, self._defaults)
        ]
        if on_disk and self._directory.is_persistent:
            from streams_py.state.disk.bulk_load import BulkLoad
            from streams_py.state.disk.layouts import set_changed_aside
            from streams_py.state.tasks.initial_state import undamaged_database  # not loaded without persistent stores

            path = self._directory.prepare_global()
            self._database = database = undamaged_database("global stores: their", path, on_disk, "their topics")
            self._bulk = BulkLoad(self._database)
            topic_of = {name: topic for name, (_, topic) in self._declared.items()}
            set_changed_aside(
                database,
                [self._declared[name][0].builder for name in on_disk],
                lambda name: [partition for partition in database.positions() if partition.topic == topic_of[name]],
            )
            self._positions = self._checkpointed = self._known_positions(self._database)
            self._topic_ids = self._database.topic_ids()
        for name, (declared, topic) in self._declared.items():
            store = self._stores[name] = open_store(
                declared.builder,
                application_id=self._application_id,
                context=RecordContext(),
                defaults=self._defaults,
                disk=None if self._database is None else self._database.store,
            )
            self._measured.watch(name, store)
            custom = custom_store_of(store)
            if custom is not None:
                custom.clear()
            if not store.persistent or all(partition.topic != topic for partition in self._positions):
                self._positions = {p: offset for p, offset in self._positions.items() if p.topic != topic}
                if store.persistent:
                    store.clear()
        self._written = dict(self._positions)
        self.is_open = True

    def _known_positions(self, database: TaskDatabase) -> dict[TopicPartition, int]:
        found = {topic for name, (_, topic) in self._declared.items() if name in database.found_stores}
        positions = database.positions()
        gone = [partition for partition in positions if partition.topic not in found]
        if gone:
            database.forget(gone)
        return {partition: offset for partition, offset in positions.items() if partition.topic in found}

    def note_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """Set and commit positions. All records before these offsets must be in the stores."""
        self._positions = {**self._positions, **positions}
        self.commit()

    def commit(self, inputs: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Write uncommitted changes and the positions to disk."""
        if self._database is not None:
            persistent = {topic for name, (_, topic) in self._declared.items() if self._stores[name].persistent}
            positions = {p: offset for p, offset in self._positions.items() if p.topic in persistent}
            moved = dict(positions.items() - self._written.items())
            self._database.commit(moved)
            self._written |= moved

    def roll_back(self) -> None:
        """Do nothing: records processed into a global store are never rolled back."""

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """Do nothing: global stores have no changelogs."""

    uncommitted_bytes = 0

    def cache_metrics(self) -> Iterator[tuple[str, float, Mapping[str, float]]]:
        """Yield nothing: global stores have no caches."""
        return iter(())

    def store_metrics(self, seconds: float) -> Iterator[tuple[str, str, Mapping[str, float]]]:
        """Yield Kafka's tag, the name and the metrics of each open store. Thread-safe.

        ``seconds``: the time for which operations were counted, to compute rates.
        """
        return self._measured.metrics(self._stores, self._database, self._defaults, seconds)

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file for tools, if positions have moved far enough or if ``enforce``."""
        if self._database is None or not self._database.is_logged:  # after a crash, positions could be lower again
            return
        positions = self._positions
        moved = sum(offset - self._checkpointed.get(partition, 0) for partition, offset in positions.items())
        if (not enforce and moved <= _CHECKPOINT_EVERY_RECORDS) or self._database.location.is_gone:
            return
        try:
            write_checkpoint(self._directory.global_path, positions)
        except OSError as error:
            _log.warning("cannot write the checkpoint of the global stores, continuing without it: %s", error)
            return
        self._checkpointed = positions

    def close_files_aside(self) -> bool:
        """Start the slow part of :meth:`close` in the background; return whether it has finished.

        The caller calls this again until it returns True.
        """
        return self._database is None or self._database.close_in_background()

    def close(self, *, wipe: bool = False) -> None:
        """Close all stores.

        Everything is closed even after an error, because a database that stays open could not be opened again. The
        first error is raised at the end.

        Args:
            wipe: Whether to delete the files of the stores.
        """
        self.is_open = False
        damage = self.damage
        closing: list[Callable[[], None]] = [store.close for store in self._stores.values()]
        if self._database is not None:
            closing.append(self._database.close)
        if damage is not None:
            from streams_py.state.tasks.initial_state import set_damaged_global_aside

            closing.append(partial(set_damaged_global_aside, self._directory.global_path, damage))
        if wipe:
            closing.append(self._directory.wipe_global)
        self._stores = {}
        self._database = self._bulk = None
        errors: list[Exception] = []
        for close in closing:
            try:
                close()
            except (Exception, SystemExit) as error:  # a custom store may raise anything
                _log.warning("closing the global stores failed: %s: %s", type(error).__name__, error)
                errors.append(error if isinstance(error, Exception) else StateError(f"SystemExit: {error}"))
        if errors:
            raise errors[0]
