"""The resources that all threads of one client share: identity, state directory, admin client and settings.

:class:`~streams_py.runtime.client.kafka_streams.KafkaStreams` has the life cycle.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Collection
from functools import cached_property

from streams_protocol.types import ProcessId
from streams_py.config.client_keys import ClientRole
from streams_py.config.endpoint import parse_endpoint
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import IllegalStateError
from streams_py.events.assignment_events import check_event_clients, open_assignment_events
from streams_py.events.observers import InstanceObserver
from streams_py.ports import Admin, Clients, Clock
from streams_py.runtime.commit.open_transactions import OpenTransactions
from streams_py.runtime.group.classic.opening import ClassicProtocol, check_assignor
from streams_py.runtime.group.cluster_id import ClusterId
from streams_py.runtime.group.dead_members import DeadMembers
from streams_py.runtime.group.observers import GroupObservers
from streams_py.runtime.group.own_members import OwnMembers
from streams_py.runtime.group.sibling_watch import SiblingWatch
from streams_py.runtime.group.timeline import RebalanceListener
from streams_py.runtime.group.transport import GroupProtocol, JoinObserver
from streams_py.runtime.queries.hosts import StoreHosts
from streams_py.runtime.restore.listener import RestoreListener, StandbyUpdateListener
from streams_py.runtime.restore.settings import RestoreSettings
from streams_py.runtime.tasks.asynchronous.event_loop import EventLoop
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.thread.topic_ids import TopicIds
from streams_py.runtime.wiring.members import MembersOfClient, chosen_state_dir, watching_processes
from streams_py.runtime.wiring.missing_topics import create_missing_topics, warn_of_missing_sinks
from streams_py.runtime.wiring.snapshots import open_snapshots, snapshot_storage
from streams_py.runtime.wiring.state_cleaner import RunningTime, StateCleaner, delete_outdated
from streams_py.serdes import SerdeDefaults
from streams_py.state.directory.run_directory import LockedFolder, lock_run_directory, unlock_run_directory
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import StoreDefaults, is_persistent
from streams_py.state.snapshots.snapshots import Snapshots
from streams_py.system.freed_memory import FreedMemory
from streams_py.topology.generated_names import check_generated_names
from streams_py.topology.missing_serdes import check_serdes
from streams_py.topology.topology import Topology

_log = logging.getLogger("streams_py")


class SharedResources:
    """Resources that the stream threads and the global thread of one client share.

    ``admin``, ``process_id``, ``group``, ``events``, ``snapshots`` and ``open_transactions`` are set by :meth:`open`.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, clients: Clients, clock: Clock) -> None:
        self.config = config
        self.restore_listener = RestoreListener()
        self.standby_listener = StandbyUpdateListener()
        self.rebalance_listeners: list[RebalanceListener] = []
        check_event_clients(config, clients)
        self.topology = topology
        self.clients = clients
        self.clock = clock
        self.metadata = topology.metadata(config.application_id, config.original)
        self.subtopologies = topology.subtopologies()
        self.task_settings = TaskSettings.from_config(config)
        defaults = SerdeDefaults(self.task_settings.default_key_serde, self.task_settings.default_value_serde)
        check_serdes(topology, defaults)
        check_generated_names(topology, forbidden=config.ensure_explicit_internal_resource_naming)
        self.store_defaults = StoreDefaults(
            self.task_settings.default_key_serde,
            self.task_settings.default_value_serde,
            self.task_settings.persistent_stores,
        )
        self.restore_settings = RestoreSettings.from_config(config)
        check_assignor(config)
        persistent = any(is_persistent(store, self.store_defaults) for store in topology.stores.values())
        self._snapshot_storage = snapshot_storage(config, persistent=persistent)
        self.directory = StateDirectory(
            config.state_dir,
            config.application_id,
            persistent=persistent,
            name=config.setting_for(ClientRole.MAIN_CONSUMER, "group.instance.id") or config.client_id or None,
            cluster_id=self._request_cluster_id,
            warns_of_temporary=not config.embedded,  # the embedded cluster is temporary, too
        )
        self.hosts = StoreHosts(topology, config.application_id, parse_endpoint(config.application_server), defaults)
        self.process_id: ProcessId | None = None
        self.admin: Admin | None = None
        self.running = RunningTime(clock)
        self._cluster_id: ClusterId | None = None
        self._cleaner: StateCleaner | None = None
        self.open_transactions: OpenTransactions | None = None
        self.topic_ids = TopicIds(lambda: self.admin, clock)
        self.dead_members = DeadMembers(clients.group_admin, config.application_id, self._on_evicted)
        self._run_folder: LockedFolder | None = None  # of an instance without persistent stores
        self._opened = contextlib.ExitStack()  # closes what open() has opened, in reverse order
        self.snapshots: Snapshots | None = None
        self.events = InstanceObserver()
        self.group: GroupProtocol | None = None
        self.event_loop = EventLoop(f"{config.client_id or config.application_id}-AsyncCalls")

    @cached_property
    def topology_description(self) -> str:  # cached ``topology.describe()``
        return self.topology.describe()

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """``client.id``, or a name built from the application id and the process id."""
        return self.config.client_id or f"{self.config.application_id}-{self.process_id or 'new'}"

    def check_connection(self) -> None:
        """Raise ConfigError if the cluster rejects the login or the certificates."""
        self.clients.check_connection()

    def open(self) -> None:
        """Lock a state directory, get its process id, connect the admin client, and start the background threads.

        After an error everything is closed again, and this method may be called again.

        Raises:
            StateError: The state directory cannot be used.
            ConfigError: The cluster rejects the client.
        """
        self.check_connection()
        try:
            self._open()
        except BaseException:
            self.undo_open()
            raise

    def _open(self) -> None:
        opened = self._opened
        self.process_id = self.directory.open()
        opened.callback(self.directory.close)
        delete_outdated(self.directory, self.config.state_cleanup_dir_max_age_ms, self.clock.now_ms())
        self.admin = self.clients.admin()
        opened.callback(self.admin.close)
        self._cluster_id = ClusterId(self.admin)
        own_members: OwnMembers | None = None
        if self.config.embedded:
            create_missing_topics(self.metadata, self.topology.global_topics, self.admin)
        else:
            warn_of_missing_sinks(self.topology, self.admin)
            own_members = self._put_members_on_record()
            opened.callback(own_members.close)  # before the locks are released
        self._cleaner = StateCleaner(self.directory, self.clock, self.config.state_cleanup_delay_ms, self.running)
        opened.callback(self._cleaner.stop)
        opened.callback(FreedMemory().stop)
        self.events = open_assignment_events(
            self.config, self.clients, self.admin, self.clock, process=str(self.process_id), client_id=self.client_id
        )
        opened.callback(self.events.close)
        self.group = group = ClassicProtocol(
            self.clients,
            self.topology,
            self.config,
            self.admin,
            self.clock,
            self.process_id,
            GroupObservers(self.events, self.rebalance_listeners, self._join_observer(own_members)),
        )
        opened.callback(group.close)
        if own_members is not None:
            self._watch_siblings(own_members, group)
        if self.config.exactly_once:
            self.open_transactions = OpenTransactions(
                self.clients.transaction_admin(),
                self.admin,
                self.clock,
                application_id=self.config.application_id,
                topics=self.metadata.topics,
                transaction_timeout_ms=self.config.transaction_timeout_ms,
                members=group.processes,
            )
            opened.callback(self.open_transactions.close)
            self.open_transactions.start()
            self.rebalance_listeners.append(self.open_transactions.check_soon)
            opened.callback(self.rebalance_listeners.remove, self.open_transactions.check_soon)
        self.snapshots = open_snapshots(self._snapshot_storage, self.config, self.admin)
        if self.snapshots is not None:
            opened.callback(self.snapshots.stop)

    def undo_open(self) -> None:
        """Close what :meth:`open` has opened, so that it can be called again. Errors are logged."""
        try:
            self._opened.close()
        except Exception:
            _log.exception("%s: failed to close cleanly after a failed start", self.client_id)
        self.process_id = self.admin = self.group = self.open_transactions = self.snapshots = None
        self._cluster_id = self._run_folder = None
        self.events = InstanceObserver()

    def _put_members_on_record(self) -> OwnMembers:
        config = self.config
        if not self.directory.is_persistent and self.has_tasks:
            self._run_folder = lock_run_directory(chosen_state_dir(config), config.application_id)
            if self._run_folder is not None:
                self._opened.callback(unlock_run_directory, self._run_folder)
        return OwnMembers(
            self._locked_folder,
            config.application_id,
            self._request_cluster_id,
            self.dead_members,
            instance_id=config.setting_for(ClientRole.MAIN_CONSUMER, "group.instance.id"),
        )

    def watching_processes(self) -> contextlib.AbstractContextManager[None]:
        """Remove the members of processes that die, inside the context. For a supervisor, which is not open."""
        return watching_processes(self.config, self.clients, self.directory)

    def _join_observer(self, own_members: OwnMembers | None) -> JoinObserver:
        if own_members is None:
            return JoinObserver()
        return MembersOfClient(self.config, self.clients, own_members, self._locked_folder)

    def _watch_siblings(self, own_members: OwnMembers, group: GroupProtocol) -> None:
        folder = self._locked_folder()
        if folder is None or sys.platform != "linux":
            return
        watch = SiblingWatch(
            folder.application, own_members, self.config.application_id, self.dead_members, group.expect_rebalance
        )
        watch.start()
        self._opened.callback(watch.close)

    def _on_evicted(self, pid: int | None, members: Collection[str]) -> None:
        self.events.evicted(pid, members)

    def _locked_folder(self) -> LockedFolder | None:
        return self.directory.locked or self._run_folder

    def _request_cluster_id(self) -> str | None:
        if self._cluster_id is None:
            raise IllegalStateError("the client is not open")
        return self._cluster_id.get()

    def close(self) -> None:
        """Close all shared resources. All threads must have stopped, the global thread, too."""
        with contextlib.ExitStack() as closing:  # closes each of them, even if closing another one fails
            closing.callback(self.clients.close)
            closing.callback(self._opened.close)
            closing.callback(self.topic_ids.stop)
            closing.callback(self.event_loop.close)

    def clean_up(self) -> None:
        """Delete the application's local state."""
        self.directory.clean_up()

    @property
    def has_tasks(self) -> bool:
        """Whether the topology has more than global stores."""
        return bool(self.metadata.subtopologies)
