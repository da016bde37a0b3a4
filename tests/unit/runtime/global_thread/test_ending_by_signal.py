"""Global stores after a signal: before they are filled, during that, and while tasks read them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.thread.states import State, ThreadState
from streams_py.serdes import STRING
from streams_py.topology.declare.processor import Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.dsl.builder import StreamsBuilder
from tests.support.runtime.global_tables import Upper, Waiting, client, custom, table
from tests.support.runtime.world import World
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(Waiting, "is_away", True)
    monkeypatch.setattr(Waiting, "tries", 0)
    made = World(g=1)
    made.write("g", b"one", key=b"a")
    return made


def cancel_restore(streams: KafkaStreams) -> None:
    """Do what a signal to a program in ``run`` does first."""
    streams._global_thread.cancel_restore()  # a real signal would stop the tests


def test_client_that_is_told_to_end_while_it_fills_global_stores_processes_nothing_and_hands_nothing_over(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("g", b"three", key=b"c")
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.add_global_store(key_value_store("names", logging=False), "g", Waiting)
    builder.stream("g2").to("out")
    world.topics.update({"g2": 1, "out": 1})
    streams = client(world, builder.build(), tmp_path, **{"task.timeout.ms": 600_000})
    starting = threading.Thread(target=streams.start)
    starting.start()
    until(lambda: Waiting.tries, "the record to be tried")
    cancel_restore(streams)
    starting.join(PATIENCE_S)
    assert not starting.is_alive()
    assert streams.state is State.REBALANCING
    assert {thread.state for thread in streams.metadata_for_local_threads()} == {ThreadState.CREATED}
    monkeypatch.setattr(streams, "drain", lambda timeout: pytest.fail("it waits for others to take over what it lacks"))
    assert streams._close_and_log(drain=60)  # what `run` calls after a signal
    assert streams.state is State.NOT_RUNNING


def test_client_that_is_told_to_end_before_it_fills_global_stores_does_not_begin_to(
    world: World, tmp_path: Path
) -> None:
    """For example while it connects."""
    world.write("g", b"three", key=b"c")
    streams = client(world, custom(Waiting), tmp_path)
    cancel_restore(streams)
    streams.start()
    assert streams.state is State.REBALANCING
    assert Waiting.tries == 0
    assert streams.close()


def test_global_store_follows_its_topic_until_the_tasks_that_read_it_have_ended(world: World, tmp_path: Path) -> None:
    """A signal comes first. Draining may take a minute after that, and a last commit joins with the global store."""
    with client(world, table(), tmp_path) as streams:
        cancel_restore(streams)
        world.write("g", b"three", key=b"a")
        until(lambda: streams.store("names").get("a") == "three", "the new value")
        world.write("g", b"four", key=b"a")  # the thread has iterated since, and would have noticed the request to stop
        until(lambda: streams.store("names").get("a") == "four", "the newest value")


class Poisoned(Upper):
    """Fails for one record."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "poison":
            raise ValueError("cannot stand it")
        super().process(record)


@pytest.mark.parametrize("has_tasks", [True, False])
def test_global_store_is_open_until_the_tasks_that_read_it_have_ended_when_its_thread_fails(
    world: World, tmp_path: Path, has_tasks: bool
) -> None:
    """Otherwise the tasks would fail too, with a misleading error."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.add_global_store(key_value_store("names", logging=False), "g", Poisoned)
    if has_tasks:
        builder.stream("g2").to("out")
        world.topics.update({"g2": 1, "out": 1})
    found = []

    def read(new: State, old: State) -> None:
        if new is State.PENDING_ERROR:
            found.append(everywhere.stores.stores["names"].get("a"))

    streams = client(world, builder.build(), tmp_path, on_state=read)
    streams.start()
    everywhere = streams._global_thread.thread  # its stores stay open after the client ends for users
    assert everywhere is not None
    world.write("g", b"poison", key=b"b")
    until(lambda: streams.state is State.ERROR, "the client to end")
    assert found == ["ONE"]
    assert "cannot stand it" in str(streams.error)
    thread = everywhere._thread  # the client does not wait for it after an error
    until(lambda: not thread.is_alive(), "its thread to end")
    assert not everywhere.stores.is_open
