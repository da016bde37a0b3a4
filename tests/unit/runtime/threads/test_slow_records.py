"""Records that were quick become slow: what the thread has learnt of quick ones must not outlast a transaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.errors import TaskCorruptedError
from tests.unit.runtime.world import Steps, World, task, tp

ONE = {task("0_0"): [tp("in-0")]}
TRANSACTION_MS = 10_000


class Timed:
    """Ends transactions as a coordinator does: one that lasts for too long fails with what comes next."""

    def __init__(self, steps: Steps, fails_at: str) -> None:
        self._steps = steps
        self._clock = steps.world.clock
        self._fails_at = fails_at
        self._began_ms = 0
        self.failed = 0
        self.longest_ms = 0
        steps.producer.at = self  # type: ignore[attr-defined]

    def __call__(self, step: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if step == "produce" and not self._steps.producer.in_transaction:  # type: ignore[attr-defined]
            self._began_ms = now_ms
        lasts_ms = now_ms - self._began_ms
        self.longest_ms = max(self.longest_ms, lasts_ms)
        if step == self._fails_at and lasts_ms > TRANSACTION_MS:
            self.failed += 1
            raise TaskCorruptedError("the transaction took too long", {})


@pytest.mark.parametrize("fails_at", ["produce", "commit"])
def test_records_that_become_slow_do_not_outlast_their_transaction_for_ever(tmp_path: Path, fails_at: str) -> None:
    world = World(**{"in": 1, "out": 1})
    builder = StreamsBuilder()

    def work(value: str) -> str:
        world.clock.advance(20 if value == "slow" else 0)
        return value

    stream: Any = builder.stream("in", key=serdes.BYTES, value=serdes.STRING)
    stream.map_values(work).to("out", key=serdes.BYTES, value=serdes.STRING)
    steps = Steps(world, builder.build(), tmp_path, processing_guarantee="exactly_once_v2", commit_interval_ms=100)
    steps.run(ONE)
    timed = Timed(steps, fails_at)
    for _ in range(10):
        world.write("in", *[b"quick"] * 1000)
        steps.turn(2)
        world.clock.advance(101)
    assert steps.loop._pace.n >= 1000
    world.write("in", *[b"slow"] * 1000)
    for _ in range(60):
        steps.turn()
    assert world.committed[tp("in-0")].offset == 11_000
    assert timed.failed <= 1, "what the thread has learnt from quick records is not used again"
