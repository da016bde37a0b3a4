"""Creates the stream threads of one client, and the parts of each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from streams_py.config.client_keys import ClientRole
from streams_py.errors import IllegalStateError
from streams_py.events.observers import RestoreObserver, TaskObserver
from streams_py.ports import Admin, RecordConsumer, RecordProducer, TransactionalProducer
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.runtime.commit.start_positions import StartPositions, reset_policy
from streams_py.runtime.restore.listener import RestoreEventsListener
from streams_py.runtime.restore.parallel_restore import ParallelRestore
from streams_py.runtime.restore.settings import RestoreListeners
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.asynchronous.event_loop import Background
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.task_factory import TaskFactory
from streams_py.runtime.tasks.task_table import TaskTable
from streams_py.runtime.thread.key_placement import KeyPlacement
from streams_py.runtime.thread.latest_resets import LatestResets
from streams_py.runtime.thread.loop import StreamLoop
from streams_py.runtime.thread.parts import ThreadParts
from streams_py.runtime.thread.settings import LoopSettings
from streams_py.runtime.thread.states import ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread, ThreadOwner
from streams_py.runtime.thread.topic_changes import TopicChanges
from streams_py.runtime.wiring.group_side import ThreadReport, ThreadSignals
from streams_py.runtime.wiring.shared import SharedResources
from streams_py.state.caching.cache import RecordCache
from streams_py.state.reading.write_protected import write_protected
from streams_py.state.tasks.task_stores import StoreEnvironment
from streams_py.topology.declare.nodes import SourceNode


class StreamThreadFactory:
    """Creates the stream threads of one client.

    Args:
        global_stores: Returns the restored global stores by name.
    """

    def __init__(self, shared: SharedResources, global_stores: Callable[[], Mapping[str, Any]]) -> None:
        self._shared = shared
        self._global_stores = global_stores
        config = shared.config
        self._loop_settings = LoopSettings.from_config(config)
        self._default_policy = reset_policy(config.setting_for(ClientRole.MAIN_CONSUMER, "auto.offset.reset"))
        self._known_commits = KnownCommits()
        self._key_placement = KeyPlacement(shared.subtopologies, shared.metadata, shared.store_defaults.key_serde)
        self._changelogs = {topic for sub in shared.metadata.subtopologies.values() for topic in sub.changelogs}
        self._repartition_topics = frozenset(
            topic for sub in shared.metadata.subtopologies.values() for topic in sub.repartition_sources
        )
        self._cache_bytes = config.statestore_cache_max_bytes
        self._caches: dict[StreamThread, RecordCache] = {}

    def new_thread(self, index: int, owner: ThreadOwner) -> StreamThread:
        """Return a new stream thread, not started yet."""
        return StreamThread(
            f"{self._shared.client_id}-StreamThread-{index}",
            index,
            clock=self._shared.clock,
            open_loop=self._open_loop,
            owner=owner,
        )

    def share_cache(self, threads: int) -> None:
        """Split ``statestore.cache.max.bytes`` among this many stream threads and the global thread, if any."""
        threads += bool(self._shared.topology.global_topics)
        self._cache_bytes = self._shared.config.statestore_cache_max_bytes // max(1, threads)
        for thread, cache in list(self._caches.items()):
            if thread.state is ThreadState.DEAD:
                del self._caches[thread]
            else:
                cache.max_bytes = self._cache_bytes  # the thread evicts records at its next write

    # -- on the new thread -----------------------------------------------------------------------------------

    def _open_loop(self, thread: StreamThread) -> StreamLoop:
        """Create a thread's loop and its parts."""
        with contextlib.ExitStack() as opened:
            parts = self._open_parts(thread, opened)
            loop = StreamLoop(
                thread.name, parts, inbox=thread.inbox, control=thread.control, settings=self._loop_settings
            )
            opened.pop_all()  # from here on, the thread closes them
        return loop

    def _open_parts(self, thread: StreamThread, opened: contextlib.ExitStack) -> ThreadParts:
        shared = self._shared
        if (admin := shared.admin) is None or (group := shared.group) is None:
            raise IllegalStateError("the client is not open")
        updater = self._updater(thread, admin)
        consumer = shared.clients.main_consumer(thread.name)
        opened.callback(consumer.close)
        transactions, settle = self._transactions(thread, updater)
        producer = transactions or shared.clients.producer(thread.name)
        opened.callback(producer.close)
        producer.blocked = thread.control.blocked
        cache = RecordCache(self._cache_bytes, shared.clock.monotonic_ms)
        background = Background(shared.event_loop)
        events = shared.events.tasks(thread.identity)
        stores = StoreEnvironment(shared.directory, thread.name, shared.store_defaults, cache, shared.snapshots)
        table = self._table(stores, updater, consumer, producer, background, events)
        producer.track(self._changelogs)
        self._caches[thread] = cache
        start_positions = self._start_positions()
        return ThreadParts(
            consumer=consumer,
            producer=producer,
            transactions=transactions,
            settle_transactions=settle,
            transport=group.open(
                thread.name,
                thread.index,
                thread.inbox,
                ThreadSignals(thread, producer, shared.hosts),
                ThreadReport(thread.name, table, updater, shared.directory),
            ),
            updater=updater,
            table=table,
            start_positions=start_positions,
            topic_changes=self._topic_changes(start_positions),
            latest_resets=LatestResets(thread.name, shared.config.application_id, admin),
            known_commits=self._known_commits,
            repartition_topics=self._repartition_topics,
            key_placement=self._key_placement,
            admin=admin,
            events=events,
            clock=shared.clock,
            background=background,
            cache=cache,
            release_locks=lambda: shared.directory.unlock_except(thread.name, table.holding()),
        )

    def _updater(self, thread: StreamThread, admin: Admin) -> StateUpdater:
        shared = self._shared
        restores = self._restore_observer(thread)
        listener = RestoreEventsListener(restores, shared.restore_listener)
        return StateUpdater(
            f"{shared.client_id}-StateUpdater-{thread.index}",
            lambda: shared.clients.restore_consumer(thread.name),
            admin,
            shared.clock,
            shared.restore_settings,
            RestoreListeners(listener, shared.standby_listener, restores.warm),
            parallel=ParallelRestore(lambda: shared.clients.changelog_sorter(thread.name), shared.clock),
        )

    def _restore_observer(self, thread: StreamThread) -> RestoreObserver:
        subtopology_of = {
            topic: number
            for number, sub in self._shared.metadata.subtopologies.items()
            for topic in (*sub.changelogs, *sub.source_changelogs)
        }
        return self._shared.events.restores(thread.identity, subtopology_of)

    def _transactions(
        self, thread: StreamThread, updater: StateUpdater
    ) -> tuple[TransactionalProducer | None, Callable[[], None]]:
        """Return a thread's producer under exactly-once, and the call that must precede its first transaction."""
        shared = self._shared
        if (others := shared.open_transactions) is None:
            return None, lambda: None
        transactional_id = f"{shared.config.application_id}-{shared.process_id}-{thread.index}"
        others.watch(updater)
        producer = shared.clients.transactional_producer(thread.name, transactional_id)
        return producer, lambda: others.settle(transactional_id)

    def _table(
        self,
        stores: StoreEnvironment,
        updater: StateUpdater,
        consumer: RecordConsumer,
        producer: RecordProducer,
        background: Background,
        events: TaskObserver,
    ) -> TaskTable:
        shared = self._shared
        global_stores = {name: write_protected(store) for name, store in self._global_stores().items()}
        factory = TaskFactory(
            subtopologies=shared.subtopologies,
            settings=shared.task_settings,
            stores=stores,
            consumer=consumer,
            producer=producer,
            shared=SharedServices(clock=shared.clock, global_stores=global_stores, background=background),
            sharing=lambda: [task.id for task in table.running()],
        )
        table = TaskTable(factory, updater, shared.clock, events=events)
        return table

    def _start_positions(self) -> StartPositions:
        sources = [node for node in self._shared.topology.nodes if isinstance(node, SourceNode)]
        return StartPositions(self._shared.config.application_id, sources, self._default_policy)

    def _topic_changes(self, start_positions: StartPositions) -> TopicChanges:
        shared = self._shared
        return TopicChanges(
            shared.topic_ids,
            self._known_commits,
            start_positions,
            shared.clock,
            internal=self._repartition_topics,
            continues=shared.config.recreated_internal_topics == "continue",
        )
