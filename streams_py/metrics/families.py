"""Figures as the two exporters know them: every name that there is, what it counts, and its labels.

The list has all that the library measures, and a test says so: OpenTelemetry wants to hear of a figure before it is
measured. What processors measure of their own comes to it when it is first seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from streams_py.state.disk.properties import PROPERTIES
from streams_py.state.metrics.store_metrics import OPERATIONS

__all__ = ["FAMILIES", "PROCESS", "Family", "family_name", "family_of", "label"]


_GO_DOWN: Final = ("restore-remaining-records-total", "cache-size-bytes-total")


class Family(NamedTuple):
    """One figure. ``is_total``: only grows. ``help``: one sentence."""

    group: str
    name: str
    help: str

    @property
    def is_total(self) -> bool:
        """True for counters."""
        return self.name.endswith("-total") and self.name not in _GO_DOWN


def _timed(group: str, name: str, what: str) -> tuple[Family, ...]:
    return (
        Family(group, f"{name}-total", f"{what}: how many."),
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
    Family(_CLIENT, "alive-stream-threads", "Stream threads that run."),
    Family(_CLIENT, "failed-stream-threads", "Stream threads that have failed since the client started."),
    *_timed(_THREAD, "process", "Records processed"),
    *_timed(_THREAD, "commit", "Commits"),
    *_timed(_THREAD, "poll", "Polls"),
    *_timed(_THREAD, "punctuate", "Punctuations"),
    Family(_THREAD, "poll-records-avg", "Records of a poll that brought some, on average."),
    Family(_THREAD, "poll-records-max", "Records of a poll, at most."),
    Family(_THREAD, "process-records-avg", "Records that a turn of the thread processed, on average."),
    Family(_THREAD, "process-records-max", "Records that a turn of the thread processed, at most."),
    Family(_THREAD, "blocked-time-ns-total", "How long the thread has waited for Kafka, in ns."),
    Family(_THREAD, "task-created-total", "Tasks that came to this thread."),
    Family(_THREAD, "task-created-rate", "Tasks that came to this thread per second since it started."),
    Family(_THREAD, "task-closed-total", "Tasks that left this thread."),
    Family(_THREAD, "task-closed-rate", "Tasks that left this thread per second since it started."),
    Family(_THREAD, "state", "State of the thread, as a label."),
    Family(_THREAD, "thread-start-time", "When the thread started, in ms since the epoch."),
    Family(_THREAD, "task-assignor-error-total", "Failures of the application's task assignor."),
    Family(_UPDATER, "active-restoring-tasks", "Active tasks that are being restored."),
    Family(_UPDATER, "standby-updating-tasks", "Standby tasks."),
    Family(_UPDATER, "active-paused-tasks", "Active tasks whose restoration is paused."),
    Family(_UPDATER, "standby-paused-tasks", "Standby tasks that are paused."),
    Family(_UPDATER, "restore-remaining-records-total", "Records that restoring tasks still have to replay."),
    Family(_UPDATER, "restore-records-total", "Records replayed into stores of active tasks."),
    Family(_UPDATER, "restore-records-rate", "Records replayed per second, while something is restored."),
    Family(_UPDATER, "restore-call-total", "Batches replayed into stores of active tasks."),
    Family(_UPDATER, "restore-call-rate", "Batches replayed per second since the updater started."),
    Family(_UPDATER, "idle-ratio", "Share of the state updater's time without anything to replay."),
    Family(_UPDATER, "active-restore-ratio", "Share of the state updater's time that active tasks took."),
    Family(_UPDATER, "standby-update-ratio", "Share of the state updater's time that standby tasks took."),
    Family(_UPDATER, "checkpoint-ratio", "Share of the state updater's time that it took to bring state to the disk."),
    Family(_TASK, "restore-remaining-records-total", "Records that the task still has to replay."),
    Family(_TASK, "dropped-records-total", "Records that were dropped."),
    Family(_TASK, "dropped-records-rate", "Records dropped per second since the thread started."),
    Family(_TASK, "active-buffer-count", "Records that wait in the queues of the task."),
    Family(_TASK, "enforced-processing-total", "Records taken while a partition had none buffered (level DEBUG)."),
    Family(_TASK, "enforced-processing-rate", "The same per second since the thread started (level DEBUG)."),
    Family(_TASK, "record-lateness-avg", "How far records were behind stream time lately, in ms (level DEBUG)."),
    Family(_TASK, "record-lateness-max", "How far a record was behind stream time lately, in ms (level DEBUG)."),
    Family(_TASK, "process-total", "Records that the task has processed (level DEBUG)."),
    Family(_TASK, "process-rate", "Records processed per second (level DEBUG)."),
    Family(_TASK, "process-latency-avg", "Average time of a record in ms (level DEBUG)."),
    Family(_TASK, "process-latency-max", "Longest time of a record in ms (level DEBUG)."),
    Family(_TASK, "process-ratio", "Share of the thread's life that the task's records took (level DEBUG)."),
    Family(_TASK, "punctuate-total", "Punctuations of the task (level DEBUG)."),
    Family(_TASK, "punctuate-rate", "Punctuations per second since the thread started (level DEBUG)."),
    Family(_TASK, "punctuate-latency-avg", "Average time of a punctuation in ms (level DEBUG)."),
    Family(_TASK, "punctuate-latency-max", "Longest time of a punctuation in ms (level DEBUG)."),
    Family(_TASK, "active-process-ratio", "Share of the task in the time that the thread's records took."),
    Family(_TASK, "restore-total", "Records replayed into the stores of the active task (level DEBUG)."),
    Family(_TASK, "restore-rate", "Records replayed per second since the thread started (level DEBUG)."),
    Family(_TASK, "update-total", "Records replayed into the stores of the standby task (level DEBUG)."),
    Family(_TASK, "update-rate", "Records replayed per second since the thread started (level DEBUG)."),
    Family(_TASK, "cache-size-bytes-total", "Bytes in the record caches of the task (level DEBUG)."),
    Family(_CACHE, "hit-ratio-avg", "Share of the reads of a store that its record cache answered (level DEBUG)."),
    Family(_CACHE, "hit-ratio-min", "That share after each read lately, at least (level DEBUG)."),
    Family(_CACHE, "hit-ratio-max", "That share after each read lately, at most (level DEBUG)."),
    Family(_CONSUMER, "records-lag", "Records of an input partition that the consumer has not delivered yet."),
    Family(_TOPIC, "records-consumed-total", "Records that came from a topic."),
    Family(_TOPIC, "bytes-consumed-total", "Bytes that came from a topic (level DEBUG)."),
    Family(_TOPIC, "records-produced-total", "Records that a sink sent to a topic (level DEBUG)."),
    Family(_TOPIC, "bytes-produced-total", "Bytes that a sink sent to a topic (level DEBUG)."),
    *(family for operation in OPERATIONS for family in _used(operation)),
    *(Family(_STATE, name, of) for name, of in PROPERTIES.items()),
    Family(_STATE, "num-keys", "Entries of a store in memory."),
    Family(_STATE, "num-open-iterators", "Iterators over a store that were opened and have not ended."),
    Family(_STATE, "oldest-iterator-open-since-ms", "When the oldest of them was opened, in ms (level DEBUG)."),
    Family(_STATE, "iterator-duration-avg", "How long iterators were open, in ns, on average (level DEBUG)."),
    Family(_STATE, "iterator-duration-max", "How long an iterator was open, in ns, at most (level DEBUG)."),
    Family(_STATE, "record-e2e-latency-avg", "How old records were lately when they were put, in ms (level TRACE)."),
    Family(_STATE, "record-e2e-latency-min", "How old a record was when it was put, at least (level TRACE)."),
    Family(_STATE, "record-e2e-latency-max", "How old a record was when it was put, at most (level TRACE)."),
    Family(_STATE, "suppression-buffer-size-avg", "Bytes in a buffer of suppress, on average (level DEBUG)."),
    Family(_STATE, "suppression-buffer-size-max", "Bytes in a buffer of suppress, at most (level DEBUG)."),
    Family(_STATE, "suppression-buffer-count-avg", "Keys in a buffer of suppress, on average (level DEBUG)."),
    Family(_STATE, "suppression-buffer-count-max", "Keys in a buffer of suppress, at most (level DEBUG)."),
    Family(_NODE, "process-total", "Records that a node got (level DEBUG)."),
    Family(_NODE, "process-rate", "Records that a node got per second (level DEBUG)."),
    Family(_NODE, "record-e2e-latency-avg", "How old records were lately, in ms (after last nodes: level DEBUG)."),
    Family(_NODE, "record-e2e-latency-min", "How old a record was lately, at least (after last nodes: level DEBUG)."),
    Family(_NODE, "record-e2e-latency-max", "How old a record was lately, at most (after last nodes: level DEBUG)."),
    Family(_NODE, "suppression-emit-total", "Results that suppress sent on (level DEBUG)."),
    Family(_NODE, "suppression-emit-rate", "Results that suppress sent on per second (level DEBUG)."),
    Family(_NODE, "window-aggregate-final-emit-total", "Final results that were sent on (level DEBUG)."),
    Family(_NODE, "window-aggregate-final-emit-rate", "Final results sent on per second (level DEBUG)."),
    Family(_NODE, "window-aggregate-final-emit-latency-avg", "Time of sending them lately, in ms (level DEBUG)."),
    Family(_NODE, "window-aggregate-final-emit-latency-max", "Longest time of sending them lately (level DEBUG)."),
)

FAMILIES: Final[Mapping[tuple[str, str], Family]] = {(family.group, family.name): family for family in _ALL}
"""By group and name."""


_OF_PROCESSES: Final = {
    "up": "1 when the process sent its metrics to its supervisor, else 0.",
    "restarts-total": "Restarts of the process by its supervisor.",
}
"""Metrics that a supervisor adds; no client measures them."""

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")


def family_of(group: str, name: str) -> Family:
    """That of a figure; one of a processor's own (``context.metrics``) has no sentence yet."""
    if group == PROCESS and name in _OF_PROCESSES:
        return Family(group, name, _OF_PROCESSES[name])
    return FAMILIES.get((group, name)) or Family(group, name, "Of the application's own.")


def family_name(group: str, name: str) -> str:
    """``kafka_streams_stream_thread_metrics_process_rate``."""
    return _NOT_IN_NAMES.sub("_", f"kafka_streams_{group}_{name}")


def label(tag: str) -> str:
    """``thread_id``. Names of labels begin with a letter; those with two underlines are Prometheus' own."""
    text = _NOT_IN_NAMES.sub("_", tag)
    return text if text[:1].isalpha() else f"tag_{text.lstrip('_')}"
