"""The resources that all stream threads of one client share, and the construction of a thread's parts.

:class:`~streams_py.runtime.client.kafka_streams.KafkaStreams` has the life cycle. This module has the wiring: identity,
state directory, admin client, settings, and the parts of each new thread.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import cached_property

from streams_protocol.types import ProcessId
from streams_py.config.client_keys import ClientRole
from streams_py.config.endpoint import parse_endpoint
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import IllegalStateError
from streams_py.events.assignment_events import check_event_clients, open_assignment_events
from streams_py.events.observers import InstanceObserver, RestoreObserver
from streams_py.ports import Admin, Clients, Clock, TransactionalProducer
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.runtime.commit.open_transactions import OpenTransactions
from streams_py.runtime.commit.start_positions import StartPositions, reset_policy
from streams_py.runtime.global_thread.global_task import GlobalNodes, GlobalTasks, ProducerOnDemand
from streams_py.runtime.global_thread.global_thread import GlobalThread
from streams_py.runtime.global_thread.progress import GlobalRestore
from streams_py.runtime.global_thread.topics import GlobalTopics
from streams_py.runtime.group.classic.opening import ClassicProtocol, check_assignor
from streams_py.runtime.group.dead_members import DeadMembers
from streams_py.runtime.group.own_members import OwnMembers
from streams_py.runtime.group.timeline import RebalanceListener
from streams_py.runtime.group.transport import GroupProtocol
from streams_py.runtime.queries.hosts import StoreHosts
from streams_py.runtime.restore.listener import RestoreEventsListener, RestoreListener, StandbyUpdateListener
from streams_py.runtime.restore.parallel_restore import Sharing
from streams_py.runtime.restore.settings import RestoreListeners, RestoreSettings
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.asynchronous.event_loop import Background, EventLoop
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.task_factory import TaskFactory
from streams_py.runtime.tasks.task_table import TaskTable
from streams_py.runtime.thread.key_placement import KeyPlacement
from streams_py.runtime.thread.latest_resets import LatestResets
from streams_py.runtime.thread.loop import StreamLoop
from streams_py.runtime.thread.parts import ThreadParts
from streams_py.runtime.thread.settings import LoopSettings
from streams_py.runtime.thread.states import ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread
from streams_py.runtime.thread.topic_changes import TopicChanges
from streams_py.runtime.thread.topic_ids import TopicIds
from streams_py.runtime.wiring.group_side import ThreadReport, ThreadSignals
from streams_py.runtime.wiring.missing_topics import create_missing_topics, warn_of_missing_sinks
from streams_py.runtime.wiring.snapshots import open_snapshots, snapshot_storage
from streams_py.runtime.wiring.state_cleaner import StateCleaner, delete_outdated
from streams_py.serdes import SerdeDefaults
from streams_py.state.caching.cache import RecordCache
from streams_py.state.directory.run_directory import LockedFolder, lock_run_directory, unlock_run_directory
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import Store, StoreDefaults, is_persistent
from streams_py.state.reading.write_protected import write_protected
from streams_py.state.snapshots.snapshots import Snapshots
from streams_py.state.tasks.global_stores import GlobalStores
from streams_py.state.tasks.task_stores import StoreSurroundings
from streams_py.system.freed_memory import FreedMemory
from streams_py.topology.declare.custom_stores import CustomStateStore
from streams_py.topology.declare.nodes import SourceNode
from streams_py.topology.generated_names import check_generated_names
from streams_py.topology.missing_serdes import check_serdes
from streams_py.topology.topology import Topology

_log = logging.getLogger("streams_py")


class ClientResources:
    """Resources that the stream threads of one client share."""

    def __init__(self, topology: Topology, config: StreamsConfig, clients: Clients, clock: Clock) -> None:
        self.config = config
        self.restore_listener = RestoreListener()
        self.standby_listener = StandbyUpdateListener()
        self.rebalance_listeners: list[RebalanceListener] = []
        self.on_stop_application: Callable[[], None] = lambda: None
        check_event_clients(config, clients)
        self._topology = topology
        self._clients = clients
        self._clock = clock
        self._metadata = topology.metadata(config.application_id, config.original)
        self._subtopologies = topology.subtopologies()
        self._task_settings = TaskSettings.from_config(config)
        defaults = SerdeDefaults(self._task_settings.default_key_serde, self._task_settings.default_value_serde)
        check_serdes(topology, defaults)
        check_generated_names(topology, forbidden=config.ensure_explicit_internal_resource_naming)
        self._defaults = StoreDefaults(
            self._task_settings.default_key_serde,
            self._task_settings.default_value_serde,
            self._task_settings.persistent_stores,
        )
        self._loop_settings = LoopSettings.from_config(config)
        self._restore_settings = RestoreSettings.from_config(config)
        self._default_policy = reset_policy(config.setting_for(ClientRole.MAIN_CONSUMER, "auto.offset.reset"))
        check_assignor(config)
        persistent = any(is_persistent(store, self._defaults) for store in topology.stores.values())
        self._snapshot_storage = snapshot_storage(config, persistent=persistent)
        self.directory = StateDirectory(
            config.state_dir,
            config.application_id,
            persistent=persistent,
            name=config.setting_for(ClientRole.MAIN_CONSUMER, "group.instance.id") or config.client_id or None,
            cluster_id=self._cluster_id,
            warns_of_temporary=not config.embedded,  # the embedded cluster is temporary, too
        )
        self.hosts = StoreHosts(topology, config.application_id, parse_endpoint(config.application_server), defaults)
        self._process_id: ProcessId | None = None
        self.admin: Admin | None = None  # set by open()
        self.running_since_ms: int | None = None  # monotonic time of the change to RUNNING; set by the client
        self._cleaner: StateCleaner | None = None
        self._freed_memory: FreedMemory | None = None
        self._open_transactions: OpenTransactions | None = None
        self._known_commits = KnownCommits()
        self.topic_ids = TopicIds(lambda: self.admin, clock)
        self._key_placement = KeyPlacement(self._subtopologies, self._metadata, self._defaults.key_serde)
        self.dead_members = DeadMembers(clients.group_admin, config.application_id)
        self._run_folder: LockedFolder | None = None  # of an instance without persistent stores
        self._own_members: OwnMembers | None = None  # set by open()
        self._snapshots: Snapshots | None = None
        self._events = InstanceObserver()
        self._group: GroupProtocol | None = None  # set by open()
        self._cache_bytes = config.statestore_cache_max_bytes
        self._caches: dict[StreamThread, RecordCache] = {}
        self.global_thread: GlobalThread | None = None
        self._global_producer: ProducerOnDemand | None = None
        self._global_restore_cancelled = False
        self._event_loop = EventLoop(f"{config.client_id or config.application_id}-AsyncCalls")

    @cached_property
    def topology_description(self) -> str:  # cached ``topology.describe()``
        return self._topology.describe()

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """``client.id``, or a name built from the application id and the process id."""
        return self.config.client_id or f"{self.config.application_id}-{self._process_id or 'new'}"

    def check_connection(self) -> None:
        """Raise ConfigError if the cluster rejects the login or the certificates."""
        self._clients.check_connection()

    def open(self) -> None:
        """Lock a state directory, get its process id, and connect the admin client.

        Raises:
            StateError: The state directory cannot be used.
            ConfigError: The cluster rejects the client.
        """
        self.check_connection()
        self._process_id = self.directory.open()
        try:
            delete_outdated(self.directory, self.config.state_cleanup_dir_max_age_ms, self._clock.now_ms())
            self.admin = self._clients.admin()
        except BaseException:
            self.directory.close()
            raise
        if self.config.embedded:
            create_missing_topics(self._metadata, self._topology.global_topics, self.admin)
        else:
            warn_of_missing_sinks(self._topology, self.admin)
            self._own_members = self._put_members_on_record()
        self._cleaner = StateCleaner(
            self.directory, self._clock, self.config.state_cleanup_delay_ms, lambda: self.running_since_ms
        )
        self._freed_memory = FreedMemory()
        self._events = open_assignment_events(
            self.config, self._clients, self.admin, self._clock, process=str(self._process_id), client_id=self.client_id
        )
        self._group = group = ClassicProtocol(
            self._clients,
            self._topology,
            self.config,
            self.admin,
            self._clock,
            self._process_id,
            self._events,
            self.rebalance_listeners,
        )
        if self._own_members is not None:
            group.before_join = self._own_members.joining
        if self.config.exactly_once:
            self._open_transactions = OpenTransactions(
                self._clients.transaction_admin(),
                self.admin,
                self._clock,
                application_id=self.config.application_id,
                topics=self._metadata.topics,
                transaction_timeout_ms=self.config.transaction_timeout_ms,
                members=group.processes,
            )
            self._open_transactions.start()
            self.rebalance_listeners.append(self._open_transactions.check_soon)
        self._snapshots = open_snapshots(self._snapshot_storage, self.config, self.admin)

    def _put_members_on_record(self) -> OwnMembers:
        config = self.config
        if not self.directory.is_persistent and self.has_tasks:
            chosen = config.state_dir if "state_dir" in config.model_fields_set else None
            self._run_folder = lock_run_directory(chosen, config.application_id)
        return OwnMembers(
            lambda: self.directory.locked or self._run_folder,
            config.application_id,
            self._cluster_id,
            self.dead_members,
            instance_id=config.setting_for(ClientRole.MAIN_CONSUMER, "group.instance.id"),
        )

    def _cluster_id(self) -> str | None:
        if self.admin is None:
            raise IllegalStateError("the client is not open")
        return self.admin.cluster_id()

    def close(self) -> None:
        """Close all shared resources. All threads must have stopped."""
        with contextlib.ExitStack() as closing:  # closes each of them, even if closing another one fails
            closing.callback(self.directory.close)
            if self._run_folder is not None:
                closing.callback(unlock_run_directory, self._run_folder)
            if self._own_members is not None:
                closing.callback(self._own_members.close)  # before the locks are released
            closing.callback(self._clients.close)
            if self.admin is not None:
                closing.callback(self.admin.close)
            closing.callback(self._events.close)
            closing.callback(self.topic_ids.stop)
            if self._cleaner is not None:
                closing.callback(self._cleaner.stop)
            if self._freed_memory is not None:
                closing.callback(self._freed_memory.stop)
            if self._group is not None:
                closing.callback(self._group.close)
            if self._open_transactions is not None:
                closing.callback(self._open_transactions.close)
            if self._snapshots is not None:
                closing.callback(self._snapshots.stop)
            closing.callback(self._event_loop.close)
            if self.global_thread is not None and self._global_producer is not None:
                closing.callback(self._global_producer.close)
                closing.callback(self.global_thread.stop)  # added last, so called first

    def clean_up(self) -> None:
        """Delete the application's local state."""
        self.directory.clean_up()

    # -- global stores ---------------------------------------------------------------------------------------

    @property
    def has_tasks(self) -> bool:
        """Whether the topology has more than global stores."""
        return bool(self._metadata.subtopologies)

    @property
    def global_stores(self) -> Mapping[str, Store | CustomStateStore]:
        """The global stores by name; empty while they are being restored."""
        thread = self.global_thread
        return {} if thread is None or not thread.is_restored else thread.stores.stores

    def start_global_thread(self, on_error: Callable[[Exception], None]) -> bool:
        """Restore the global stores, if there are any, then start the thread that follows their topics.

        Args:
            on_error: Called when that thread fails later.

        Returns:
            False if the restoration was cancelled by :meth:`cancel_global_restore`.

        Raises:
            Exception: The error that prevents the restoration.
        """
        topics = self._topology.global_topics
        if not topics or self.admin is None:
            return True
        config, subs = self.config, [sub for sub in self._subtopologies if sub.is_global]
        declared = self._topology.global_stores
        topic_of = {name: topic for topic, name in topics.items()}
        nodes = GlobalNodes(
            [node for sub in subs for node in sub.nodes],
            [store for sub in subs for store in sub.stores],
            {topic: declared[name].builder for topic, name in topics.items() if declared[name].is_table},
        )
        stores = GlobalStores(
            {name: (store, topic_of[name]) for name, store in declared.items()},
            application_id=config.application_id,
            directory=self.directory,
            defaults=self._defaults,
            measuring=self._task_settings.measuring(self._clock),
        )
        name = f"{self.client_id}-GlobalStreamThread"
        self._global_producer = ProducerOnDemand(lambda: self._clients.global_producer(name))
        self.global_thread = GlobalThread(
            name,
            GlobalTopics(topics, self.admin, self.topic_ids, self._clock, retry_backoff_ms=config.retry_backoff_ms),
            GlobalTasks(nodes, stores, self._task_settings, self._global_producer, self._clock),
            restoring=GlobalRestore(name, topics, self.restore_listener),
            consumer=lambda: self._clients.global_consumer(self.client_id),
            clock=self._clock,
            settings=self._restore_settings,
        )
        return not self._global_restore_cancelled and self.global_thread.start(on_error)

    def cancel_global_restore(self) -> None:
        """Make :meth:`start_global_thread` return, now or later. May be called by a signal handler."""
        self._global_restore_cancelled = (
            True  # first: a thread that is being created now either sees it or is cancelled
        )
        if self.global_thread is not None:
            self.global_thread.cancel_restore()

    # -- threads ---------------------------------------------------------------------------------------------

    def new_thread(
        self,
        index: int,
        *,
        on_state: Callable[[StreamThread, ThreadState], None],
        on_error: Callable[[StreamThread, Exception], None],
        on_end: Callable[[StreamThread], None],
    ) -> StreamThread:
        """Return a new stream thread, not started yet."""
        return StreamThread(
            f"{self.client_id}-StreamThread-{index}",
            index,
            clock=self._clock,
            open_loop=self._open_loop,
            on_state=on_state,
            on_error=on_error,
            on_end=on_end,
        )

    def share_cache(self, threads: int) -> None:
        """Split ``statestore.cache.max.bytes`` among this many stream threads and the global thread, if any."""
        threads += bool(self._topology.global_topics)
        self._cache_bytes = self.config.statestore_cache_max_bytes // max(1, threads)
        for thread, cache in list(self._caches.items()):
            if thread.state is ThreadState.DEAD:
                del self._caches[thread]
            else:
                cache.max_bytes = self._cache_bytes  # the thread evicts records at its next write

    def _open_loop(self, thread: StreamThread) -> StreamLoop:
        """Create a thread's loop and its parts. Runs on that thread."""
        with contextlib.ExitStack() as opened:
            parts = self._make_parts(thread, opened)
            loop = StreamLoop(
                thread.name, parts, inbox=thread.inbox, control=thread.control, settings=self._loop_settings
            )
            opened.pop_all()  # from here on, the thread closes them
        return loop

    def _make_parts(self, thread: StreamThread, opened: contextlib.ExitStack) -> ThreadParts:
        if (admin := self.admin) is None or self._group is None:
            raise IllegalStateError("the client is not open")
        config, clock = self.config, self._clock
        restores = self._restore_observer(thread)
        updater = StateUpdater(
            f"{self.client_id}-StateUpdater-{thread.index}",
            lambda: self._clients.restore_consumer(thread.name),
            admin,
            clock,
            self._restore_settings,
            RestoreListeners(
                RestoreEventsListener(restores, self.restore_listener), self.standby_listener, restores.warm
            ),
            sharing=Sharing(lambda: self._clients.changelog_sorter(thread.name), clock),
        )
        consumer = self._clients.main_consumer(thread.name)
        opened.callback(consumer.close)
        transactions, settle = self._transactions(thread, updater)
        producer = transactions or self._clients.producer(thread.name)
        opened.callback(producer.close)
        producer.blocked = thread.control.blocked
        cache = RecordCache(self._cache_bytes, clock.monotonic_ms)
        background = Background(self._event_loop)
        factory = TaskFactory(
            subtopologies=self._subtopologies,
            settings=self._task_settings,
            stores=StoreSurroundings(self.directory, thread.name, self._defaults, cache, self._snapshots),
            consumer=consumer,
            producer=producer,
            shared=SharedServices(
                clock=clock,
                global_stores={name: write_protected(store) for name, store in self.global_stores.items()},
                background=background,
            ),
            sharing=lambda: [task.id for task in table.running()],
        )
        events = self._events.tasks(thread.identity)
        table = TaskTable(factory, updater, clock, events=events)
        producer.track({topic for sub in self._metadata.subtopologies.values() for topic in sub.changelogs})
        self._caches[thread] = cache
        transport = self._group.open(
            thread.name,
            thread.index,
            thread.inbox,
            ThreadSignals(thread, producer, self.hosts, self.on_stop_application),
            ThreadReport(thread.name, table, updater, self.directory),
        )
        repartition_topics = frozenset(
            topic for sub in self._metadata.subtopologies.values() for topic in sub.repartition_sources
        )
        return ThreadParts(
            consumer=consumer,
            producer=producer,
            transactions=transactions,
            settle_transactions=settle,
            transport=transport,
            updater=updater,
            table=table,
            start_positions=(start_positions := self._start_positions()),
            topic_changes=TopicChanges(
                self.topic_ids,
                self._known_commits,
                start_positions,
                clock,
                internal=repartition_topics,
                continues=config.recreated_internal_topics == "continue",
            ),
            latest_resets=LatestResets(thread.name, config.application_id, admin),
            known_commits=self._known_commits,
            repartition_topics=repartition_topics,
            key_placement=self._key_placement,
            admin=admin,
            events=events,
            clock=clock,
            background=background,
            cache=cache,
            release_locks=lambda: self.directory.unlock_except(thread.name, table.holding()),
        )

    def _transactions(
        self, thread: StreamThread, updater: StateUpdater
    ) -> tuple[TransactionalProducer | None, Callable[[], None]]:
        """Return a thread's producer under exactly-once, and the call that must precede its first transaction."""
        if (others := self._open_transactions) is None:
            return None, lambda: None
        transactional_id = f"{self.config.application_id}-{self._process_id}-{thread.index}"
        others.watch(updater)
        producer = self._clients.transactional_producer(thread.name, transactional_id)
        return producer, lambda: others.settle(transactional_id)

    def _restore_observer(self, thread: StreamThread) -> RestoreObserver:
        subtopology_of = {
            topic: number
            for number, sub in self._metadata.subtopologies.items()
            for topic in (*sub.changelogs, *sub.source_changelogs)
        }
        return self._events.restores(thread.identity, subtopology_of)

    def _start_positions(self) -> StartPositions:
        sources = [node for node in self._topology.nodes if isinstance(node, SourceNode)]
        return StartPositions(self.config.application_id, sources, self._default_policy)
