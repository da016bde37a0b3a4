"""The global thread of one client: created when the client starts, if the topology has global stores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from streams_py.errors import IllegalStateError
from streams_py.runtime.global_thread.global_task import GlobalNodes, GlobalTasks, ProducerOnDemand
from streams_py.runtime.global_thread.global_thread import GlobalThread
from streams_py.runtime.global_thread.progress import GlobalRestore
from streams_py.runtime.global_thread.topics import GlobalTopics
from streams_py.runtime.wiring.shared import SharedResources
from streams_py.state.opening.stores import Store
from streams_py.state.tasks.global_stores import GlobalStores
from streams_py.topology.declare.custom_stores import CustomStateStore


class ClientGlobalThread:
    """The global thread of one client and its stores.

    Attributes:
        thread: The thread; None before the client starts, and without global stores.
    """

    def __init__(self, shared: SharedResources) -> None:
        self.thread: GlobalThread | None = None
        self._shared = shared
        self._producer: ProducerOnDemand | None = None
        self._restore_cancelled = False

    @property
    def stores(self) -> Mapping[str, Store | CustomStateStore]:
        """The global stores by name; empty while they are being restored."""
        return {} if self.thread is None or not self.thread.is_restored else self.thread.stores.stores

    def start(self, on_error: Callable[[Exception], None]) -> bool:
        """Restore the global stores, if there are any, then start the thread that follows their topics.

        Args:
            on_error: Called when that thread fails later.

        Returns:
            False if the restoration was cancelled by :meth:`cancel_restore`.

        Raises:
            Exception: The error that prevents the restoration.
        """
        if not self._shared.topology.global_topics:
            return True
        name = f"{self._shared.client_id}-GlobalStreamThread"
        self._producer = ProducerOnDemand(lambda: self._shared.clients.global_producer(name))
        self.thread = self._create(name, self._producer)
        return not self._restore_cancelled and self.thread.start(on_error)

    def cancel_restore(self) -> None:
        """Make :meth:`start` return, now or later. May be called by a signal handler."""
        self._restore_cancelled = True  # first: a thread that is being created now either sees it or is cancelled
        if self.thread is not None:
            self.thread.cancel_restore()

    def close(self) -> None:
        """Stop the thread, and close its stores and its producer. All stream threads must have stopped."""
        if self.thread is not None and self._producer is not None:
            with contextlib.ExitStack() as closing:
                closing.callback(self._producer.close)
                closing.callback(self.thread.stop)  # added last, so called first

    def _create(self, name: str, producer: ProducerOnDemand) -> GlobalThread:
        shared = self._shared
        if shared.admin is None:
            raise IllegalStateError("the client is not open")
        topics, clock, config = shared.topology.global_topics, shared.clock, shared.config
        return GlobalThread(
            name,
            GlobalTopics(topics, shared.admin, shared.topic_ids, clock, retry_backoff_ms=config.retry_backoff_ms),
            GlobalTasks(self._nodes(), self._global_stores(), shared.task_settings, producer, clock),
            restoring=GlobalRestore(name, topics, shared.restore_listener),
            consumer=lambda: shared.clients.global_consumer(shared.client_id),
            clock=clock,
            settings=shared.restore_settings,
        )

    def _nodes(self) -> GlobalNodes:
        topology = self._shared.topology
        subs = [sub for sub in self._shared.subtopologies if sub.is_global]
        declared = topology.global_stores
        return GlobalNodes(
            [node for sub in subs for node in sub.nodes],
            [store for sub in subs for store in sub.stores],
            {
                topic: declared[name].builder
                for topic, name in topology.global_topics.items()
                if declared[name].is_table
            },
        )

    def _global_stores(self) -> GlobalStores:
        shared = self._shared
        topic_of = {name: topic for topic, name in shared.topology.global_topics.items()}
        return GlobalStores(
            {name: (store, topic_of[name]) for name, store in shared.topology.global_stores.items()},
            application_id=shared.config.application_id,
            directory=shared.directory,
            defaults=shared.store_defaults,
            measuring=shared.task_settings.measuring(shared.clock),
        )
