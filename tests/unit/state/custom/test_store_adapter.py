"""Custom stores in a task and in a topology: opened, logged, restored, committed, read, closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py import (
    InvalidStateStoreError,
    KeyValueBytesStore,
    Materialized,
    Processor,
    Record,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyError,
    custom_store,
    key_value_store,
    lru_map,
    serdes,
    timestamped_key_value_store,
)
from streams_py.errors import ConfigError, StateError
from streams_py.ports import BEGINNING
from streams_py.serdes import SerdeDefaults
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.store_views import read_only
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing import TopologyTestDriver
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.missing_serdes import check_serdes
from tests.support.state.custom_stores import SqliteStore, TopStore
from tests.support.state.task_stores import Record as Stored

TASK = TaskId(0, 3)
TOP = TopicPartition("app-top-changelog", 3)
FILE = TopicPartition("app-file-changelog", 3)
TEXTS = {"key": serdes.STRING, "value": serdes.STRING}


class Log:
    """Changelog writers, and what went through them."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, bytes | None, int, Any]] = []

    def writer(self, topic: str, partition: int) -> Callable[..., None]:
        assert partition == TASK.partition

        def write(key: bytes, value: bytes | None, timestamp_ms: int, headers: Any = None) -> None:
            self.sent.append((topic, key, value, timestamp_ms, headers))

        return write


def state_of(directory: StateDirectory, *builders: StoreBuilder) -> TaskState:
    state = TaskState(TASK, builders, StoreEnvironment(directory, "thread"), application_id="app")
    state.open()
    return state


def file_store(**options: Any) -> StoreBuilder:
    return key_value_store("file", key=serdes.STRING, value=serdes.INT64, supplier=SqliteStore, **options)


def test_custom_store_is_restored_and_logs_with_the_records_timestamp(directory: StateDirectory) -> None:
    state, log, record = state_of(directory, custom_store("top", TopStore)), Log(), RecordContext()
    assert state.restore_position(TOP) == BEGINNING
    restored = Stored(7, "ann", None)
    restored.value = lambda: b"12"  # type: ignore[method-assign]
    state.restore(TOP, [restored, Stored(8, "bob", None), Stored(9, None, None)])
    assert state.changelog_offsets == {TOP: 9}
    state.attach(record, log.writer)
    top = state.store("top")
    assert isinstance(top, TopStore)
    record.timestamp = 77
    top.add("cat", 5)
    top.context.log_change(b"x", None, timestamp=3, headers=[("h", b"1")])
    assert top.leaders(9) == [("ann", 12), ("cat", 5)]
    assert log.sent == [
        ("app-top-changelog", b"cat", b"5", 77, None),
        ("app-top-changelog", b"x", None, 3, [("h", b"1")]),
    ]
    state.attach(record, None)  # a standby from now on
    top.add("dan", 6)
    assert len(log.sent) == 2
    assert (top.context.task_id, top.context.application_id, top.name) == (TASK, "app", "top")
    state.close()
    assert not top.is_open


def test_store_whose_files_are_of_a_changelog_that_is_gone_begins_anew(directory: StateDirectory) -> None:
    """Its own commit says how far it is, and would say so again."""
    state, log = state_of(directory, file_store()), Log()
    state.attach(RecordContext(), log.writer)
    store: Any = state.store("file")
    store.put("ann", 12)
    state.update_offsets({FILE: 500})
    state.commit()
    state.close()
    state = state_of(directory, file_store())
    assert state.restore_position(FILE) == 501
    state.forget([FILE])
    state.close()
    state = state_of(directory, file_store())
    assert state.restore_position(FILE) == BEGINNING
    assert state.store("file").get("ann") is None  # type: ignore[union-attr]
    state.close()


