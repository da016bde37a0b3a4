"""Worker processes on a real broker, through the changes that an operator makes: the system tests ST-1 to ST-15."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams_py.testing.broker import Broker
from tests.support.connect.operations import Operations
from tests.support.connect.processes import Flow, Workers

pytestmark = pytest.mark.broker

_ALWAYS = ("1", "2", "3", "4", "5", "7", "8", "9")
"""Step 8 continues from the end of step 7."""


@pytest.fixture
def workers(kafka_broker: Broker, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(kafka_broker, tmp_path, f"connect-{uuid.uuid4().hex[:8]}")
    yield workers
    workers.close()


@pytest.fixture
def operations(workers: Workers) -> Iterator[Operations]:
    flow = Flow(workers, workers.make_topic())
    yield Operations(workers, flow)
    flow.close()


def _play(operations: Operations, steps: tuple[str, ...], mode: str, then: Callable[[], None] | None = None) -> None:
    """Run the steps. After the first static worker, call ``then`` after each step."""
    operations.mode = mode
    for number in steps:
        step: Callable[[], None] = getattr(operations, f"st_{number}")
        try:
            step()
            if then is not None and int(number) >= 3:
                then()
        except BaseException as error:
            error.add_note(f"in ST-{number}, having started as {mode}; {operations.workers.said()}")
            raise


@pytest.mark.timeout(900)
def test_static_workers_take_what_they_list_and_nothing_else_moves(operations: Operations) -> None:
    _play(operations, _ALWAYS, "sessioned")


@pytest.mark.weekly
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mode", ["eager", "compatible", "sessioned"])
def test_a_group_goes_through_everything_that_an_operator_does(operations: Operations, mode: str) -> None:
    _play(operations, tuple(str(number) for number in range(1, 16)), mode)


@pytest.mark.weekly
@pytest.mark.timeout(1_800)
def test_any_leader_can_be_lost_at_any_point_of_the_way_to_static_placement(operations: Operations) -> None:
    steps = tuple(str(number) for number in range(1, 9))
    _play(operations, steps, "sessioned", then=operations.lose_the_leader)
