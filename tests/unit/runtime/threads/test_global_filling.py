"""Who hears how far the filling of global stores is, while nothing runs yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.runtime.kafka_streams import KafkaStreams
from streams_py.runtime.restore.listener import RestoreListener
from streams_py.topology.topology import Topology
from tests.unit.runtime.threads.test_global_thread import client, custom, table
from tests.unit.runtime.world import World


@pytest.fixture
def world() -> World:
    made = World(g=2)
    made.write("g", b"one", key=b"a")
    made.write("g", b"two", key=b"b", partition=1)
    return made


class Heard(RestoreListener):
    """What a restore listener is told, and how far the client says that it is at that moment."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.progress: list[tuple[int, int]] = []
        self.streams: KafkaStreams | None = None

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        self.told.append((changelog.partition, "start", store, start, end))

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        assert self.streams is not None
        now = self.streams.restore_progress()
        self.progress.append((now.records, now.remaining))
        self.told.append((changelog.partition, "batch", store, batch_end, count))

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        self.told.append((changelog.partition, "end", store, total))


@pytest.mark.parametrize("topology", [table, custom])
def test_filling_is_told_to_the_restore_listener_and_its_progress_to_whoever_asks(
    world: World, tmp_path: Path, topology: Callable[[], Topology], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    told: list[list[tuple[Any, ...]]] = []
    for _ in range(2):
        heard = Heard()
        heard.streams = client(world, topology(), tmp_path, restore_listener=heard)
        with heard.streams as streams:
            assert streams.restore_progress().remaining == 0
        told.append([one for number in (0, 1) for one in heard.told if one[0] == number])
    assert told[0] == [
        one
        for number in (0, 1)
        for one in ((number, "start", "names", 0, 1), (number, "batch", "names", 0, 1), (number, "end", "names", 1))
    ]
    assert told[1] == [
        one for number in (0, 1) for one in ((number, "start", "names", 1, 1), (number, "end", "names", 0))
    ]
    (sentence, *_) = [text for text in caplog.messages if "GlobalStreamThread restored" in text]
    assert "restored 2 records" in sentence


def test_progress_of_a_global_store_says_what_is_left(world: World, tmp_path: Path) -> None:
    heard = Heard()
    heard.streams = client(world, table(), tmp_path, restore_listener=heard)
    with heard.streams:
        assert heard.progress == [(1, 1), (2, 0)]
