"""A thread with records that were not written in time: all of its tasks produce them again."""

from __future__ import annotations

import pytest

from streams_py.errors import TaskCorruptedError
from tests.support.runtime.world import Steps, World, task, tp

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}


@pytest.mark.parametrize("all_of_them", [True, False])
def test_what_nobody_made_any_more_is_not_sent_when_all_tasks_start_over(
    world: World, steps: Steps, all_of_them: bool
) -> None:
    """Records that a healthy task has sent are still delivered, because its next commit includes them."""
    steps.run(BOTH)
    steps.producer.reset = lambda: world.diary.append(("reset",))  # type: ignore[method-assign]
    tasks = [A, B] if all_of_them else [A]
    steps.membership.problem = TaskCorruptedError("records have expired", dict.fromkeys(tasks, ()))
    world.diary.clear()
    steps.turn()
    assert ("reset" in world.names()) == all_of_them
    assert "flush" in world.names()[: world.names().index("reset") if all_of_them else None]


@pytest.mark.parametrize("overdue", [3, 0])
def test_what_is_not_written_when_others_may_have_the_tasks_is_made_again(
    world: World, steps: Steps, overdue: int
) -> None:
    steps.run(BOTH)
    steps.producer.overdue = lambda timeout_ms: overdue  # type: ignore[method-assign]
    steps.turn()
    assert steps.producer.resets == 0
    steps.membership.counted = False
    world.diary.clear()
    steps.turn()
    assert world.names() == [], "it is not waited for"
    assert steps.producer.resets == (1 if overdue else 0)
    assert set(steps.tasks.values()) == {"CREATED" if overdue else "RUNNING"}
