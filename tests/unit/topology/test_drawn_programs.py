"""Random programs, and some with many records close together, compared with Kafka Streams.

The names, topics, groups, records and stores must be the same. The input has times at the edges of windows, graces and
limits, null keys and values, late records and headers. The programs run with and without a record cache, and with
commits after each record and after several.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from streams_py.topology.topology import Topology
from tests.support.topology.drawn_programs import build
from tests.support.topology.recorded_runs import by_topic, feed, in_one_order

PROGRAMS: dict[str, dict[str, Any]] = {
    program["id"]: program
    for program in map(
        json.loads,
        gzip.decompress(Path(__file__).with_name("recorded").joinpath("drawn.jsonl.gz").read_bytes()).splitlines(),
    )
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_does_what_kafka_streams_does(program: dict[str, Any]) -> None:
    topology = build(program)
    assert in_one_order(topology.describe()) == in_one_order(program["describe"])
    assert metadata_of(topology, config_of(program)) == program["meta"]
    for run in program["runs"]:
        rows, stores = feed(build(program), run)
        ours, theirs = by_topic(rows), by_topic(run["rows"])
        assert ours.keys() == theirs.keys()
        for topic in theirs:
            assert ours[topic] == theirs[topic], topic
        for name, content in run["stores"].items():
            assert sorted(stores[name]) == sorted(content), name


def config_of(program: dict[str, Any]) -> dict[str, Any]:
    config = {f"topic.{key}": value for key, value in program.get("topic_config", {}).items()}
    if "additional" in program:
        config["windowstore.changelog.additional.retention.ms"] = program["additional"]
    return config


def metadata_of(topology: Topology, config: dict[str, Any]) -> dict[str, Any]:
    metadata = topology.metadata("app", config)
    subs = metadata.subtopologies
    return {
        "subs": [
            {
                "id": id,
                "source_topics": sorted(sub.source_topics),
                "sink_topics": sorted(sub.sink_topics),
                "repartition_topics": sorted(sub.repartition_sources),
                "changelog_topics": sorted(sub.changelog_topics),
                "source_changelogs": sorted(sub.source_changelogs),
            }
            for id, sub in sorted(subs.items())
        ],
        "topics": {
            topic.name: {"partitions": topic.partitions, "config": dict(topic.config)}
            for sub in subs.values()
            for topic in (*sub.repartition_sources.values(), *sub.changelogs.values())
        },
        "groups": sorted(",".join(sorted(group)) for group in metadata.copartition_groups),
    }
