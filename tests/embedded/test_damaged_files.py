"""A store file whose damage shows when a task reads it: the task is restored, and no row is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streams_py import KafkaStreams, StreamsBuilder
from streams_py.adapters.confluent.embedded.cluster import EmbeddedCluster
from streams_py.errors import InvalidStateStoreError, StreamsError
from streams_py.serdes import STRING
from streams_py.state.disk.database import TaskDatabase
from streams_py.topology.topology import Topology
from tests.support.waiting import until

ROWS = 20_000


def latest() -> Topology:
    """The last value by key. Processing a record again, as at-least-once does, changes nothing."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("in").group_by_key().reduce(lambda _, value: value, store="texts")
    return builder.build()


def feed(cluster: EmbeddedCluster, rows: dict[str, str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for key, value in rows.items():
        producer.produce("in", value, key)
        producer.poll(0)
    assert producer.flush(60) == 0


def has(streams: KafkaStreams, rows: dict[str, str]) -> bool:
    try:
        found = {key: getattr(value, "value", value) for key, value in streams.store("texts").all()}
    except StreamsError:  # the store is being restored, or one of its files is damaged
        return False
    return found == rows


def has_last(streams: KafkaStreams, rows: dict[str, str]) -> bool:
    """Whether the last row is there, without a look into files."""
    last = list(rows)[-1]
    try:
        found = streams.store("texts").get(last)
    except InvalidStateStoreError:
        return False
    return getattr(found, "value", found) == rows[last]


def test_task_that_reads_a_damaged_file_is_restored(
    short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_tmp))
    config = {
        "application.id": "app",
        "bootstrap.servers": "embedded",
        "state.dir": str(tmp_path / "state"),
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
    }
    drawn = random.Random(1)
    rows = {f"k{number:06}": drawn.randbytes(100).hex() for number in range(ROWS)}
    some = dict.fromkeys(list(rows)[::50], "changed")
    after = rows | some
    errors: list[Exception] = []
    with EmbeddedCluster.join() as cluster:
        cluster.create_topic("in", 1)
        with KafkaStreams(latest(), config, on_error=errors.append) as streams:
            feed(cluster, rows)
            until(lambda: has_last(streams, rows), "all rows")
        largest = max((tmp_path / "state").rglob("*.sst"), key=lambda path: path.stat().st_size)
        data = bytearray(largest.read_bytes())
        for at in range(len(data) // 4, len(data) // 2, 3_000):  # blocks of data, not the index at the end
            data[at] ^= 0xFF
        largest.write_bytes(data)
        with KafkaStreams(latest(), config, on_error=errors.append) as streams:
            feed(cluster, some)
            until(lambda: has(streams, after), "the rows, some of them changed")
        assert errors == []
        warned = [one.getMessage() for one in caplog.records if "store files are damaged" in one.getMessage()]
        assert len(warned) == 1
        assert (tmp_path / "state" / "app" / "0_0" / "rocksdb-damaged").is_dir()
        with KafkaStreams(latest(), config, on_error=errors.append) as streams:
            until(lambda: has(streams, after), "the same after another start")


def test_task_whose_compaction_meets_a_damaged_file_is_restored(
    short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """RocksDB compacts in the background. After an error it refuses all writes, and cannot be closed cleanly."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_tmp))
    opened: list[TaskDatabase] = []
    first = TaskDatabase._open  # to count the databases
    # See above.
    monkeypatch.setattr(TaskDatabase, "_open", lambda self, wanted: opened.append(self) or first(self, wanted))
    config = {
        "application.id": "app",
        "bootstrap.servers": "embedded",
        "state.dir": str(tmp_path / "state"),
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
    }
    drawn = random.Random(1)
    errors: list[Exception] = []
    with EmbeddedCluster.join() as cluster:
        cluster.create_topic("in", 1)
        for _ in range(2):  # two files with the same keys, which compaction merges
            rows = {f"k{number:06}": drawn.randbytes(100).hex() for number in range(ROWS)}
            with KafkaStreams(latest(), config, on_error=errors.append) as streams:
                feed(cluster, rows)
                until(lambda rows=rows, streams=streams: has_last(streams, rows), "all rows")
        largest = max((tmp_path / "state").rglob("*.sst"), key=lambda path: path.stat().st_size)
        data = bytearray(largest.read_bytes())
        for at in range(len(data) // 4, len(data) // 2, 3_000):
            data[at] ^= 0xFF
        largest.write_bytes(data)
        with KafkaStreams(latest(), config, on_error=errors.append) as streams:
            until(lambda: has_last(streams, rows), "the task")
            opened[-1].family("texts").compact_range(None, None)
            feed(cluster, {"another": "row"})
            until(lambda: has(streams, rows | {"another": "row"}), "all rows, and one more")
        assert errors == []
        assert "store files are damaged" in caplog.text
