"""Programs that mix operators: the same description, output, changelogs and stores as in Kafka Streams.

Recorded with Kafka Streams' TopologyTestDriver: random input with null keys and values, headers, late records and jumps
in time, once without and once with a record cache.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from streams_py.topology.declare.stores import StoreKind
from tests.support.topology import chained_programs, edge_programs, mixed_programs
from tests.support.topology.recorded_runs import by_topic, feed, in_one_order

BUILD = {
    id: programs.build for programs in (mixed_programs, edge_programs, chained_programs) for id in programs.PROGRAMS
}
LISTED = (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW)
RUNS: dict[str, dict[str, Any]] = {
    f"{run['id']}-cache-{run['cache']}-{number}": run
    for path in sorted(Path(__file__).with_name("recorded").glob("*_programs.jsonl.gz"))
    for number, run in enumerate(map(json.loads, gzip.decompress(path.read_bytes()).splitlines()))
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_program_does_what_kafka_streams_does(run: dict[str, Any]) -> None:
    topology = BUILD[run["id"]](run["id"])
    assert in_one_order(topology.describe()) == in_one_order(run["describe"])
    rows, stores = feed(topology, run)
    ours, theirs = by_topic(rows), by_topic(run["rows"])
    assert ours.keys() == theirs.keys()
    for topic in theirs:
        assert ours[topic] == theirs[topic], topic
    for name, content in run["stores"].items():
        if topology.stores[name].kind in LISTED:
            assert sorted(stores[name]) == sorted(content), name


def test_every_program_is_recorded() -> None:
    assert {run["id"] for run in RUNS.values()} == set(BUILD)
