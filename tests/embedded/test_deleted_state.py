"""The state directory is deleted under an application that works with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streams_py import KafkaStreams, StreamThreadExceptionResponse
from streams_py.adapters.confluent.embedded.cluster import EmbeddedCluster
from streams_py.errors import StateError
from tests.support.embedded_counts import counting, counts
from tests.support.waiting import until

LINES = [f"line {number}" for number in range(20)]


def feed(cluster: EmbeddedCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for line in LINES:
        producer.produce("lines", line)
    assert producer.flush(30) == 0


def all_are(streams: KafkaStreams, count: int) -> bool:
    return counts(streams) == dict.fromkeys(LINES, count)


@pytest.mark.parametrize("gone", ["", "app", "app/1_0"])
def test_replaced_threads_continue_with_everything(
    short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_tmp))
    state_dir = tmp_path / "state"
    config = {
        "application.id": "app",
        "bootstrap.servers": "embedded",
        "state.dir": str(state_dir),
        "commit.interval.ms": 100,
        "num.stream.threads": 2,
    }
    errors: list[Exception] = []

    def replace(error: Exception) -> StreamThreadExceptionResponse:
        errors.append(error)
        return StreamThreadExceptionResponse.REPLACE_THREAD

    with EmbeddedCluster.join() as cluster:
        with KafkaStreams(counting().build(), config, on_error=replace) as streams:
            feed(cluster)
            until(lambda: all_are(streams, 1), "all to be counted")
            shutil.rmtree(state_dir / gone)
            feed(cluster)
            until(lambda: bool(errors), "a commit into the directory")
            until(lambda: all_are(streams, 2), "all to be counted by threads that restored the state")
            feed(cluster)
            until(lambda: all_are(streams, 3), "all to be counted once more")
        assert all(isinstance(error, StateError) for error in errors)
        assert all(str(state_dir) in str(error) and "was deleted while" in str(error) for error in errors)
        with KafkaStreams(counting().build(), config) as streams:
            until(lambda: all_are(streams, 3), "the state that was closed to be there")
