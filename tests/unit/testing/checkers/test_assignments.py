"""A6 on real groups: the order of members and topics does not change the bytes of the assignment."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from streams_py.testing.checkers import Checker, Published
from streams_py.testing.simulator import ASSIGNORS, draw_schedule, run_schedule


class EveryOrder(Checker):
    """Repeats every assign step with members and topics in other orders."""

    promise = "A6"

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def published(self, seen: Published) -> None:
        if seen.failure is not None or seen.again is None:
            return
        for _ in range(3):
            repeated = seen.again(self._rng)
            if repeated is not None:
                self.checks += 1
                assert {name: repeated[name] for name in seen.assignments} == dict(seen.assignments)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(ASSIGNORS), st.randoms(use_true_random=False))
def test_assignment_is_the_same_bytes_in_any_order_of_members_and_topics(
    seed: int, assignor: str, rng: random.Random
) -> None:
    result = run_schedule(draw_schedule(seed, assignor=assignor, actions=6), checkers=[EveryOrder(rng)])
    assert not result.violations  # a crash would also be a violation


def test_most_assign_steps_can_be_repeated() -> None:
    checker = EveryOrder(random.Random(1))
    result = run_schedule(draw_schedule(11), checkers=[checker])
    assert checker.checks > 2 * result.rebalances > 10
