"""Known results of the high-availability assignor (KIP-441), in every order of the input."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput, Decision
from tests.support.assignment.high_availability import problem
from tests.support.assignment.scenario_language import ClientRow, as_outcome, clients, outcome, process_id, rows

ROWS = rows("high_availability.txt")


def decide(given: AssignmentProblem) -> Decision:
    return HighAvailabilityAssignor().decide(given)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_high_availability_places_as_known(row: list[str]) -> None:
    named = clients(row[1])
    given = problem(named, row[2], row[3])
    decision = decide(given)
    assert as_outcome(named, decision.placements) == outcome(row[4])
    assert decision.probing is (row[5] == "yes")


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_high_availability_ignores_input_order(row: list[str]) -> None:
    given = problem(clients(row[1]), row[2], row[3])
    expected = decide(given)
    shuffle = random.Random(row[0]).shuffle
    some_clients, some_tasks, ends = list(given.clients), list(given.tasks), list(given.end_offset_sums.items())
    for _ in range(3):
        shuffle(some_clients)
        shuffle(some_tasks)
        shuffle(ends)
        other = replace(given, clients=some_clients, tasks=some_tasks, end_offset_sums=dict(ends))
        assert decide(other).placements == expected.placements


# Rows of lags, one character per task: "2" lags by 200, "0" is caught up. Outcomes recorded from Kafka Streams 4.3.1.
HEAP_ROWS = {
    "HQ-02": (
        "1 2 1 1 3 1 1 2 1",
        2,
        """200000022200002 220222200222000 020200020200022 020202002202202 002022022200200
        202222022022000 220200222022202 022002200000002 022022002022022""",
        """P1: - / 0_2 0_10 0_11; P2: 0_2 0_8 0_12 / 0_1 0_13; P3: 0_11 / 0_5; P4: - / 0_0 0_7;
        P5: 0_0 0_1 0_3 0_10 0_13 / 0_6 0_14; P6: 0_14 / 0_1 0_5; P7: 0_4 0_5 / -; P8: 0_7 0_9 / 0_4 0_8 0_12;
        P9: 0_6 / 0_3 0_9""",
    ),
    "HQ-03": (
        "2 1 1 1 2 1 1 3 2",
        1,
        """202200220200 002200222200 020222020202 002000222222 202022022200 202220200200 200222222220
        200000002022 220220222000""",
        """P1: 0_8 / 0_0 0_4; P2: 0_0 0_10 / -; P3: - / 0_0 0_6; P4: 0_3 / 0_5; P5: 0_1 0_6 0_11 / 0_3;
        P6: 0_5 / 0_7 0_8; P7: - / 0_2 0_11; P8: 0_2 0_4 0_7 0_9 / 0_1; P9: - / 0_9 0_10""",
    ),
}


@pytest.mark.parametrize("name", HEAP_ROWS)
def test_movements_follow_the_disordered_heap_when_loads_change_inside_it(name: str) -> None:
    capacities, warmups, lag_rows, expected = HEAP_ROWS[name]
    named = [ClientRow(f"P{n}", process_id(n), int(c)) for n, c in enumerate(capacities.split(), 1)]
    ids = [TaskId(0, partition) for partition in range(len(lag_rows.split()[0]))]
    given = AssignmentProblem(
        clients=[
            ClientInput(row.process_id, row.capacity, lags={t: 100 * int(c) for t, c in zip(ids, line)})
            for row, line in zip(named, lag_rows.split())
        ],
        tasks=ids,
        end_offset_sums=dict.fromkeys(ids, 10**6),
        configs=AssignmentConfigs(acceptable_recovery_lag=100, max_warmup_replicas=warmups, num_standby_replicas=1),
    )
    decision = decide(given)
    assert as_outcome(named, decision.placements) == outcome(expected)
    assert decision.probing


def test_standby_movements_of_one_task_follow_the_heap_when_all_keys_tie() -> None:  # HQ-01
    named = [ClientRow(f"P{n}", process_id(n), c) for n, c in enumerate((3, 1, 3, 3, 1, 1), 1)]
    only = TaskId(0, 0)
    given = AssignmentProblem(
        clients=[
            ClientInput(row.process_id, row.capacity, lags={only: lag})
            for row, lag in zip(named, (200, 400, 600, 600, 500, 500))
        ],
        tasks=[only],
        end_offset_sums={only: 10**6},
        configs=AssignmentConfigs(acceptable_recovery_lag=100, max_warmup_replicas=1, num_standby_replicas=3),
    )
    expected = "P1: 0_0 / -; P2: - / 0_0; P3: - / -; P4: - / 0_0; P5: - / 0_0; P6: - / 0_0"
    decision = decide(given)
    assert as_outcome(named, decision.placements) == outcome(expected)
    assert decision.probing


def test_no_clients_give_an_empty_decision() -> None:
    only = TaskId(0, 0)
    decision = decide(AssignmentProblem([], [only], {only: 1}))
    assert decision.placements == {}
    assert not decision.probing
