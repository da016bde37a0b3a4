"""Metrics of one active task without its stores, under Kafka Streams' names. Thread-safe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streams_py.runtime.tasks.record.binding import BoundTopology
from streams_py.runtime.tasks.record.loop import RecordLoop
from streams_py.runtime.tasks.record.measuring import SentRecords
from streams_py.topology.metrics.node_metrics import latency_metrics

_Metrics = Iterator[tuple[str, float]]


class TaskMetrics:
    """Metrics of one active task. ``sent``: the records of its sinks, if measured."""

    def __init__(self, loop: RecordLoop, sent: SentRecords | None) -> None:
        self._loop = loop
        self._sent = sent

    def of_task(self, bound: BoundTopology | None, seconds: float, now_ms: int) -> _Metrics:
        """Yield the metrics that only a measured task has, over this time."""
        yield "enforced-processing-total", self._loop.enforced
        yield "enforced-processing-rate", self._loop.enforced / seconds
        lateness = None if bound is None else bound.lateness.extent(now_ms)
        if lateness is not None:
            yield "record-lateness-avg", lateness.average
            yield "record-lateness-max", lateness.most

    def of_nodes(self, bound: BoundTopology | None, seconds: float, now_ms: int) -> Iterator[tuple[str, _Metrics]]:
        """Yield the metrics of each measured node, and for source nodes always the age of records when processed."""
        for node, end_to_end in self._loop.end_to_end.items():
            yield node, latency_metrics(end_to_end, now_ms)
        for node, of_node in () if bound is None else bound.node_metrics.items():
            yield node, of_node.metrics(seconds, now_ms)

    def of_topics(self) -> Iterator[tuple[str, str, Mapping[str, float]]]:
        """Yield by node and topic the number of records read and written."""
        consumed: dict[tuple[str, str], list[int]] = {}
        for partition, queue in list(self._loop.queues.items()):
            counts = consumed.setdefault((queue.reader.node, partition.topic), [0, 0])
            counts[0] += queue.received
            counts[1] += queue.received_bytes
        for (node, topic), (records, size) in consumed.items():
            counted = {} if self._sent is None else {"bytes-consumed-total": size}
            yield node, topic, {"records-consumed-total": records, **counted}
        for (node, topic), sent in () if self._sent is None else list(self._sent.by_topic.items()):
            yield node, topic, {"records-produced-total": sent.records, "bytes-produced-total": sent.bytes}
