"""Which of several errors is raised, and that none that costs a task is forgotten."""

from __future__ import annotations

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError, TaskCorrupted, TaskMigrated
from streams_py.runtime.tasks.deferred_errors import DeferredErrors

A, B = TaskId(0, 0), TaskId(0, 1)
ONE, TWO = TopicPartition("log", 0), TopicPartition("log", 1)


def test_corrupted_tasks_of_several_errors_are_all_named() -> None:
    errors = DeferredErrors()
    errors.add(TaskCorrupted("first", {A: {ONE}}))
    errors.add(TaskCorrupted("second", {A: {TWO}, B: ()}))
    with pytest.raises(TaskCorrupted, match="first; second") as caught:
        errors.raise_worst()
    assert caught.value.tasks == {A: {ONE, TWO}, B: frozenset()}
    errors.raise_worst()  # forgotten


def test_all_changelogs_are_bad_when_one_error_cannot_say_which() -> None:
    errors = DeferredErrors()
    errors.add(TaskCorrupted("nobody knows", {A: ()}))
    errors.add(TaskCorrupted("this one", {A: {ONE}}))
    with pytest.raises(TaskCorrupted) as caught:
        errors.raise_worst()
    assert caught.value.tasks == {A: frozenset()}


def test_migration_comes_before_corruption_and_what_ends_the_thread_before_both() -> None:
    errors = DeferredErrors()
    errors.add(TaskCorrupted("bad", {A: ()}))
    errors.add(TaskMigrated("out"))
    with pytest.raises(TaskMigrated):
        errors.raise_worst()
    errors.add(TaskMigrated("out"))
    errors.attempt(_burn)
    with pytest.raises(StateError):
        errors.raise_worst()


def _burn() -> None:
    raise StateError("disk on fire")
