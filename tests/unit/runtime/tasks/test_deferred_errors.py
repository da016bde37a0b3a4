"""Which of several errors is raised; an error that closes a task is never forgotten."""

from __future__ import annotations

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError, TaskCorruptedError, TaskMigratedError
from streams_py.runtime.tasks.deferred_errors import DeferredErrors

A, B = TaskId(0, 0), TaskId(0, 1)
ONE, TWO = TopicPartition("log", 0), TopicPartition("log", 1)


def test_corrupted_tasks_of_several_errors_are_all_named() -> None:
    errors = DeferredErrors()
    errors.add(TaskCorruptedError("first", {A: {ONE}}))
    errors.add(TaskCorruptedError("second", {A: {TWO}, B: ()}))
    with pytest.raises(TaskCorruptedError, match="first; second") as caught:
        errors.raise_worst()
    assert caught.value.tasks == {A: {ONE, TWO}, B: frozenset()}
    errors.raise_worst()  # forgotten


def test_bad_changelogs_are_those_that_any_error_names() -> None:
    errors = DeferredErrors()
    errors.add(TaskCorruptedError("interrupted", {A: ()}))
    errors.add(TaskCorruptedError("this one", {A: {ONE}}))
    with pytest.raises(TaskCorruptedError) as caught:
        errors.raise_worst()
    assert caught.value.tasks == {A: {ONE}}


def test_broken_transaction_that_names_no_task_is_raised() -> None:
    errors = DeferredErrors()
    errors.add(TaskCorruptedError("outcome unknown", {}))
    with pytest.raises(TaskCorruptedError, match="outcome unknown"):
        errors.raise_worst()


def test_migration_comes_before_corruption_and_what_ends_the_thread_before_both() -> None:
    errors = DeferredErrors()
    errors.add(TaskCorruptedError("bad", {A: ()}))
    errors.add(TaskMigratedError("out"))
    with pytest.raises(TaskMigratedError):
        errors.raise_worst()
    errors.add(TaskMigratedError("out"))
    errors.attempt(_burn)
    with pytest.raises(StateError):
        errors.raise_worst()


def _burn() -> None:
    raise StateError("disk on fire")
