"""Entries of a store with a time to live expire when stream time exceeds their timestamp by that time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TaskId
from streams_py.errors import TopologyError
from streams_py.serdes import INT64, STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.opening.stores import StoreDefaults, open_store
from streams_py.state.stores.bytes_store import MemoryBytes
from streams_py.state.stores.expiring import ExpiringBytes
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, key_value_store, timestamped_key_value_store
from streams_py.topology.declare.windows import TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from tests.support.topology.driver_parts import written_by

TTL_MS = 160
BUILDERS: list[Callable[..., StoreBuilder]] = [key_value_store, timestamped_key_value_store]


@pytest.fixture(params=[False, True], ids=["memory", "rocksdb"])
def content(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if not request.param:
        yield MemoryBytes()
        return
    database = TaskDatabase(str(tmp_path), ["s"])
    yield database.store("s")
    database.close()


class Store:
    """A store, and puts at given times."""

    def __init__(self, content: Any, declare: Callable[..., StoreBuilder] = key_value_store) -> None:
        self.content = content
        self.logged: list[tuple[bytes, bytes | None, int]] = []
        self.context = RecordContext()
        self.is_plain = declare is key_value_store
        self.store: Any = open_store(
            declare("s", key=STRING, value=INT64, ttl=TTL_MS),
            application_id="app",
            context=self.context,
            disk=None if isinstance(content, MemoryBytes) else lambda name: content,
            log=lambda key, value, timestamp_ms, headers=None: self.logged.append((key, value, timestamp_ms)),
        )
        if isinstance(content, MemoryBytes):
            self.content = self.store.content._content  # what is below the time to live

    def put(self, key: str, value: int, at: int) -> None:
        self.context.timestamp = at
        self.context.stream_time_ms = max(self.context.stream_time_ms, at)
        if self.is_plain:
            self.store.put(key, value)
        else:
            self.store.put_value(key, value, at)

    def get(self, key: str) -> int | None:
        found = self.store.get(key)
        return found if found is None or self.is_plain else found[0]

    def keys(self) -> list[str]:
        return [key for key, _ in self.store.all()]


@pytest.mark.parametrize("declare", BUILDERS, ids=["plain", "timestamped"])
def test_entry_is_gone_for_every_reader_when_stream_time_has_passed_it(
    content: Any, declare: Callable[..., StoreBuilder]
) -> None:
    store = Store(content, declare)
    store.put("a", 1, at=1000)
    store.put("b", 2, at=1100)
    store.context.stream_time_ms = 1000 + TTL_MS - 1
    assert (store.get("a"), store.keys(), store.store.approximate_num_entries()) == (1, ["a", "b"], 2)
    store.context.stream_time_ms = 1000 + TTL_MS  # without a write
    assert (store.get("a"), store.get("b")) == (None, 2)
    assert list(store.store.range("a", "b")) == list(store.store.reverse_all()) == list(store.store.all())
    assert (store.keys(), store.store.approximate_num_entries()) == (["b"], 1)


@pytest.mark.parametrize("declare", BUILDERS, ids=["plain", "timestamped"])
def test_put_again_lives_on_and_put_late_replaces_what_was_there(
    content: Any, declare: Callable[..., StoreBuilder]
) -> None:
    store = Store(content, declare)
    store.put("a", 1, at=1000)
    store.put("a", 2, at=1150)
    store.put("b", 3, at=1250)
    assert store.get("a") == 2
    store.put("b", 4, at=1000)
    assert store.get("b") is None
    assert store.logged[-1][2] == 1000
    store.store.delete("a")
    assert store.keys() == []


def test_expired_entries_leave_memory_and_disk(content: Any) -> None:
    store = Store(content)
    for at in range(0, 10_000, 10):
        store.put(f"key-{at}", at, at)
    held = list(store.content.scan(None, None))
    living = len(store.keys())
    assert living == TTL_MS // 10
    assert len(held) <= 2 * (living + 2)  # an entry and its name each; up to a bucket of them waits to be dropped


@pytest.mark.parametrize("declare", BUILDERS, ids=["plain", "timestamped"])
def test_restored_store_has_no_expired_entries(content: Any, declare: Callable[..., StoreBuilder]) -> None:
    store = Store(MemoryBytes(), declare)
    for key, value, at in [("a", 1, 1000), ("b", 2, 1100), ("c", 3, 1200), ("b", 9, 1000), ("d", 4, 1150)]:
        store.put(key, value, at)
    restored = Store(content, declare)
    assert restored.store.restore(store.logged) == 5
    assert restored.keys() == store.keys() == ["c", "d"]
    assert restored.get("c") == 3
    assert not any(key.endswith(b"a") for key, _ in restored.content.scan(b"\x01", b"\x02"))


def test_time_is_known_again_when_files_are_opened_again(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"])
    store = Store(database.store("s"))
    store.put("old", 1, at=1000)
    store.put("new", 2, at=1100)
    store.store.content.context = RecordContext()
    store.put("newest", 3, at=1000 + TTL_MS)
    database.commit({})
    database.close()
    database = TaskDatabase(str(tmp_path), ["s"])
    again = Store(database.store("s"))
    assert again.context.stream_time_ms == -1
    assert again.keys() == ["new", "newest"]
    database.close()


def test_store_follows_the_stream_time_of_the_task_it_belongs_to() -> None:
    store = Store(MemoryBytes())
    store.put("a", 1, at=1000)
    active = RecordContext()
    active.stream_time_ms = 5000
    store.store.rebind(log=None, context=active)
    assert store.get("a") is None


def test_removing_below_and_clearing_leave_nothing(content: Any) -> None:
    context = RecordContext()
    store = ExpiringBytes(content, TTL_MS, context)
    for key in (b"a", b"b"):
        store.write(key, (1000).to_bytes(8, "big") + b"v")
    store.remove_below(b"b")
    assert [key for key, _ in store.scan(None, None)] == [b"b"]
    store.clear()
    assert list(content.scan(None, None)) == []


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_aggregation_starts_again_after_its_time_to_live(tmp_path: Path, persistent: bool) -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    state = Materialized[str, int]("counts", ttl=TTL_MS, persistent=persistent)
    builder.stream("in").group_by_key().count(materialized=state).to_stream().to("out", value=INT64)
    topology = builder.build()
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        out = driver.output_topic("out", key=STRING, value=INT64)
        for key, at in [("a", 1000), ("a", 1100), ("b", 1200), ("a", 1260), ("a", 1300)]:
            source.send(key, "v", timestamp_ms=at)
        assert out.read_pairs() == [("a", 1), ("a", 2), ("b", 1), ("a", 1), ("a", 2)]
        directory = StateDirectory(str(tmp_path), "test", warns_of_temporary=False)
        directory.open()
        restored = TaskState(
            TaskId(0, 0),
            topology.stores.values(),
            StoreEnvironment(directory, "thread-1", defaults=StoreDefaults(STRING, STRING)),
            application_id="test",
        )
        restored.open()
        for changelog in restored.changelog_partitions:
            restored.restore(changelog, written_by(driver)[changelog])
        store: Any = restored.store("counts")
        written: Any = driver.store("counts")
        assert list(store.all()) == list(written.all())
        restored.close()
        directory.close()


def test_changelog_topic_deletes_what_is_expired() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("in").group_by_key().count(materialized=Materialized("counts", ttl=1000))
    metadata = builder.build().metadata("app")
    (changelog,) = metadata.subtopologies[0].changelogs.values()
    assert changelog.config["cleanup.policy"] == "compact,delete"
    assert changelog.config["retention.ms"] == str(1000 + 86_400_000)


def test_time_to_live_is_refused_where_it_makes_no_sense() -> None:
    with pytest.raises(TopologyError, match="time to live of store 's' is 0 ms"):
        key_value_store("s", ttl=0)
    builder = StreamsBuilder(key=STRING, value=STRING)
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10))
    with pytest.raises(TopologyError, match="set a retention, not a ttl"):
        windowed.count(materialized=Materialized("counts", ttl=10))
