"""Metrics of single records, which every record pays for: only with ``metrics.recording.level = DEBUG``.

A measuring function wraps a node's function. Without DEBUG, the path of a record has no wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streams_py.ports import Headers, RawRecord
from streams_py.ports.record_headers import headers_of_all
from streams_py.topology.declare.nodes import Process, RecordContext
from streams_py.topology.metrics.averages import Sampled
from streams_py.topology.metrics.node_metrics import NodeMetrics

_FIXED_BYTES = 20
"""Bytes of a record besides key, value, headers and topic name, as Kafka Streams counts them: timestamp and offset with
8 bytes each, partition with 4."""


def measured(process: Process, node_metrics: NodeMetrics, now_ms: Callable[[], int], *, is_last: bool) -> Process:
    """Return a function that also counts its calls.

    Args:
        is_last: Whether the node has no children. Then the age of each record is measured after the node.
    """

    def count_and_process(key: Any, value: Any, timestamp_ms: int) -> None:
        node_metrics.processed += 1
        process(key, value, timestamp_ms)

    def process_to_the_end(key: Any, value: Any, timestamp_ms: int) -> None:
        node_metrics.processed += 1
        process(key, value, timestamp_ms)
        ended_ms = now_ms()
        node_metrics.end_to_end.add(ended_ms - timestamp_ms, ended_ms)

    return process_to_the_end if is_last else count_and_process


def measured_source(
    process: Process, node_metrics: NodeMetrics, record: RecordContext, lateness: Sampled, now_ms: Callable[[], int]
) -> Process:
    """Return the function of a source node, also measuring how far records are behind their task's stream time."""

    def measure_and_process(key: Any, value: Any, timestamp_ms: int) -> None:
        node_metrics.processed += 1
        lateness.add(record.stream_time_ms - timestamp_ms, now_ms())
        process(key, value, timestamp_ms)

    return measure_and_process


def bytes_of(records: Sequence[RawRecord]) -> int:
    """Return the size of the records, as Kafka Streams counts it."""
    headers = headers_of_all(records)
    return sum(_bytes(r.topic(), r.value(), r.key(), of) for r, of in zip(records, headers, strict=True))


def _bytes(topic: str, value: bytes | None, key: bytes | None, headers: Headers | None) -> int:
    of_headers = sum(len(name.encode()) + len(of or b"") for name, of in headers or ())
    return _FIXED_BYTES + len(topic.encode()) + len(value or b"") + len(key or b"") + of_headers


@dataclass(slots=True)
class _Sent:
    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SentRecords:
    """Records that the sinks of one task have sent, by node and topic."""

    by_topic: dict[tuple[str, str], _Sent] = field(default_factory=dict)

    def note(self, node: str, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None) -> None:
        """Count a record."""
        sent = self.by_topic.setdefault((node, topic), _Sent())
        sent.records += 1
        sent.bytes += _bytes(topic, value, key, headers)

    def counted(self, node: str, send: Callable[..., None]) -> Callable[..., None]:
        """Return a function that sends a record (topic, value, key, ..., headers) and counts it."""
        note = self.note

        def send_and_note(topic: str, value: bytes | None, key: bytes | None, *rest: Any) -> None:
            send(topic, value, key, *rest)
            note(node, topic, value, key, rest[-1])

        return send_and_note
