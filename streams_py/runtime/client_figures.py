"""The part of a client that tells how it does: threads and tasks, explanations, figures, restoration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams_protocol.types import TaskId
from streams_py.runtime.queries.client_queries import ClientQueries
from streams_py.runtime.states import ThreadState

if TYPE_CHECKING:
    from streams_py.config import StreamsConfig
    from streams_py.leader.explanations import ToldExplanation
    from streams_py.ports import Clock
    from streams_py.runtime.metrics import Measured, ThreadFigures
    from streams_py.runtime.restore.progress import RestoreProgress
    from streams_py.runtime.threads.rebalance_timeline import RebalanceListener
    from streams_py.runtime.threads.thread_metadata import ThreadMetadata

__all__ = ["ClientFigures"]


class ClientFigures(ClientQueries):
    """What :class:`~streams_py.runtime.kafka_streams.KafkaStreams` tells of itself."""

    _config: StreamsConfig
    _clock: Clock
    _failed_threads: int

    def metadata_for_local_threads(self) -> list[ThreadMetadata]:
        """Name, state and tasks of each stream thread."""
        from streams_py.runtime.threads.thread_metadata import thread_metadata

        return [thread_metadata(thread) for thread in self._current_threads()]

    def explain(self, task_id: TaskId | str) -> list[ToldExplanation]:
        """Why the task is where it is, for each of the last assignments that *this* client made as leader of the group;
        newest first. ``str(explanation)`` says it in sentences, ``explanation.explanation`` has the facts.

        Empty when this client has not led, or when the application's own task assignor decided.
        """
        task = TaskId.parse(task_id) if isinstance(task_id, str) else task_id
        explanations = [
            explanation
            for thread in self._current_threads()
            if thread.loop is not None
            for explanation in thread.loop.parts.rebalance.explanations.explanation(task)
        ]
        return sorted(explanations, key=lambda explanation: -explanation.assigned_at_ms)

    def metrics(self) -> dict[str, dict[str, float | str]]:
        """Current figures by group (with tags) and name, those of Kafka Streams. For exporters see
        :mod:`streams_py.metrics`."""
        from streams_py.runtime.metrics import client_metrics

        return client_metrics(self._figures(), topology=self._instance.topology_description)

    def measure(self) -> list[Measured]:
        """The same, one by one: group, tags, name and value."""
        from streams_py.runtime.metrics import measure

        return list(measure(self._figures()))

    def _figures(self) -> ThreadFigures:
        from streams_py.runtime.metrics import ThreadFigures

        return ThreadFigures(
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
        """Call ``listener(timeline)`` after each rebalance of each stream thread, on a thread that must not wait long:
        what took how long (decode, lags, assign, encode, hand-over). Thread-safe."""
        self._instance.rebalance_listeners.append(listener)

    def restore_progress(self) -> RestoreProgress:
        """How far the restoration of this instance's active tasks, and the filling of its global stores, are: records,
        bytes, rate, time left."""
        from streams_py.runtime.restore.progress import RestoreProgress

        progress = RestoreProgress()
        for thread in self._current_threads():
            if thread.loop is not None and thread.state is not ThreadState.DEAD:
                progress += thread.loop.parts.updater.progress()
        filled = self._instance.global_thread
        return progress if filled is None else progress + filled.filling.progress()
