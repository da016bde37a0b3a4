"""The metrics of a client, under the names that Kafka Streams gives them.

Groups, tags and names are Kafka's (``stream-thread-metrics`` / ``process-rate``). Totals count since the thread start
or the task's assignment. Rates are averages over that time. Latencies are in ms, latencies of stores in ns. With
``metrics.recording.level`` INFO (the default) there are only metrics that cost nothing. DEBUG adds metrics of tasks,
nodes and store operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, NamedTuple

from streams_py.runtime.global_thread.global_thread import GlobalThread
from streams_py.runtime.processes.measured import Measured
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.task import Task, TaskPhase
from streams_py.runtime.thread.states import State, ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread

if TYPE_CHECKING:
    from streams_py.runtime.client.state import ClientState
    from streams_py.runtime.client.stream_threads import StreamThreads
    from streams_py.runtime.wiring.global_thread import ClientGlobalThread
    from streams_py.runtime.wiring.shared import SharedResources

Metrics = dict[str, dict[str, float | str]]
_CLIENT: Final = "stream-metrics"
_DISTRIBUTION: Final = "kafka-streams-py"
_NS_PER_MS: Final = 1_000_000
_NO_TASK: Final = "-1_-1"
"""The task id that Kafka Streams uses for the global stores."""


class At(NamedTuple):
    """The time of a reading. ``now_ms`` is wall-clock time, ``seconds`` the time since the thread started."""

    now_ms: int
    seconds: float
    is_debug: bool


class ClientMetrics:
    """The metrics of one client. Thread-safe."""

    def __init__(
        self, shared: SharedResources, state: ClientState, threads: StreamThreads, global_thread: ClientGlobalThread
    ) -> None:
        self._shared = shared
        self._global_thread = global_thread
        self._state = state
        self._threads = threads

    def by_group(self) -> Metrics:
        """Return all metrics: group with tags in braces -> name -> value."""
        return client_metrics(self._input(), topology=self._shared.topology_description)

    def measure(self) -> list[Measured]:
        """Return the same metrics as a list of group, tags, name and value."""
        return list(measure(self._input()))

    def _input(self) -> MetricsInput:
        config = self._shared.config
        return MetricsInput(
            config.application_id,
            self._shared.client_id,
            self._state.now,
            self._threads.current(),
            self._threads.failed,
            self._shared.clock.now_ms(),
            is_debug=config.metrics_recording_level != "INFO",
            global_thread=self._global_thread.thread,
            evicted_members=self._shared.dead_members.removed,
        )


class MetricsInput(NamedTuple):
    """Input of :func:`measure`: the client's identity, state and threads, and the recording level.

    Without global stores, ``global_thread`` is None.
    """

    application_id: str
    client_id: str
    state: State
    threads: Sequence[StreamThread]
    failed_threads: int
    now_ms: int
    is_debug: bool
    global_thread: GlobalThread | None = None
    evicted_members: int = 0


def client_metrics(given: MetricsInput, *, topology: str) -> Metrics:
    """Return all metrics of a client: group with tags in braces -> name -> value.

    They include the topology's description, which is too long for the labels of exporters.
    """
    metrics = _by_group(measure(given))
    metrics[f"{_CLIENT}{{client-id={given.client_id}}}"]["topology-description"] = topology
    return metrics


def task_metrics(thread: str, tasks: Iterable[Task], at: At) -> Metrics:
    """Return the metrics of a thread's tasks."""
    return _by_group(
        measured for task in tasks for measured in _of_task(task, {"thread-id": thread, "task-id": str(task.id)}, at)
    )


def _by_group(measured: Iterable[Measured]) -> Metrics:
    metrics: Metrics = {}
    for group, tags, name, value in measured:
        text = ",".join(f"{tag}={of}" for tag, of in tags)
        metrics.setdefault(f"{group}{{{text}}}" if tags else group, {})[name] = value
    return metrics


def measure(given: MetricsInput) -> Iterator[Measured]:
    """Yield all metrics. Takes no lock that a restore or a rebalance holds for long."""
    alive = [thread for thread in given.threads if thread.state is not ThreadState.DEAD]
    yield from _each(
        _CLIENT,
        {"client-id": given.client_id},
        {
            "version": _version(),
            "application-id": given.application_id,
            "state": given.state.value,
            "alive-stream-threads": len(alive),
            "failed-stream-threads": given.failed_threads,
            "evicted-dead-members-total": given.evicted_members,
        },
    )
    for thread in alive:
        seconds = _seconds(thread.started_ms, given.now_ms)
        tags = {"thread-id": thread.name}
        yield from _each("stream-thread-metrics", tags, _of_thread(thread, seconds))
        if (updater := thread.updater) is None:
            continue
        yield from _each("stream-state-updater-metrics", {"thread-id": updater.name}, _of_updater(thread, updater))
        yield from _of_input(thread)
        remaining = updater.remaining_records()
        active_ms = sum(task.process_latency.total_ms for task in thread.shown_tasks)
        for task in thread.shown_tasks:
            of_task = {**tags, "task-id": str(task.id)}
            yield from _of_task(task, of_task, At(given.now_ms, seconds, given.is_debug))
            if task.is_active:
                share = task.process_latency.total_ms / active_ms if active_ms else 0.0
                of_active = {
                    "restore-remaining-records-total": remaining.get(task.id, 0),
                    "active-process-ratio": share,
                }
                yield from _each("stream-task-metrics", of_task, of_active)
    if given.global_thread is not None:
        yield from _of_global_stores(given.global_thread, given.now_ms)


