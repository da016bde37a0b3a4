"""Tasks with real stores: the state after a close, a recycling, a corruption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py import serdes
from streams_py.ports import BEGINNING
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.standby_task import StandbyTask
from streams_py.state.caching.cache import RecordCache
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import ManualClock, MemoryProducer
from streams_py.topology.dsl.builder import StreamsBuilder
from tests.support.runtime.task_kit import FakeInputs, record

IN, COUNTS = TopicPartition("in", 0), TopicPartition("app-counts-changelog", 0)
TASK = TaskId(0, 0)


class World:
    """A broker, a state directory, and the tasks that a test creates."""

    def __init__(self, path: Path, *, cache_bytes: int) -> None:
        builder = StreamsBuilder()
        grouped = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key()
        grouped.count(store="counts").to_stream().to("out", key=serdes.STRING, value=serdes.INT64)
        self.nodes = builder.build().subtopology(0)
        self.directory = StateDirectory(str(path), "app", warns_of_temporary=False)
        self.directory.open()
        self.producer = MemoryProducer()
        self.producer.track([COUNTS.topic])
        self.cache = RecordCache(cache_bytes)
        self.offset = 0

    def state(self) -> TaskState:
        return TaskState(
            TASK,
            self.nodes.stores,
            StoreEnvironment(self.directory, "thread-1", cache=self.cache),
            application_id="app",
        )

    def active(self, stores: TaskState) -> ActiveTask:
        settings = TaskSettings(application_id="app")
        collector = RecordCollector(TASK, self.producer, settings)
        return ActiveTask(
            TASK,
            self.nodes,
            [IN],
            stores,
            collector=collector,
            inputs=FakeInputs(),
            shared=SharedServices(clock=ManualClock()),
        )

    def run(self, task: ActiveTask) -> None:
        """Move a task from CREATED to RUNNING, and replay its changelog."""
        task.initialize()
        position = task.restoring.restore_position(COUNTS)
        task.restoring.restore(COUNTS, self.producer.records.get(COUNTS, [])[max(0, position) :])
        task.complete_restoration({})

    def count(self, task: ActiveTask, *keys: str) -> None:
        for key in keys:
            task.add_records(IN, [record("x", key=key, offset=self.offset, at=self.offset)])
            self.offset += 1
        assert task.process(len(keys)) == len(keys)

    def commit(self, task: ActiveTask, *, enforce: bool = False) -> None:
        task.flush_caches()
        task.post_commit(enforce_checkpoint=enforce, acked=self.producer.acked_offsets())

    def outputs(self) -> list[tuple[bytes | None, int]]:
        sent = [r for r in self.producer.sent if r.topic() == "out"]
        return [(r.key(), int.from_bytes(r.value() or b"", "big")) for r in sent]


@pytest.fixture(params=[0, 1_000_000], ids=["uncached", "cached"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, cache_bytes=request.param)
    yield world
    world.directory.close()


def test_committed_counts_are_there_after_a_clean_close(world: World) -> None:
    task = world.active(world.state())
    world.run(task)
    world.count(task, "a", "b", "a")
    world.commit(task, enforce=True)
    task.suspend()
    task.close_clean()
    again = world.active(world.state())
    again.initialize()
    assert again.restoring.restore_position(COUNTS) == world.producer.acked_offsets()[COUNTS] + 1
    again.complete_restoration({})
    world.count(again, "a")
    world.commit(again)
    assert world.outputs()[-1] == (b"a", 3)
    again.close_dirty()


def test_counts_are_restored_from_the_changelog_when_the_directory_is_gone(world: World) -> None:
    task = world.active(world.state())
    world.run(task)
    world.count(task, "a", "b", "a")
    world.commit(task)
    task.close_dirty()
    world.directory.lock(TASK, "cleaner")
    world.directory.wipe_task(TASK)
    world.directory.unlock(TASK, "cleaner")
    again = world.active(world.state())
    world.run(again)
    world.count(again, "a")
    world.commit(again)
    assert world.outputs()[-1] == (b"a", 3)
    again.close_dirty()


def test_cached_counts_are_forwarded_with_the_commit(world: World) -> None:
    task = world.active(world.state())
    world.run(task)
    world.count(task, "a", "b", "a")
    world.commit(task)
    cached = world.cache.max_bytes > 0
    assert world.outputs() == ([(b"b", 1), (b"a", 2)] if cached else [(b"a", 1), (b"b", 1), (b"a", 2)])
    task.close_dirty()


def test_recycled_task_keeps_its_open_stores_and_continues(world: World) -> None:
    task = world.active(world.state())
    world.run(task)
    world.count(task, "a", "a")
    world.commit(task, enforce=True)
    store = task.stores.store("counts")
    task.suspend()
    stores = task.recycle()
    assert isinstance(stores, TaskState)
    standby = StandbyTask(TASK, world.nodes, [IN], stores, TaskSettings(application_id="app"))
    standby.initialize()
    assert standby.stores.store("counts") is store
    assert standby.restoring.restore_position(COUNTS) == world.producer.acked_offsets()[COUNTS] + 1
    standby.suspend()
    standby.recycle()
    again = world.active(stores)
    again.initialize()
    again.complete_restoration({})
    assert again.stores.store("counts") is store
    world.count(again, "a")
    world.commit(again)
    assert world.outputs()[-1] == (b"a", 3)
    again.close_dirty()


def test_corrupted_store_starts_empty_and_is_restored(world: World) -> None:
    task = world.active(world.state())
    world.run(task)
    world.count(task, "a", "a")
    world.commit(task, enforce=True)
    task.revive(corrupted=[COUNTS])
    task.initialize()
    assert task.restoring.restore_position(COUNTS) == BEGINNING
    task.restoring.restore(COUNTS, world.producer.records[COUNTS])
    task.complete_restoration({})
    world.count(task, "a")
    world.commit(task)
    assert world.outputs()[-1] == (b"a", 3)
    task.close_dirty()


def test_healthy_store_of_a_revived_task_is_as_of_the_last_commit(world: World) -> None:
    task = world.active(world.state())
    world.run(task)
    world.count(task, "a", "a")
    world.commit(task)
    committed = world.producer.acked_offsets()[COUNTS]
    world.count(task, "a")
    task.flush_caches()
    task.revive()
    task.initialize()
    assert task.restoring.restore_position(COUNTS) == committed + 1
    assert task.stores.store("counts").get("a")[0] == 2
    task.close_dirty()
