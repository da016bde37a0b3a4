"""Large groups, two assign steps in a row, with the sizes of Kafka Streams' own scale test.

Benchmarks measure the durations. Here the steps must end well within the time limit of a test, with every task placed.
"""

from __future__ import annotations

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.assignment.api import TaskType
from streams_py.assignment.application_state import ProblemState, TaskDescription
from streams_py.assignment.assignors.sticky import StickyTaskAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from tests.support.leader.kit import COUNT, FakeCluster, assign, member, pid

SIZES = [
    pytest.param(6000, 2, 1, 1, None, id="SC-01"),
    pytest.param(1000, 1000, 1, 1, None, id="SC-02"),
    pytest.param(1000, 100, 1, 50, None, id="SC-03"),
    pytest.param(1000, 10, 1000, 1, None, id="SC-04"),
    pytest.param(2000, 2, 1, 1, "legacy_sticky", id="SC-01-sticky"),
    pytest.param(1000, 1000, 1, 1, "legacy_sticky", id="SC-02-sticky"),
    pytest.param(1000, 100, 1, 20, "legacy_sticky", id="SC-03-sticky"),
    pytest.param(2000, 2, 1, 1, "fallback", id="SC-01-fallback"),
    pytest.param(1000, 100, 1, 20, "fallback", id="SC-03-fallback"),
]


@pytest.mark.parametrize(("partitions", "clients", "threads", "replicas", "assignor"), SIZES)
def test_every_task_is_placed_twice_in_a_row_in_a_large_group(
    partitions: int, clients: int, threads: int, replicas: int, assignor: str | None
) -> None:
    names = [(f"c{c}-{t}", c) for c in range(clients) for t in range(threads)]
    group = {name: member(c + 1, endpoint=f"h{c}:1") for name, c in names}
    for _ in range(2):
        outcome = assign(
            group, COUNT, FakeCluster({"in": partitions}), num_standby_replicas=replicas, internal_assignor=assignor
        )
        given = outcome.partitions
        running = {name: {f"0_{tp.partition}": -2 for tp in given[name]} for name, _ in names}
        group = {
            name: member(c + 1, endpoint=f"h{c}:1", owned=" ".join(map(str, given[name])), sums=running[name])
            for name, c in names
        }
    assert sum(len(tasks) for tasks in running.values()) == partitions


def test_public_sticky_places_every_copy_on_clients_with_many_threads() -> None:  # SC-05
    tasks = [TaskId(subtopology, partition) for subtopology in range(10) for partition in range(30)]
    problem = AssignmentProblem(
        [ClientInput(pid(number), 50) for number in range(1, 21)],
        tasks,
        dict.fromkeys(tasks, 0),
        AssignmentConfigs(num_standby_replicas=2),
    )

    def describe() -> list[TaskDescription]:
        return [TaskDescription.of(t, stores=["s"], changelogs=[TopicPartition("log", t.partition)]) for t in tasks]

    entries = StickyTaskAssignor().assign(ProblemState(problem, describe)).assignment
    roles = [assigned.type for entry in entries for assigned in entry.tasks.values()]
    assert (roles.count(TaskType.ACTIVE), roles.count(TaskType.STANDBY)) == (300, 600)
