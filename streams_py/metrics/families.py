"""The metrics for the two exporters: all names with their descriptions, and the naming of labels.

The list has all metrics of the library, which a test checks, because OpenTelemetry requires a metric to be declared
before it is measured. Metrics that processors define are added when they first appear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from streams_py.state.disk.properties import PROPERTIES
from streams_py.state.metrics.store_metrics import OPERATIONS

_GO_DOWN: Final = ("restore-remaining-records-total", "cache-size-bytes-total")


class Family(NamedTuple):
    """One metric. ``help`` is one sentence."""

    group: str
    name: str
    help: str

    @property
    def is_total(self) -> bool:
        """Whether the metric is a counter, which never decreases."""
        return self.name.endswith("-total") and self.name not in _GO_DOWN


def _timed(group: str, name: str, what: str) -> tuple[Family, ...]:
    return (
        Family(group, f"{name}-total", f"{what}: count."),
        Family(group, f"{name}-rate", f"{what}: per second since the thread started."),
        Family(group, f"{name}-latency-avg", f"{what}: average time in ms."),
        Family(group, f"{name}-latency-max", f"{what}: longest time in ms."),
        Family(group, f"{name}-ratio", f"{what}: share of the thread's time."),
    )


_CLIENT: Final = "stream-metrics"
_THREAD: Final = "stream-thread-metrics"
_UPDATER: Final = "stream-state-updater-metrics"
_STATE: Final = "stream-state-metrics"
_TASK: Final = "stream-task-metrics"
_TOPIC: Final = "stream-topic-metrics"
_NODE: Final = "stream-processor-node-metrics"
_CACHE: Final = "stream-record-cache-metrics"
PROCESS: Final = "process-metrics"
_CONSUMER: Final = "consumer-fetch-manager-metrics"


def _used(operation: str) -> tuple[Family, ...]:
    what = f"{operation} of a store (level DEBUG)"
    return (
        Family(_STATE, f"{operation}-rate", f"{what}: per second since the thread started."),
        Family(_STATE, f"{operation}-latency-avg", f"{what}: average time in ns."),
        Family(_STATE, f"{operation}-latency-max", f"{what}: longest time in ns."),
    )


_ALL: Final = (
    Family(_CLIENT, "version", "Version of the library, as a label."),
    Family(_CLIENT, "application-id", "Application, as a label."),
    Family(_CLIENT, "state", "State of the client, as a label."),
    Family(_CLIENT, "alive-stream-threads", "Running stream threads."),
    Family(_CLIENT, "failed-stream-threads", "Stream threads that failed since the client started."),
    Family(_CLIENT, "evicted-dead-members-total", "Members of ended processes that this client has removed."),
    *_timed(_THREAD, "process", "Records processed"),
    *_timed(_THREAD, "commit", "Commits"),
    *_timed(_THREAD, "poll", "Polls"),
    *_timed(_THREAD, "punctuate", "Punctuations"),
    Family(_THREAD, "poll-records-avg", "Average number of records of a poll that returned records."),
    Family(_THREAD, "poll-records-max", "Maximum number of records of a poll."),
    Family(_THREAD, "process-records-avg", "Average number of records processed in one iteration of the thread."),
    Family(_THREAD, "process-records-max", "Maximum number of records processed in one iteration of the thread."),
    Family(_THREAD, "blocked-time-ns-total", "Time that the thread has waited for Kafka, in ns."),
    Family(_THREAD, "task-created-total", "Tasks created on this thread."),
    Family(_THREAD, "task-created-rate", "Tasks created on this thread per second since it started."),
    Family(_THREAD, "task-closed-total", "Tasks closed on this thread."),
    Family(_THREAD, "task-closed-rate", "Tasks closed on this thread per second since it started."),
    Family(_THREAD, "state", "State of the thread, as a label."),
    Family(_THREAD, "thread-start-time", "Start time of the thread, in ms since the epoch."),
    Family(_THREAD, "task-assignor-error-total", "Failures of the application's task assignor."),
    Family(_UPDATER, "active-restoring-tasks", "Active tasks that are being restored."),
    Family(_UPDATER, "standby-updating-tasks", "Standby tasks."),
    Family(_UPDATER, "active-paused-tasks", "Active tasks whose restore is paused."),
    Family(_UPDATER, "standby-paused-tasks", "Paused standby tasks."),
    Family(_UPDATER, "restore-remaining-records-total", "Records that restoring tasks still have to replay."),
    Family(_UPDATER, "restore-records-total", "Records replayed into stores of active tasks."),
    Family(_UPDATER, "restore-records-rate", "Records replayed per second while tasks are restored."),
    Family(_UPDATER, "restore-call-total", "Batches replayed into stores of active tasks."),
    Family(_UPDATER, "restore-call-rate", "Batches replayed per second since the updater started."),
    Family(_UPDATER, "idle-ratio", "Share of the state updater's time without anything to replay."),
    Family(_UPDATER, "active-restore-ratio", "Share of the state updater's time spent on active tasks."),
    Family(_UPDATER, "standby-update-ratio", "Share of the state updater's time spent on standby tasks."),
    Family(_UPDATER, "checkpoint-ratio", "Share of the state updater's time spent on flushing state to disk."),
    Family(_TASK, "restore-remaining-records-total", "Records that the task still has to replay."),
    Family(_TASK, "dropped-records-total", "Dropped records."),
    Family(_TASK, "dropped-records-rate", "Records dropped per second since the thread started."),
    Family(_TASK, "active-buffer-count", "Records buffered in the queues of the task."),
    Family(_TASK, "enforced-processing-total", "Records processed while another input was empty (level DEBUG)."),
    Family(_TASK, "enforced-processing-rate", "The same per second since the thread started (level DEBUG)."),
    Family(_TASK, "record-lateness-avg", "Recent average lateness behind stream time, in ms (level DEBUG)."),
    Family(_TASK, "record-lateness-max", "Recent maximum lateness behind stream time, in ms (level DEBUG)."),
    Family(_TASK, "process-total", "Records that the task has processed (level DEBUG)."),
    Family(_TASK, "process-rate", "Records processed per second (level DEBUG)."),
    Family(_TASK, "process-latency-avg", "Average time of a record in ms (level DEBUG)."),
    Family(_TASK, "process-latency-max", "Longest time of a record in ms (level DEBUG)."),
    Family(_TASK, "process-ratio", "Share of the thread's lifetime spent on the task's records (level DEBUG)."),
    Family(_TASK, "punctuate-total", "Punctuations of the task (level DEBUG)."),
    Family(_TASK, "punctuate-rate", "Punctuations per second since the thread started (level DEBUG)."),
    Family(_TASK, "punctuate-latency-avg", "Average time of a punctuation in ms (level DEBUG)."),
    Family(_TASK, "punctuate-latency-max", "Longest time of a punctuation in ms (level DEBUG)."),
    Family(_TASK, "active-process-ratio", "Share of the task in the thread's processing time."),
    Family(_TASK, "restore-total", "Records replayed into the stores of the active task (level DEBUG)."),
    Family(_TASK, "restore-rate", "Records replayed per second since the thread started (level DEBUG)."),
    Family(_TASK, "update-total", "Records replayed into the stores of the standby task (level DEBUG)."),
    Family(_TASK, "update-rate", "Records replayed per second since the thread started (level DEBUG)."),
    Family(_TASK, "cache-size-bytes-total", "Bytes in the record caches of the task (level DEBUG)."),
    Family(_CACHE, "hit-ratio-avg", "Share of the reads of a store that its record cache answered (level DEBUG)."),
    Family(_CACHE, "hit-ratio-min", "Recent minimum of that share (level DEBUG)."),
    Family(_CACHE, "hit-ratio-max", "Recent maximum of that share (level DEBUG)."),
    Family(_CONSUMER, "records-lag", "Records of an input partition that the consumer has not delivered yet."),
    Family(_TOPIC, "records-consumed-total", "Records consumed from a topic."),
    Family(_TOPIC, "bytes-consumed-total", "Bytes consumed from a topic (level DEBUG)."),
    Family(_TOPIC, "records-produced-total", "Records that a sink produced to a topic (level DEBUG)."),
    Family(_TOPIC, "bytes-produced-total", "Bytes that a sink produced to a topic (level DEBUG)."),
    *(family for operation in OPERATIONS for family in _used(operation)),
    *(Family(_STATE, name, of) for name, of in PROPERTIES.items()),
    Family(_STATE, "num-keys", "Entries of a store in memory."),
    Family(_STATE, "num-open-iterators", "Open iterators over a store."),
    Family(_STATE, "oldest-iterator-open-since-ms", "Opening time of the oldest open iterator, in ms (level DEBUG)."),
    Family(_STATE, "iterator-duration-avg", "Average time that iterators were open, in ns (level DEBUG)."),
    Family(_STATE, "iterator-duration-max", "Maximum time that an iterator was open, in ns (level DEBUG)."),
    Family(_STATE, "record-e2e-latency-avg", "Recent average age of records when put, in ms (level TRACE)."),
    Family(_STATE, "record-e2e-latency-min", "Recent minimum age of a record when put, in ms (level TRACE)."),
    Family(_STATE, "record-e2e-latency-max", "Recent maximum age of a record when put, in ms (level TRACE)."),
    Family(_STATE, "suppression-buffer-size-avg", "Average bytes in a suppress buffer (level DEBUG)."),
    Family(_STATE, "suppression-buffer-size-max", "Maximum bytes in a suppress buffer (level DEBUG)."),
    Family(_STATE, "suppression-buffer-count-avg", "Average number of keys in a suppress buffer (level DEBUG)."),
    Family(_STATE, "suppression-buffer-count-max", "Maximum number of keys in a suppress buffer (level DEBUG)."),
    Family(_NODE, "process-total", "Records processed by a node (level DEBUG)."),
    Family(_NODE, "process-rate", "Records processed by a node per second (level DEBUG)."),
    Family(_NODE, "record-e2e-latency-avg", "Recent average age of records, in ms (terminal nodes: level DEBUG)."),
    Family(_NODE, "record-e2e-latency-min", "Recent minimum age of a record, in ms (terminal nodes: level DEBUG)."),
    Family(_NODE, "record-e2e-latency-max", "Recent maximum age of a record, in ms (terminal nodes: level DEBUG)."),
    Family(_NODE, "suppression-emit-total", "Results that suppress forwarded (level DEBUG)."),
    Family(_NODE, "suppression-emit-rate", "Results that suppress forwarded per second (level DEBUG)."),
    Family(_NODE, "window-aggregate-final-emit-total", "Forwarded final results (level DEBUG)."),
    Family(_NODE, "window-aggregate-final-emit-rate", "Final results forwarded per second (level DEBUG)."),
    Family(_NODE, "window-aggregate-final-emit-latency-avg", "Recent average time to forward, in ms (level DEBUG)."),
    Family(_NODE, "window-aggregate-final-emit-latency-max", "Recent maximum time to forward, in ms (level DEBUG)."),
)

FAMILIES: Final[Mapping[tuple[str, str], Family]] = {(family.group, family.name): family for family in _ALL}
"""(Group, name) -> metric."""


_OF_PROCESSES: Final = {
    "up": "1 when the process sent its metrics to its supervisor, else 0.",
    "restarts-total": "Restarts of the process by its supervisor.",
}
"""Metrics that a supervisor adds; no client measures them."""

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")


def family_of(group: str, name: str) -> Family:
    """Return the declaration of a metric. Metrics that processors define (``context.metrics``) have no description."""
    if group == PROCESS and name in _OF_PROCESSES:
        return Family(group, name, _OF_PROCESSES[name])
    return FAMILIES.get((group, name)) or Family(group, name, "Defined by the application.")


def family_name(group: str, name: str) -> str:
    """Return the exported name, such as ``kafka_streams_stream_thread_metrics_process_rate``."""
    return _NOT_IN_NAMES.sub("_", f"kafka_streams_{group}_{name}")


def label(tag: str) -> str:
    """Return the label for a tag, such as ``thread_id``.

    Labels must start with a letter; Prometheus reserves labels that start with two underscores.
    """
    text = _NOT_IN_NAMES.sub("_", tag)
    return text if text[:1].isalpha() else f"tag_{text.lstrip('_')}"
