"""Close of the global thread: from user code, on the thread itself, and with failing clients."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from streams_py.serdes import STRING
from streams_py.topology.declare.processor import Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.dsl.builder import StreamsBuilder
from tests.support.runtime.global_tables import Upper, client, custom, table
from tests.support.runtime.world import World, WorldConsumer
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def world() -> World:
    made = World(g=2)
    made.write("g", b"one", key=b"a")
    made.write("g", b"two", key=b"b", partition=1)
    return made


def test_close_leaves_a_global_thread_behind_that_hangs_in_user_code(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams_py.runtime.global_thread.global_thread._STOP_MS", 50)
    entered, leave = threading.Event(), threading.Event()

    class Hanging(Upper):
        def process(self, record: Record[str, str]) -> None:
            if record.value == "three":
                entered.set()
                leave.wait(PATIENCE_S)
            super().process(record)

    streams = client(world, custom(Hanging), tmp_path)
    streams.start()
    world.write("g", b"three", key=b"c")
    assert entered.wait(PATIENCE_S)
    assert streams.close()
    leave.set()
    assert f"is abandoned: it is in {__file__}" in caplog.text


def test_processor_of_a_global_store_may_close_the_client(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[bool] = []

    class Closing(Upper):
        def process(self, record: Record[str, str]) -> None:
            super().process(record)
            if record.value == "close":
                answers.append(streams.close())  # which would wait for this thread, while this thread waits for it

    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.add_global_store(key_value_store("names", logging=False), "g", Closing)
    builder.stream("g2").to("out")
    world.topics.update({"g2": 1, "out": 1})
    streams = client(world, builder.build(), tmp_path)
    streams.start()
    world.write("g", b"close", key=b"c")
    assert streams.wait(PATIENCE_S)
    assert answers == [False]
    assert "is abandoned" not in caplog.text


def test_stores_are_closed_when_the_consumer_cannot_be(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: WorldConsumer) -> None:
        raise OSError("the library is gone")

    first = client(world, table(), tmp_path)
    first.start()
    with monkeypatch.context() as patched:
        patched.setattr(WorldConsumer, "close", fail)
        assert first.close()
    with client(world, table(), tmp_path) as again:
        assert again.store("names").get("a") == "one"
