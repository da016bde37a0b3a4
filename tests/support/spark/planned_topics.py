"""A streaming query over topics, run until it has read everything."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.support.spark.plain import Plain, as_plain
from tests.support.spark.source import micro_batch, stream


def run_stream(given: dict[str, str], rows: int, begun: Any, micro_batches: list[int]) -> tuple[list[Plain], Any]:
    """Micro-batches until the end, each with a new reader, as if the query was restarted every time."""
    found: list[Plain] = []
    while True:
        reader = stream(given)
        end = reader.latestOffset(begun, ReadMaxRows(rows))
        reader.stop()
        if end == begun:
            return found, begun
        reader = stream(given)  # a restart between planning and reading, with what the checkpoint has
        begun, end = json.loads(json.dumps(begun)), json.loads(json.dumps(end))
        read = [as_plain(row) for row in micro_batch(reader, begun, end)]
        reader.stop()
        micro_batches.append(len(read))
        found += read
        begun = end
