"""The table of changelogs decides which changelogs are read and complete, and which tasks an error concerns."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.runtime.restore.changelog import ChangelogInWork
from streams_py.runtime.restore.changelog_table import ChangelogTable
from tests.support.runtime.fakes import FakeTask

A, B, C = (TopicPartition(f"app-{name}-changelog", 0) for name in "abc")


def _task(number: int, *changelogs: TopicPartition, is_active: bool = True) -> FakeTask:
    return FakeTask(TaskId(number, 0), changelogs, is_active=is_active)


def _known(table: ChangelogTable, partition: TopicPartition, end: int | None = None) -> ChangelogInWork:
    changelog = table.changelogs[partition]
    changelog.is_identified, changelog.end = True, end
    return changelog


def _table(*tasks: FakeTask) -> ChangelogTable:
    table = ChangelogTable()
    for task in tasks:
        table.add(task)
    return table


def test_changelogs_begin_once_and_only_when_all_is_known_about_them() -> None:
    table = _table(_task(0, A, B))
    _known(table, A, end=5)
    assert [changelog.partition for changelog in table.begin()] == [A]
    assert table.begin() == []
    _known(table, B, end=7)
    assert [changelog.partition for changelog in table.begin()] == [B]


@pytest.mark.parametrize(
    ("position", "read"), [(3, {A}), (5, {B})], ids=["an active task restores", "the active task is complete"]
)
def test_standbys_wait_while_an_active_task_restores(position: int, read: Collection[TopicPartition]) -> None:
    table = _table(_task(0, A), _task(1, B, is_active=False))
    _known(table, A, end=5)
    _known(table, B)
    table.begin()
    table.changelogs[A].position = position
    assert table.register().keys() == read


def test_consumer_keeps_its_position_in_what_it_already_reads() -> None:
    table = _table(_task(0, A))
    _known(table, A, end=5)
    table.begin()
    table.changelogs[A].position = 2
    assert table.register() == {A: 2}
    table.changelogs[A].position = 4
    assert table.register() == {A: None}
    table.changelogs[A].position = 5
    assert table.register() == {}
    assert not table.changelogs[A].registered


def test_active_task_is_complete_when_all_of_its_changelogs_are_and_ends_are_reported_once() -> None:
    task, standby = _task(0, A, B), _task(1, C, is_active=False)
    table = _table(task, standby)
    for partition in (A, B, C):
        _known(table, partition, end=5).position = 5
    table.changelogs[B].position = 4
    assert table.complete() == []
    assert table.restoring() == {B}
    assert table.remaining_records() == {task.id: 1, standby.id: 0}
    table.changelogs[B].position = 5
    assert table.complete() == [task]
    assert not table.has_ended(task)
    assert {changelog.partition for changelog in table.newly_ended([task])} == {A, B}
    assert table.newly_ended([task]) == []
    assert table.has_ended(task)


def test_task_that_was_removed_and_added_again_has_not_ended() -> None:
    task, again = _task(0, A), _task(0, A)
    table = _table(task)
    _known(table, A, end=0).position = 0
    table.newly_ended(table.complete())
    assert [changelog.partition for changelog in table.forget(task)] == [A]
    table.add(again)
    assert not table.holds(task)
    assert not table.has_ended(task)
    assert not table.has_ended(again)


def test_error_of_some_changelogs_concerns_the_tasks_that_have_them() -> None:
    first, second, third = _task(0, A, B), _task(1, C), _task(2, TopicPartition("app-d-changelog", 0))
    table = _table(first, second, third)
    elsewhere = TopicPartition("app-e-changelog", 0)
    assert table.tasks_of({A, C, elsewhere}) == [(first, {A}), (second, {C})]
    table.forget(second)
    assert table.tasks_of({C}) == []


def test_restored_and_failed_tasks_stay_until_they_are_taken() -> None:
    restored, failed = _task(0, A), _task(1, B)
    table = _table(restored, failed)
    table.forget(restored)
    table.restored.append(restored)
    table.forget(failed)
    table.failed.append((failed, ValueError("bad")))
    assert table.all_tasks() == [restored, failed]
    assert table.take_ended(TaskId(7, 7)) is None
    assert table.take_ended(restored.id) is restored
    assert table.take_ended(failed.id) is failed
    assert table.all_tasks() == []
