"""Services of a task for its nodes: stores, error handling, punctuators, asynchronous calls, sinks and commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streams_py.ports import Clock
from streams_py.runtime.tasks.asynchronous.event_loop import Background
from streams_py.runtime.tasks.asynchronous.task_calls import TaskCalls
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.failures import Failures
from streams_py.runtime.tasks.record.measuring import SentRecords
from streams_py.runtime.tasks.record.punctuation import Punctuators
from streams_py.runtime.tasks.record.sinks import bind_sink
from streams_py.state.tasks.interface import TaskStores
from streams_py.topology.declare.nodes import Process, RecordContext, SinkNode


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedServices:
    """Services that the nodes of several tasks share."""

    clock: Clock
    global_stores: Mapping[str, Any] = field(default_factory=dict)
    """Stores that every processor may read."""
    background: Background | None = None
    """Runs asynchronous calls. None: nodes cannot make any."""


class NodeServices:
    """Services of one task for its nodes.

    Attributes:
        failures: Error handling of the nodes.
        punctuators: Scheduled callbacks of the nodes.
        calls: Asynchronous calls of the nodes.
        processor_metadata: Numbers that processors want to commit with the offsets, by store name.
        sent: Counts the records of the sinks, if they are measured.
        commit_requested: Whether a node has requested a commit since the last one.
    """

    def __init__(
        self,
        record: RecordContext,
        stores: TaskStores,
        shared: SharedServices,
        collector: RecordCollector,
        *,
        failures: Failures,
        punctuators: Punctuators,
        calls: TaskCalls,
        processor_metadata: dict[str, int],
    ) -> None:
        self.id = collector.task_id
        self.settings = collector.settings
        self.record = record
        self.now_ms = shared.clock.now_ms
        self.failures = failures
        self.punctuators = punctuators
        self.calls = calls
        self.processor_metadata = processor_metadata
        self.sent = SentRecords() if self.settings.is_measured else None
        self.commit_requested = False
        self._stores = stores
        self._global_stores = shared.global_stores
        self._collector = collector

    def store(self, name: str) -> Any:
        """Return a store of the task."""
        return self._stores.store(name)

    def global_store(self, name: str) -> Any | None:
        """Return a global store; None for an unknown name."""
        return self._global_stores.get(name)

    def request_commit(self) -> None:
        """Request a commit as soon as possible."""
        self.commit_requested = True

    def bind_sink(self, node: SinkNode) -> Process:
        """Return the function of a sink."""
        ask = self.failures
        return bind_sink(node, self._collector, self.record, ask.context_of, ask.node_failed, ask.dropped, self.sent)