def _of_global_stores(thread: GlobalThread, now_ms: int) -> Iterator[Measured]:
    tags = {"thread-id": thread.name, "task-id": _NO_TASK}
    for tag, store, of_store in thread.stores.store_metrics(_seconds(thread.started_ms, now_ms)):
        yield from _each("stream-state-metrics", {**tags, tag: store}, of_store)


def _seconds(since_ms: int, now_ms: int) -> float:
    return max(1, now_ms - since_ms) / 1000


def _of_thread(thread: StreamThread, seconds: float) -> Mapping[str, float | str]:
    control = thread.control
    created, closed = thread.created_tasks, thread.closed_tasks
    return {
        "state": thread.state.value,
        **control.process_latency.metrics("process", seconds),
        "process-total": control.processed_records,
        "process-rate": control.processed_records / seconds,
        **control.commit_latency.metrics("commit", seconds),
        **control.poll_latency.metrics("poll", seconds),
        **control.punctuate_latency.metrics("punctuate", seconds),
        "poll-records-avg": control.poll_records.average_ms,
        "poll-records-max": control.poll_records.max_ms,
        "process-records-avg": control.process_records.average_ms,
        "process-records-max": control.process_records.max_ms,
        "blocked-time-ns-total": control.blocked.total_ms * _NS_PER_MS,
        "task-created-total": created,
        "task-created-rate": created / seconds,
        "task-closed-total": closed,
        "task-closed-rate": closed / seconds,
        "thread-start-time": thread.started_ms,
        "task-assignor-error-total": thread.reported_errors,
    }


def _of_input(thread: StreamThread) -> Iterator[Measured]:
    """Yield the lag of each input partition of the thread's active tasks."""
    lags = thread.control.input_lags
    owned = {partition for task in thread.shown_tasks if task.is_active for partition in task.input_partitions}
    for partition in sorted(owned & lags.keys()):
        tags = {"client-id": f"{thread.name}-consumer", "topic": partition.topic, "partition": str(partition.partition)}
        yield from _each("consumer-fetch-manager-metrics", tags, {"records-lag": lags[partition]})


def _of_updater(thread: StreamThread, updater: StateUpdater) -> Mapping[str, float]:
    tasks = thread.shown_tasks
    actives = sum(task.is_active and task.state is TaskPhase.RESTORING for task in tasks)
    standbys = sum(not task.is_active and task.state is TaskPhase.RUNNING for task in tasks)
    paused = thread.control.paused
    return {
        "active-restoring-tasks": 0 if paused else actives,
        "standby-updating-tasks": 0 if paused else standbys,
        "active-paused-tasks": actives if paused else 0,
        "standby-paused-tasks": standbys if paused else 0,
        "restore-remaining-records-total": sum(updater.remaining_records().values()),
        **updater.metrics,
    }


def _of_task(task: Task, tags: Mapping[str, str], at: At) -> Iterator[Measured]:
    for tag, store, of_store in task.stores.store_metrics(at.seconds):
        yield from _each("stream-state-metrics", {**tags, tag: store}, of_store)
    if at.is_debug:
        replayed = "restore" if task.is_active else "update"
        count = task.restoring.replayed_records
        of_replay = {f"{replayed}-total": count, f"{replayed}-rate": count / at.seconds}
        yield from _each("stream-task-metrics", tags, of_replay)
    if isinstance(task, ActiveTask):
        yield from _of_active(task, tags, at)


def _of_active(task: ActiveTask, tags: Mapping[str, str], at: At) -> Iterator[Measured]:
    seconds, bound = at.seconds, task.bound  # read once: the task's thread may clear it meanwhile
    metrics: dict[str, float] = {
        "dropped-records-total": task.dropped_records,
        "dropped-records-rate": task.dropped_records / seconds,
        "active-buffer-count": task.buffered_records,
    }
    if at.is_debug:
        metrics["process-total"] = task.processed_records
        metrics["process-rate"] = task.processed_records / seconds
        metrics["process-latency-avg"] = task.process_latency.average_ms
        metrics["process-latency-max"] = task.process_latency.max_ms
        metrics["process-ratio"] = task.process_latency.total_ms / 1000 / seconds
        of_punctuation = task.punctuate_latency.metrics("punctuate", seconds)
        metrics.update({name: value for name, value in of_punctuation.items() if name != "punctuate-ratio"})
        metrics.update(task.metrics.of_task(bound, seconds, at.now_ms))
        caches = list(task.stores.cache_metrics())
        metrics["cache-size-bytes-total"] = sum(size for _, size, _ in caches)
        for cached, _, hits in caches:
            of_cache = {**tags, "record-cache-id": cached}
            yield from _each("stream-record-cache-metrics", of_cache, hits)
    yield from _each("stream-task-metrics", tags, metrics)
    for node, topic, of_topic in task.metrics.of_topics():
        yield from _each("stream-topic-metrics", {**tags, "processor-node-id": node, "topic": topic}, of_topic)
    for group, own_tags, own in () if bound is None else bound.metrics.metrics(seconds):
        yield from _each(group, {**tags, **own_tags}, own)
    for node, of_node in task.metrics.of_nodes(bound, seconds, at.now_ms):
        yield from _each("stream-processor-node-metrics", {**tags, "processor-node-id": node}, dict(of_node))


def _each(group: str, tags: Mapping[str, str], metrics: Mapping[str, float | str]) -> Iterator[Measured]:
    of = tuple(tags.items())
    return (Measured(group, of, name, value) for name, value in metrics.items())


def _version() -> str:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
