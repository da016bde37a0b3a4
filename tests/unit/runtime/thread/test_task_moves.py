"""Tasks that a stream thread loses, while its clients fail."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from streams_py.errors import StreamsError, TaskMigratedError
from tests.support.runtime.world import Steps, World, task, tp

BOTH = {task("0_0"): [tp("in-0")], task("0_1"): [tp("in-1")]}


@pytest.mark.parametrize("step", ["producer", "consumer"])
def test_error_while_tasks_are_lost_is_raised_by_the_loop_not_by_the_membership(
    world: World, steps: Steps, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """An error on the membership's polling thread would end the membership."""
    steps.run(BOTH)
    client, method = {"producer": (steps.parts.producer, "reset"), "consumer": (steps.consumer, "assign")}[step]
    monkeypatch.setattr(client, method, Mock(side_effect=StreamsError("cannot go on")))
    steps.membership.lose()
    assert steps.tasks == {}
    if step == "producer":
        assert steps.consumer.positions == {}
    with pytest.raises(StreamsError, match="cannot go on"):
        steps.turn()


def test_migration_found_while_tasks_are_lost_makes_the_thread_join_again(
    world: World, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.run(BOTH)
    errors = [TaskMigratedError("fenced"), None]
    monkeypatch.setattr(steps.parts.producer, "reset", Mock(side_effect=errors))
    steps.membership.lose()
    steps.turn()
    assert world.names()[-1] == "join as a new member"
    assert steps.errors == []
