"""Large groups, twice in a row: sizes that Kafka Streams' own scale test uses, and its limit of two minutes divided by
the eight that a slow machine may need more than ours."""

from __future__ import annotations

import time

import pytest

from tests.unit.leader.kit import COUNT, FakeCluster, assign, member

LIMIT_S = 120 / 8


@pytest.mark.parametrize(
    ("partitions", "clients", "threads", "replicas", "assignor"),
    [
        (6000, 2, 1, 0, None),
        (1000, 1000, 1, 0, None),
        (1000, 100, 1, 50, None),
        (1000, 10, 1000, 0, None),
        (2000, 2, 1, 0, "legacy_sticky"),
        (1000, 100, 1, 20, "legacy_sticky"),
        (1000, 100, 1, 20, "fallback"),
    ],
)
def test_two_assign_steps_are_fast_in_a_large_group(
    partitions: int, clients: int, threads: int, replicas: int, assignor: str | None
) -> None:
    names = [(f"c{c}-{t}", c) for c in range(clients) for t in range(threads)]
    group = {name: member(c + 1, endpoint=f"h{c}:1") for name, c in names}
    spent = 0.0
    for _ in range(2):
        started = time.perf_counter()
        outcome = assign(
            group, COUNT, FakeCluster({"in": partitions}), num_standby_replicas=replicas, internal_assignor=assignor
        )
        spent += time.perf_counter() - started
        given = outcome.partitions
        running = {name: {f"0_{tp.partition}": -2 for tp in given[name]} for name, _ in names}
        group = {
            name: member(c + 1, endpoint=f"h{c}:1", owned=" ".join(map(str, given[name])), sums=running[name])
            for name, c in names
        }
    assert sum(len(tasks) for tasks in running.values()) == partitions
    assert spent < LIMIT_S