def test_store_with_files_of_its_own_is_emptied_when_its_changelog_was_created_anew(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """Its position may well be one in the new topic, too."""
    state, log = state_of(directory, file_store()), Log()
    assert state.is_of(FILE, "first")
    state.attach(RecordContext(), log.writer)
    store: Any = state.store("file")
    store.put("ann", 12)
    state.update_offsets({FILE: 500})
    state.commit()
    state.close()
    state = state_of(directory, file_store())
    assert state.is_of(FILE, "first")
    assert not state.is_of(FILE, "second")
    assert "app-file-changelog was deleted and created again since store file was restored from it" in caplog.text
    state.forget([FILE])
    state.close()
    state = state_of(directory, file_store())
    assert state.restore_position(FILE) == BEGINNING
    assert state.is_of(FILE, "second")
    state.close()
    state = state_of(directory, file_store())
    assert state.is_of(FILE, "second")
    state.close()


def test_position_of_a_store_with_files_of_its_own_is_believed_when_no_id_was_noted(directory: StateDirectory) -> None:
    state, log = state_of(directory, file_store()), Log()
    state.attach(RecordContext(), log.writer)
    state.update_offsets({FILE: 500})
    state.commit()
    state.close()
    state = state_of(directory, file_store())
    assert state.is_of(FILE, "any")
    assert state.restore_position(FILE) == 501
    state.close()


def test_id_that_cannot_be_noted_is_a_warning(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    state = state_of(directory, file_store())
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        assert state.is_of(FILE, "first")
    assert "cannot store the id of topic app-file-changelog" in caplog.text
    state.close()


def test_store_without_logging_has_no_changelog(directory: StateDirectory) -> None:
    state, log = state_of(directory, custom_store("top", TopStore, logging=False)), Log()
    state.attach(RecordContext(), log.writer)
    top: Any = state.store("top")
    top.add("ann", 1)
    assert state.changelog_partitions == frozenset()
    assert log.sent == []
    state.close()


def test_flush_comes_before_each_commit(directory: StateDirectory) -> None:
    class Lazy(TopStore):
        def flush(self) -> None:
            self.context.log_change(b"all", b"%d" % len(self.leaders(99)))

    state, log = state_of(directory, custom_store("top", Lazy)), Log()
    state.attach(RecordContext(), log.writer)
    state.flush_caches(["top"])
    assert [(key, value) for _, key, value, _, _ in log.sent] == [(b"all", b"0")]
    state.close()


def test_files_of_a_known_position_are_gone_on_from_after_a_restart(directory: StateDirectory) -> None:
    state = state_of(directory, file_store())
    state.attach(RecordContext(), Log().writer)
    store: Any = state.store("file")
    store.put("a", 1)
    state.update_offsets({FILE: 5})
    state.commit()
    store.put("b", 2)  # not committed
    state.close()
    state = state_of(directory, file_store())
    assert state.changelog_offsets == {FILE: 5}
    assert list(state.store("file").all()) == [("a", 1)]  # type: ignore[union-attr]
    state.restore(FILE, [Stored(6, "c", 3)])
    state.close()
    state = state_of(directory, file_store())
    assert state.restore_position(FILE) == 7
    assert list(state.store("file").all()) == [("a", 1), ("c", 3)]  # type: ignore[union-attr]
    state.close(wipe=True)
    assert not (Path(directory.task_path(TASK)) / "own").exists()


def test_files_of_no_known_position_are_cleared(directory: StateDirectory) -> None:
    class Unknown(SqliteStore):
        def committed_offset(self) -> int | None:
            return None

    def builder() -> StoreBuilder:
        return key_value_store("file", key=serdes.STRING, value=serdes.INT64, supplier=Unknown, logging=False)

    state = state_of(directory, builder())
    state.store("file").put("a", 1)  # type: ignore[union-attr]
    state.commit()
    state.close()
    state = state_of(directory, builder())
    assert list(state.store("file").all()) == []  # type: ignore[union-attr]
    state.close()


@pytest.mark.parametrize("with_timestamps", [False, True])
def test_what_a_custom_store_drops_is_in_its_changelog(directory: StateDirectory, with_timestamps: bool) -> None:
    class Single(SqliteStore):
        def put(self, key: bytes, value: bytes) -> None:
            for other, _ in self.range(None, None):
                if other != key:
                    self.delete(other)
                    self.evicted(other)
            super().put(key, value)

    declare = timestamped_key_value_store if with_timestamps else key_value_store
    state = state_of(directory, declare("file", key=serdes.STRING, value=serdes.INT64, supplier=Single))
    log, record = Log(), RecordContext()
    record.timestamp = 4
    state.attach(record, log.writer)
    state.restore(FILE, [Stored(0, "r", 0), Stored(1, "s", 0)])
    store: Any = state.store("file")
    store.put("a", (1, 4) if with_timestamps else 1)
    dropped, put = (b"s", True, 4), (b"a", False, 4)
    in_order = [put, dropped] if with_timestamps else [dropped, put]  # plain ones as an LRU map in Kafka Streams
    assert [(key, value is None, at) for _, key, value, at, _ in log.sent] == in_order
    state.close()


def test_restoring_failure_names_the_store(directory: StateDirectory) -> None:
    class Broken(TopStore):
        def restore(self, records: Any) -> None:
            raise KeyError("what")

    state = state_of(directory, custom_store("top", Broken))
    with pytest.raises(StateError, match="store 'top' cannot be restored: KeyError: 'what'"):
        state.restore(TOP, [Stored(0, "a", 1)])
    state.close()


def test_task_is_let_go_of_though_a_store_exits_when_it_is_closed(directory: StateDirectory) -> None:
    class Exits(TopStore):
        def close(self) -> None:
            sys.exit(3)

    on_disk = key_value_store("file", **TEXTS, persistent=True)
    state = state_of(directory, custom_store("top", Exits), on_disk)
    with pytest.raises(StateError, match="closing a store of task 0_3 failed: 3"):
        state.close()
    assert directory.owner_of(TASK) is None
    again = state_of(directory, on_disk)
    again.close()


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (key_value_store("s", **TEXTS, supplier=TopStore), "returned TopStore, expected a KeyValueBytesStore"),
        (custom_store("s", SqliteStore), "returned SqliteStore, expected a CustomStateStore"),  # type: ignore[arg-type]
    ],
)
def test_supplier_of_something_else_is_refused(directory: StateDirectory, builder: StoreBuilder, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        state_of(directory, builder)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: key_value_store("s", supplier=SqliteStore()), "supplier is of type SqliteStore, not a function"),  # type: ignore[arg-type]
        (lambda: key_value_store("s", supplier=SqliteStore, persistent=True), "remove persistent="),
        (lambda: key_value_store("s", supplier=SqliteStore, ttl=5), "remove ttl="),
        (lambda: Materialized("s", supplier=SqliteStore, history=5).builder("s", None, None), "cannot have a supplier"),
        (lambda: lru_map(0), "must be at least 1, got 0"),
        (
            lambda: (
                StreamsBuilder(**TEXTS)
                .stream("in")
                .group_by_key()
                .windowed_by(TimeWindows.of(5))
                .count(materialized=Materialized(supplier=lru_map(5)))
            ),
            "keeps windows, which cannot have your own supplier",
        ),
    ],
)
def test_suppliers_that_make_no_sense_are_refused_with_the_line(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message) as raised:
        declare()
    assert Path(__file__).name in str(raised.value)


