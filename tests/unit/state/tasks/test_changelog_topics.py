"""Whether positions on disk are in the changelogs that there are now."""

from __future__ import annotations

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

DISK, SOURCE = TopicPartition("app-disk-changelog", 3), TopicPartition("orders", 3)
BUILDERS = (
    StoreBuilder("disk", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=True),
    StoreBuilder("source", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=True, source_topic="orders"),
)


def opened(directory: StateDirectory) -> TaskState:
    state = TaskState(TaskId(0, 3), BUILDERS, StoreEnvironment(directory, "thread-1"), application_id="app")
    state.open()
    return state


def record(of: TopicPartition, offset: int) -> MemoryRecord:
    return MemoryRecord(of.topic, 3, offset, b"a", (1).to_bytes(8, "big"), timestamp_ms=5)


def test_store_of_a_changelog_that_was_created_anew_is_emptied_when_its_task_knows_it(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    state = opened(directory)
    assert state.is_of(DISK, "first")
    assert state.is_of(SOURCE, "orders")
    state.restore(DISK, [record(DISK, 4)])
    state.restore(SOURCE, [record(SOURCE, 4)])
    state.close()
    again = opened(directory)
    assert again.is_of(DISK, "first")
    assert again.is_of(DISK, None)  # brokers that give no ids
    assert not again.is_of(DISK, "second")
    assert "topic app-disk-changelog was deleted and created again since store disk was restored" in caplog.text
    again.forget({DISK})
    again.close()
    last = opened(directory)
    assert last.is_of(DISK, "second")
    assert not last.is_of(SOURCE, "another")
    assert list(last.store("disk").all()) == []
    assert last.changelog_offsets == {SOURCE: 4}
    last.close()


def test_position_without_an_id_is_believed_and_so_is_a_topic_that_nothing_was_read_from(
    directory: StateDirectory,
) -> None:
    state = opened(directory)
    state.restore(DISK, [record(DISK, 4)])
    state.close()
    again = opened(directory)
    assert again.is_of(DISK, "whatever it is by now")
    assert again.is_of(SOURCE, "first")
    assert again.is_of(SOURCE, "second")  # no record of the first one was seen
    assert again.changelog_offsets == {DISK: 4}
    again.close()


def test_changelog_that_was_recreated_under_its_task_is_named_and_the_store_on_disk_stays_whole(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    state = opened(directory)
    assert state.is_of(DISK, "first")
    state.restore(DISK, [record(DISK, 99)])
    for acked in (7, 7, 120, 121):  # 7: written before the task went away and came back
        state.update_offsets({DISK: acked, SOURCE: acked})
        state.commit()
    assert not caplog.records
    state.update_offsets({DISK: 3, SOURCE: 3})
    state.commit()
    assert "changelog app-disk-changelog-3 continues at offset 3, but was already at 121" in caplog.text
    assert len(caplog.records) == 1  # and nothing of an input topic, where positions may go back
    state.close()
    again = opened(directory)
    assert again.changelog_offsets == {DISK: 3, SOURCE: 3}
    assert again.is_of(DISK, "second")
    assert again.store("disk").get("a") == (1, 5)
    again.close()


def test_what_a_task_wrote_before_it_was_a_copy_for_a_while_says_nothing_of_its_changelog(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    state = opened(directory)
    state.update_offsets({DISK: 100})
    state.attach(RecordContext(), None)
    state.restore(DISK, [record(DISK, 200)])  # by the task's owner in the meantime
    state.attach(RecordContext(), lambda topic, partition: lambda *_: None)
    state.update_offsets({DISK: 105})  # acknowledged after the commit that was its last one
    state.update_offsets({DISK: 105})
    assert state.changelog_offsets == {DISK: 200}
    state.update_offsets({DISK: 201})
    assert state.changelog_offsets == {DISK: 201}
    assert not caplog.records
    state.close()
