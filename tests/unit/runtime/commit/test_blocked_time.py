"""The time for which a stream thread reports that it waited for Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_py.errors import BrokerUnavailableError, TaskCorruptedError
from streams_py.runtime.client.metrics import MetricsInput, measure
from streams_py.runtime.commit.blocked_time import BlockedTime
from streams_py.runtime.thread.states import State
from streams_py.testing.memory_clients import ManualClock
from tests.support.runtime.world import Steps, World, counting, task, tp

ONE = {task("0_0"): [tp("in-0")]}
MS = 1_000_000
"""Time in ns."""


def blocked_ns(steps: Steps) -> float:
    thread = MetricsInput("app", "me", State.RUNNING, [steps.thread], 0, steps.world.clock.now_ms(), is_debug=False)
    (found,) = [m.value for m in measure(thread) if m.name == "blocked-time-ns-total"]
    assert isinstance(found, int)
    return found


def slow(steps: Steps, owner: Any, name: str, took_ms: int) -> None:
    """Make this method take the given time from now on."""
    call: Callable[..., Any] = getattr(owner, name)

    def waits(*arguments: Any, **options: Any) -> Any:
        steps.world.clock.advance(took_ms)
        return call(*arguments, **options)

    setattr(owner, name, waits)


def test_time_within_time_counts_once_also_when_it_ends_with_an_error() -> None:
    clock = ManualClock(1_000)
    blocked = BlockedTime(clock)

    def fail_after_waiting() -> None:
        with blocked:
            clock.advance(3)
            with blocked:
                clock.advance(4)
            clock.advance(5)
            raise BrokerUnavailableError("away")

    with pytest.raises(BrokerUnavailableError):
        fail_after_waiting()
    clock.advance(100)
    assert blocked.total_ms == 12
    with blocked:
        clock.advance(1)
    assert blocked.total_ms == 13


def test_waiting_for_records_acknowledgements_and_commits_counts_and_work_does_not(
    world: World, tmp_path: Path
) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.run(ONE)
    assert blocked_ns(steps) == 0
    slow(steps, steps.consumer, "poll", 20)
    steps.turn()
    assert blocked_ns(steps) == 20 * MS
    (running,) = steps.parts.table.running()
    slow(steps, running, "process", 300)
    slow(steps, steps.producer, "flush", 7)
    slow(steps, steps.membership, "commit", 11)
    world.write("in", b"x")
    steps.turn()
    assert blocked_ns(steps) == 40 * MS
    world.clock.advance(1_001)
    steps.turn()
    assert world.committed
    assert blocked_ns(steps) == (60 + 7 + 11) * MS


def test_all_steps_of_a_transaction_count(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path, processing_guarantee="exactly_once_v2")
    for name, took_ms in (("initialize", 1_000), ("commit_transaction", 50), ("flush", 3), ("reset", 200)):
        slow(steps, steps.producer, name, took_ms)
    steps.run(ONE)
    assert blocked_ns(steps) == 1_000 * MS
    world.write("in", b"x")
    steps.turn()
    world.clock.advance(1_001)
    steps.turn()
    assert world.committed
    assert blocked_ns(steps) == (1_000 + 50 + 3) * MS
    world.write("in", b"y")
    steps.turn()
    before = blocked_ns(steps)
    steps.loop.moves.revive(TaskCorruptedError("spoiled", {}))
    assert blocked_ns(steps) == before + 200 * MS


def test_producer_that_waits_within_a_record_tells_its_thread(steps: Steps) -> None:
    with steps.producer.blocked:
        steps.world.clock.advance(9)
    assert blocked_ns(steps) == 9 * MS