class Scores(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        top: TopStore = self.context.get_state_store("top")
        top.add(record.key, int(record.value))
        self.context.forward(record.with_value(top.leaders(1)[0][0]))


def test_processor_gets_the_object_that_the_supplier_made() -> None:
    builder = StreamsBuilder(**TEXTS)
    builder.add_state_store(custom_store("top", TopStore))
    builder.stream("in").process(Scores, stores="top").to("out", **TEXTS)
    topology = builder.build()
    assert "app-top-changelog" in topology.metadata("app").subtopologies[0].changelogs
    with TopologyTestDriver(topology) as driver:
        scores = driver.input_topic("in", **TEXTS)
        scores.send("ann", "4")
        scores.send("bob", "7")
        assert [record.value for record in driver.output_topic("out", **TEXTS).read_all()] == ["ann", "bob"]
        top: Any = driver.store("top")
        assert top.leaders(9) == [("bob", 7), ("ann", 4)]
        assert top.context.state_dir is None


def test_table_is_kept_in_a_store_of_ones_own_global_ones_too() -> None:
    made: list[KeyValueBytesStore] = []

    def supplier() -> KeyValueBytesStore:
        made.append(SqliteStore())
        return made[-1]

    builder = StreamsBuilder(**TEXTS)
    table = builder.table("t", materialized=Materialized("table", supplier=supplier, **TEXTS))
    everywhere = builder.global_table("g", materialized=Materialized("global", supplier=supplier, **TEXTS))
    builder.stream("s").join(table, lambda a, b: a + b).join(everywhere, lambda a, b: a + b, on=lambda k, v: k).to(
        "out"
    )
    with TopologyTestDriver(builder.build()) as driver:
        for topic, value in (("t", "T"), ("g", "G"), ("s", "S")):
            driver.input_topic(topic, **TEXTS).send("k", value, timestamp_ms=9)
        assert driver.output_topic("out", **TEXTS).read_all()[0].value == "STG"
        assert driver.store("table").get("k") == ("T", 9)
    assert len(made) == 2


def test_custom_store_needs_no_serdes() -> None:
    topology = Topology().add_source("in", "in", **TEXTS).add_processor("scores", Scores, "in")
    check_serdes(topology.add_state_store(custom_store("top", TopStore), "scores"), SerdeDefaults(None, None))
    topology.add_state_store(key_value_store("plain"), "scores")
    with pytest.raises(ConfigError, match="store plain"):
        check_serdes(topology, SerdeDefaults(None, None))


def test_custom_store_is_no_key_value_store_for_readers(directory: StateDirectory) -> None:
    state = state_of(directory, custom_store("top", TopStore))
    with pytest.raises(InvalidStateStoreError, match="not a key-value store"):
        read_only("top", QueryableStoreType.KEY_VALUE, lambda: [state.store("top")])  # type: ignore[list-item]
    state.close()
