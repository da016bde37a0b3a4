"""Metrics of single nodes with ``metrics.recording.level = DEBUG``, with Kafka Streams' names."""

from __future__ import annotations

from collections.abc import Iterator

from streams_py.topology.metrics.averages import Sampled


class NodeMetrics:
    """Metrics of one node in one task. The task's thread writes, any thread reads.

    ``processed`` counts the records that arrived. ``end_to_end`` is for a node without children: the age of records, in
    ms, when the node has processed them.
    """

    __slots__ = ("_emission", "_emitted", "end_to_end", "processed")

    def __init__(self) -> None:
        self.processed = 0
        self.end_to_end = Sampled()
        self._emitted: dict[str, int] = {}
        self._emission: dict[str, Sampled] = {}

    def emitted(self, name: str, records: int = 1) -> None:
        """Count ``records`` results that were sent after waiting."""
        self._emitted[name] = self._emitted.get(name, 0) + records

    def emission_took(self, name: str, took_ms: int, now_ms: int) -> None:
        """Record the duration of an emission: searching and sending waiting results."""
        self._emission.setdefault(name, Sampled()).add(took_ms, now_ms)

    def metrics(self, seconds: float, now_ms: int) -> Iterator[tuple[str, float]]:
        """Yield names and values. Rates are averages over ``seconds`` seconds."""
        yield "process-total", self.processed
        yield "process-rate", self.processed / seconds
        yield from latency_metrics(self.end_to_end, now_ms)
        for name, count in list(self._emitted.items()):
            yield f"{name}-total", count
            yield f"{name}-rate", count / seconds
        for name, took in list(self._emission.items()):
            extent = took.extent(now_ms)
            if extent is not None:
                yield f"{name}-latency-avg", extent.average
                yield f"{name}-latency-max", extent.most


def latency_metrics(end_to_end: Sampled, now_ms: int) -> Iterator[tuple[str, float]]:
    """Yield the latency from the timestamps of records; nothing if no record arrived recently."""
    extent = end_to_end.extent(now_ms)
    if extent is not None:
        yield "record-e2e-latency-avg", extent.average
        yield "record-e2e-latency-min", extent.least
        yield "record-e2e-latency-max", extent.most
