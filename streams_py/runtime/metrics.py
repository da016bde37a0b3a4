"""Figures of a client under the names that Kafka Streams gives them.

Groups and names are Kafka's (``stream-thread-metrics`` / ``process-rate``); a figure of a thread or task carries its
tags in the key of the group: ``stream-thread-metrics{thread-id=...}``. Rates are per second since the thread started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streams_py.runtime.states import State, ThreadState
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.task import Task
from streams_py.runtime.threads.stream_thread import StreamThread

__all__ = ["Metrics", "client_metrics", "task_metrics"]

Metrics = dict[str, dict[str, float | str]]


def client_metrics(state: State, threads: Sequence[StreamThread], failed_threads: int, now_ms: int) -> Metrics:
    """Everything there is to say about a client now."""
    alive = [thread for thread in threads if thread.state is not ThreadState.DEAD]
    metrics: Metrics = {
        "stream-metrics": {
            "state": state.value,
            "alive-stream-threads": len(alive),
            "failed-stream-threads": failed_threads,
        }
    }
    for thread in alive:
        seconds = max(1, now_ms - thread.started_ms) / 1000
        metrics[f"stream-thread-metrics{{thread-id={thread.name}}}"] = {
            "process-total": thread.control.processed_records,
            "process-rate": thread.control.processed_records / seconds,
            "thread-start-time": thread.started_ms,
            "task-assignor-error-total": thread.reported_errors,
            **thread.control.commit_latency.figures("commit"),
        }
        if thread.loop is None:
            continue
        updater = thread.loop.parts.updater
        metrics[f"stream-state-updater-metrics{{thread-id={thread.name}}}"] = {
            "restore-remaining-records-total": updater.remaining_records(),
            "restore-records-total": updater.restored_total,
            "restore-records-rate": updater.progress().rate,
        }
        metrics.update(task_metrics(thread.name, thread.tasks))
    return metrics


def task_metrics(thread: str, tasks: Iterable[Task]) -> Metrics:
    """Figures of the active ones among the tasks of a thread."""
    return {
        f"stream-task-metrics{{thread-id={thread},task-id={task.id}}}": {
            "dropped-records-total": task.dropped_records,
            "active-buffer-count": task.buffered_records,
        }
        for task in tasks
        if isinstance(task, ActiveTask)
    }
