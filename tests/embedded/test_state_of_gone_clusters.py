"""State in ``state.dir`` survives an embedded cluster; counting must not continue from it on the next cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from streams_py import KafkaStreams
from streams_py.adapters.confluent.embedded.cluster import EmbeddedCluster
from tests.support.embedded_clusters import wait_for_end
from tests.support.embedded_counts import counting, counts
from tests.support.waiting import until


@pytest.fixture
def scratch(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Embedded clusters live here, and nowhere else."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_tmp))
    return short_tmp


def test_application_that_is_run_three_times_on_the_same_lines_counts_the_same(scratch: Path, tmp_path: Path) -> None:
    for _ in range(3):
        assert count_lines(tmp_path) == {"hello": 2, "world": 1}
        wait_for_end(scratch)


def count_lines(state_dir: Path) -> dict[str, int]:
    config = {
        "application.id": "app",
        "bootstrap.servers": "embedded",
        "state.dir": str(state_dir),
        "commit.interval.ms": 100,
    }
    with EmbeddedCluster.join() as cluster, KafkaStreams(counting().build(), config) as streams:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for line in ("hello", "world", "hello"):
            producer.produce("lines", line)
        assert producer.flush(30) == 0
        until(lambda: sum(counts(streams).values()) >= 3, "all three lines to be counted")
        return counts(streams)
