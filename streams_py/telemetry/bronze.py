"""Bronze: the table of raw events, one row per record, from which all other tables can be built again.

A record that cannot be parsed, or that has an unknown version, is kept with the reason and is not processed further. A
newer version of this library may process it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from streams_protocol import DecodeError
from streams_py.events.codec import OtherVersion, decode_event
from streams_py.events.model import ClientPart, RebalanceHeader, TasksPart

OK: Final = "ok"
UNKNOWN: Final = "unknown"
BAD: Final = "bad"

READ: Final = (
    "status string, reason string, group string, append_ms bigint, topic string, partition int, offset bigint, "
    "kind string, rebalance_id string, part int, parts int, value binary"
)
"""Columns that are parsed from a record. ``part`` is 0 for events that are not part of a rebalance."""

BRONZE: Final = f"{READ}, place_ms bigint, day int"
"""Columns of bronze. ``place_ms`` is the largest append time of the group in the partition so far, see
:mod:`streams_py.telemetry.order`. ``day`` is the day of ``place_ms``, counted from 1970-01-01."""

_LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999. Producers of a topic with CreateTime may set any time; a time out of range counts as 0."""

_ARROW: Final[Any] = pa.schema(
    [
        ("status", pa.string()),
        ("reason", pa.string()),
        ("group", pa.string()),
        ("append_ms", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("kind", pa.string()),
        ("rebalance_id", pa.string()),
        ("part", pa.int32()),
        ("parts", pa.int32()),
        ("value", pa.binary()),
    ]
)


def bronze_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Convert Arrow batches with ``topic partition offset timestamp_ms value`` to batches of :data:`READ`."""
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in ("timestamp_ms", "value")}
        rows = [_read(value) for value in columns["value"]]
        given = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        yield pa.RecordBatch.from_pydict(
            {
                **({name: [] for name in _ARROW.names} if not rows else given),
                "append_ms": [ms if 0 <= ms <= _LATEST_MS else 0 for ms in columns["timestamp_ms"]],
                "topic": batch.column("topic"),
                "partition": batch.column("partition"),
                "offset": batch.column("offset"),
                "value": batch.column("value"),
            },
            schema=_ARROW,
        )


def _read(value: bytes | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "status": OK, "reason": None, "group": None, "kind": None, "rebalance_id": None, "part": 0, "parts": 1
    }  # fmt: skip
    try:
        event = decode_event(value)
    except DecodeError as error:
        return {**row, "status": BAD, "reason": str(error)}
    if isinstance(event, OtherVersion):
        return {**row, "status": UNKNOWN, "reason": f"version {event.version}, kind {event.kind}", "kind": event.kind}
    row["group"], row["kind"] = event.envelope.group, event.kind
    body = event.body
    if isinstance(body, RebalanceHeader | TasksPart | ClientPart):
        row |= {"rebalance_id": body.rebalance_id, "part": body.part, "parts": body.parts}
    return row
