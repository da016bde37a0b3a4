"""The part of a client that reports its state: threads, tasks, assignment explanations, metrics and restoration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams_protocol.types import TaskId
from streams_py.runtime.client.store_queries import ClientQueries
from streams_py.runtime.thread.states import ThreadState

if TYPE_CHECKING:
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.leader.explanations import ToldExplanation
    from streams_py.ports import Clock
    from streams_py.runtime.client.metrics import MetricsInput
    from streams_py.runtime.group.timeline import RebalanceListener
    from streams_py.runtime.processes.measured import Measured
    from streams_py.runtime.restore.progress import RestoreProgress
    from streams_py.runtime.thread.metadata import ThreadMetadata


class ClientReports(ClientQueries):
    """The observation methods of :class:`~streams_py.runtime.client.kafka_streams.KafkaStreams`."""

    _config: StreamsConfig
    _clock: Clock
    _failed_threads: int

    def metadata_for_local_threads(self) -> list[ThreadMetadata]:
        """Return name, state and tasks of each stream thread."""
        from streams_py.runtime.thread.metadata import thread_metadata

        return [thread_metadata(thread) for thread in self._current_threads()]

    def explain(self, task_id: TaskId | str) -> list[ToldExplanation]:
        """Explain the placement of a task in the last assignments that *this* client computed as group leader.

        The newest explanation comes first. ``str(explanation)`` is readable text; ``explanation.explanation`` has the
        facts. The list is empty if this client has not been leader, or if a custom task assignor decided.
        """
        task = TaskId.parse(task_id) if isinstance(task_id, str) else task_id
        explanations = [explanation for thread in self._current_threads() for explanation in thread.explanations(task)]
        return sorted(explanations, key=lambda explanation: -explanation.assigned_at_ms)

    def metrics(self) -> dict[str, dict[str, float | str]]:
        """Return the current metrics by group (with tags) and name, as in Kafka Streams.

        For exporters see :mod:`streams_py.metrics`.
        """
        from streams_py.runtime.client.metrics import client_metrics

        return client_metrics(self._metrics_input(), topology=self._instance.topology_description)

    def measure(self) -> list[Measured]:
        """Return the same metrics as a list of group, tags, name and value."""
        from streams_py.runtime.client.metrics import measure

        return list(measure(self._metrics_input()))

    def _metrics_input(self) -> MetricsInput:
        from streams_py.runtime.client.metrics import MetricsInput

        return MetricsInput(
            self._config.application_id,
            self._instance.client_id,
            self._state.now,
            self._current_threads(),
            self._failed_threads,
            self._clock.now_ms(),
            is_debug=self._config.metrics_recording_level != "INFO",
            global_thread=self._instance.global_thread,
        )

    def on_rebalance(self, listener: RebalanceListener) -> None:
        """Call ``listener(timeline)`` after each rebalance of each stream thread. Thread-safe.

        The timeline has the duration of each step: decode, lags, assign, encode and hand-over. The listener runs on a
        thread that must not block for long.
        """
        self._instance.rebalance_listeners.append(listener)

    def restore_progress(self) -> RestoreProgress:
        """Return the restore progress of this instance's active tasks and global stores.

        The progress has records, bytes, rate and time left.
        """
        from streams_py.runtime.restore.progress import RestoreProgress

        progress = RestoreProgress()
        for thread in self._current_threads():
            if (updater := thread.updater) is not None and thread.state is not ThreadState.DEAD:
                progress += updater.progress()
        global_thread = self._instance.global_thread
        return progress if global_thread is None else progress + global_thread.restoring.progress()
