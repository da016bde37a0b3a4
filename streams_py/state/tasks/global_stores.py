"""The global stores of a client: opening and closing them, and how far into their topics they are.

Their topics are their changelogs, all partitions of them, so positions are those of the topics: offsets of the next
record. They are in the database beside the data; a copy for tools is in ``global/.py-checkpoint`` below ``state.dir``.
Nothing is logged, and nothing is committed to a group (Kafka Streams' ``GlobalStateManagerImpl``). Many records of a
global table are restored as those of a task are: past the write-ahead log, each batch with the position it brings the
store to, so that a killed process finds an earlier position with the data that belong to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from streams_protocol.types import TopicPartition
from streams_py.errors import IllegalStateError, StateError, UnknownStateStoreError
from streams_py.ports import BEGINNING, RawRecord, SortedPart
from streams_py.state.custom.own_store import as_used, own_store
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
    from streams_py.state.disk.database import TaskDatabase

__all__ = ["GlobalStores"]

_CHECKPOINT_EVERY_RECORDS = 10_000

_log = logging.getLogger(__name__)


class GlobalStores:
    """All global stores of a client. Satisfies the runtime's ``TaskStores``; written by one thread, read by all."""

    def __init__(
        self,
        stores: Mapping[str, tuple[GlobalStore, str]],
        *,
        application_id: str,
        directory: StateDirectory,
        defaults: StoreDefaults,
        measuring: Measuring | None = None,
    ) -> None:
        """``stores``: name -> declaration and topic."""
        self._declared = dict(stores)
        self._application_id = application_id
        self._directory = directory
        self._defaults = defaults
        self._measured = MeasuredStores({name: of.builder for name, (of, _) in stores.items()}, measuring)
        self._stores: dict[str, Store] = {}
        self._database: TaskDatabase | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        """Those that are in the database."""
        self._topic_ids: dict[str, str] = {}
        self._checkpointed: dict[TopicPartition, int] = {}
        self.inputs = CommittedInputs()
        """Nothing: no group reads their topics."""
        self.is_open = False

    # -- what tasks ask of stores ------------------------------------------------------------------------------

    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]:
        """None: their topics are no changelogs of a task."""
        return frozenset()

    source_changelogs = changelog_partitions

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """Empty: a global store is filled from its topic, and has no changelog."""
        return {}

    def attach(self, record: RecordContext, changelog_writer: Callable[[str, int], ChangeLog] | None) -> None:
        """From now on stores are written within this context."""
        self.end_loading()
        self._measured.attach(record)
        for store in self._stores.values():
            store.rebind(log=None, context=record)

    def store(self, name: str) -> Store | CustomStateStore:
        """An open store."""
        found = self._stores.get(name)
        if found is None:
            raise UnknownStateStoreError(f"there is no open global store {name!r}; declared: {sorted(self._declared)}")
        return as_used(found)

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """They have no changelogs of their own: :meth:`use_topics`."""
        return True

    def changelog_replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None) -> None:
        """They have no changelogs of their own."""

    def created_anew(self, ids: Mapping[str, str | None]) -> dict[str, tuple[str, str]]:
        """The topics that a store was filled from and that are others by now, though of the same name: the id before,
        and the one that they have of ``ids``. None, or a position from before ids were noted: it is believed."""
        filled = {partition.topic for partition in self._positions}
        both = {topic: (self._topic_ids.get(topic), now) for topic, now in ids.items() if topic in filled}
        return {topic: (before, now) for topic, (before, now) in both.items() if before and now and now != before}

    def use_topics(self, ids: Mapping[str, str | None]) -> None:
        """The ids that the topics have now, before anything is read: stores of :meth:`created_anew` are emptied."""
        known = self._topic_ids
        for topic, (before, now) in self.created_anew(ids).items():
            self._empty(topic, [partition for partition in self._positions if partition.topic == topic], before, now)
        self._topic_ids = known | {topic: now for topic, now in ids.items() if now is not None}
        if self._database is not None and self._topic_ids != known:
            self._database.note_topic_ids(self._topic_ids)

    def _empty(self, topic: str, stale: Collection[TopicPartition], before: str, now: str) -> None:
        names = [name for name, (_, of) in self._declared.items() if of == topic]
        _log.warning(
            "topic %s was deleted and created anew since global store %s was filled from it (its id was %s and is %s): "
            "the store is emptied and filled from what the topic has now",
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
        """The next offset of a topic, or BEGINNING."""
        return self._positions.get(changelog, BEGINNING)

    def restore(
        self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False, last: int | None = None
    ) -> None:
        """Write records of a global table's topic to its store.

        Args:
            changelog: The partition that the records are from.
            records: The records, of one class.
            in_bulk: With the position that they bring the store to; no reader needs them before :meth:`flush_restored`.
            last: Offset of the last record that was read, if the caller has left out records at the end.
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
        if self._database is None or not on_disk:
            return

        def load() -> None:
            for store in on_disk:
                store.restore(entries)

        end = {changelog: (records[-1].offset() if last is None else last) + 1} if in_bulk else {}
        self._database.restore(load, end, in_bulk=max(1, len(records)) if in_bulk else 0)
        self._positions = self._positions | end
        self._written |= end

    def sorted_files(self, changelog: TopicPartition) -> None:
        """They are filled on one thread."""

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Nobody makes such files of what :meth:`sorted_files` refuses."""
        raise IllegalStateError(f"global store {self.store_of(changelog)!r} takes in no files")

    @property
    def awaits_disk(self) -> bool:
        """True while the disk has to catch up before more is restored in bulk."""
        return self._database is not None and self._database.is_behind

    def flush_restored(self) -> bool:
        """Bring to the disk what was restored in bulk; to be asked again until it is True."""
        return self._database is None or self._database.settle_aside()

    def end_loading(self) -> None:
        """All is restored: be open for reading and writing."""
        if self._database is not None:
            self._database.end_loading()

    def store_of(self, changelog: TopicPartition) -> str:
        """Name of the store that a topic fills."""
        return next(name for name, (_, topic) in self._declared.items() if topic == changelog.topic)

    def flush_caches(self, order: Iterable[str]) -> None:
        """There are none."""

    def clear_caches(self) -> None:
        """There are none."""

    def update_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Nothing is produced."""

    def note_damage(self, error: StateError) -> bool:
        """False: a global store is set aside when it is opened."""
        return False

    # -- life --------------------------------------------------------------------------------------------------

    @property
    def stores(self) -> Mapping[str, Store | CustomStateStore]:
        """The open stores by name."""
        opened = self._stores.copy()  # they may be closed meanwhile
        return {name: as_used(store) for name, store in opened.items()}

    def open(self) -> None:
        """Open all stores and learn their positions. LockError while the cluster has not said who it is."""
        on_disk = [
            name for name, (declared, _) in self._declared.items() if is_persistent(declared.builder, self._defaults)
        ]
        if on_disk and self._directory.is_persistent:
            from streams_py.state.disk.layouts import set_changed_aside
            from streams_py.state.tasks.initial_state import undamaged_database  # not loaded without persistent stores

            path = self._directory.prepare_global()
            self._database = database = undamaged_database("global stores: their", path, on_disk, "their topics")
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
            own = own_store(store)
            if own is not None:
                own.clear()
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
        """Everything below these offsets is in the stores: from now on also after a crash."""
        self._positions = {**self._positions, **positions}
        self.commit()

    def commit(self, inputs: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Write what waits, and the positions, to disk."""
        if self._database is not None:
            persistent = {topic for name, (_, topic) in self._declared.items() if self._stores[name].persistent}
            positions = {p: offset for p, offset in self._positions.items() if p.topic in persistent}
            moved = dict(positions.items() - self._written.items())
            self._database.commit(moved)
            self._written |= moved

    def roll_back(self) -> None:
        """There is nothing to go back to: what a global store has processed stays."""

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """They have no changelogs of their own."""

    uncommitted_bytes = 0

    def cache_figures(self) -> Iterator[tuple[str, float, Mapping[str, float]]]:
        """Nothing: they have no caches."""
        return iter(())

    def store_figures(self, seconds: float) -> Iterator[tuple[str, str, Mapping[str, float]]]:
        """Kafka's tag, name and figures of each open store; those of use are over so many seconds. Thread-safe."""
        return self._measured.figures(self._stores, self._database, self._defaults, seconds)

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file, for tools, if enforced or when positions moved far enough."""
        if self._database is None or not self._database.is_logged:  # nor while a crash could take more away
            return
        positions = self._positions
        moved = sum(offset - self._checkpointed.get(partition, 0) for partition, offset in positions.items())
        if (not enforce and moved <= _CHECKPOINT_EVERY_RECORDS) or self._database.place.is_gone:
            return
        try:
            write_checkpoint(self._directory.global_path, positions)
        except OSError as error:
            _log.warning("cannot write the checkpoint of the global stores, going on without: %s", error)
            return
        self._checkpointed = positions

    def close_files_aside(self) -> bool:
        """Begin :meth:`close` with what takes time; to be asked again until it is True."""
        return self._database is None or self._database.close_aside()

    def close(self, *, wipe: bool = False) -> None:
        """Close all stores; ``wipe``: delete their files. Goes on after an error, and raises the first one at the end:
        a database that stays open could not be opened again."""
        self.is_open = False
        closing: list[Callable[[], None]] = [store.close for store in self._stores.values()]
        if self._database is not None:
            closing.append(self._database.close)
        if wipe:
            closing.append(self._directory.wipe_global)
        self._stores = {}
        self._database = None
        errors: list[Exception] = []
        for close in closing:
            try:
                close()
            except (Exception, SystemExit) as error:  # a store of the user's own may do anything
                _log.warning("closing the global stores: %s: %s", type(error).__name__, error)
                errors.append(error if isinstance(error, Exception) else StateError(f"SystemExit: {error}"))
        if errors:
            raise errors[0]
