"""Programs with record caches that are much too small, compared with Kafka Streams: the same records in the same order.

The time of each eviction decides the order of all records, across all topics. So bytes must be counted in the same way,
each read and write must make an entry the newest one, and the eviction of a dirty entry must flush all others of its
store. This is true for these programs. With session stores in a cache of about 1 kB the order can differ from Kafka
Streams.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.topology.drawn_programs import build
from tests.support.topology.recorded_runs import feed

PROGRAMS: list[dict[str, Any]] = [
    json.loads(line)
    for line in gzip.decompress(
        Path(__file__).with_name("recorded").joinpath("evicting.jsonl.gz").read_bytes()
    ).splitlines()
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program["id"])
def test_what_small_caches_let_go_comes_in_the_order_of_kafka_streams(program: dict[str, Any]) -> None:
    for run in program["runs"]:
        rows, _ = feed(build(program), run)
        assert in_order(rows) == in_order(run["rows"])


def in_order(rows: Any) -> list[list[Any]]:
    """Return the records without changes of suppress buffers, which have no timestamp and no order within a commit."""
    return [row for row in rows if row[4] is not None]
