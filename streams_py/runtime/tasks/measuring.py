"""What takes figures of single records: only with ``metrics.recording.level = DEBUG``, since every record pays for it.

A node's function is wrapped in one that measures. Without DEBUG nothing of this is in the path of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streams_py.ports import Headers, RawRecord
from streams_py.record_headers import headers_of_all
from streams_py.topology.node_figures import NodeFigures
from streams_py.topology.nodes import Process, RecordContext
from streams_py.topology.sampled import Sampled

__all__ = ["SentRecords", "bytes_of", "measured", "measured_source"]

_FIXED_BYTES = 20
"""Of a record beside key, value, headers and the topic's name: Kafka Streams counts timestamp and offset with 8 each,
the partition with 4."""


def measured(process: Process, figures: NodeFigures, now_ms: Callable[[], int], *, is_last: bool) -> Process:
    """The same function, counting its calls. ``is_last``: nothing comes after the node, so it is said how old a record
    is when the node has ended with it."""

    def count_and_process(key: Any, value: Any, timestamp_ms: int) -> None:
        figures.processed += 1
        process(key, value, timestamp_ms)

    def process_to_the_end(key: Any, value: Any, timestamp_ms: int) -> None:
        figures.processed += 1
        process(key, value, timestamp_ms)
        ended_ms = now_ms()
        figures.end_to_end.add(ended_ms - timestamp_ms, ended_ms)

    return process_to_the_end if is_last else count_and_process


def measured_source(
    process: Process, figures: NodeFigures, record: RecordContext, lateness: Sampled, now_ms: Callable[[], int]
) -> Process:
    """The function of a source node, which also measures how far records are behind their task's stream time."""

    def measure_and_process(key: Any, value: Any, timestamp_ms: int) -> None:
        figures.processed += 1
        lateness.add(record.stream_time_ms - timestamp_ms, now_ms())
        process(key, value, timestamp_ms)

    return measure_and_process


def bytes_of(records: Sequence[RawRecord]) -> int:
    """As Kafka Streams counts them."""
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
    """What the sinks of one task have handed to its producer, by node and topic."""

    by_topic: dict[tuple[str, str], _Sent] = field(default_factory=dict)

    def note(self, node: str, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None) -> None:
        """One more."""
        sent = self.by_topic.setdefault((node, topic), _Sent())
        sent.records += 1
        sent.bytes += _bytes(topic, value, key, headers)

    def counted(self, node: str, send: Callable[..., None]) -> Callable[..., None]:
        """A function that sends a record (topic, value, key, ..., headers), counting what the sink sends."""
        note = self.note

        def send_and_note(topic: str, value: bytes | None, key: bytes | None, *rest: Any) -> None:
            send(topic, value, key, *rest)
            note(node, topic, value, key, rest[-1])

        return send_and_note
