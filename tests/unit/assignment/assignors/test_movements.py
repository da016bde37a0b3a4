"""Movements of active tasks: caught-up clients, warm-ups, the budget (KIP-441); and standbys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.movements import LagTable, MovementPlan
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput, NoteKind
from streams_py.assignment.standby.default import assign_default_standbys
from tests.support.assignment.clusters import place_active
from tests.support.assignment.scenario_language import Outcome, outcome, process_id, tasks

FAR, HUGE = 10_000, 10**9
SIX = "P1: 0_0 1_0 / -; P2: 0_1 1_1 / -; P3: 0_2 1_2 / -"
THREE = "P1: 0_0 / -; P2: 0_1 / -; P3: 0_2 / -"
SWAPPED = "P1: 0_0 / -; P2: 0_2 / 0_1; P3: 0_1 / 0_2"
CROSSED = {"0_0": {1: 0, 2: FAR, 3: FAR}, "0_1": {1: FAR, 2: FAR, 3: 0}, "0_2": {1: FAR, 2: 0, 3: FAR}}
NOBODY = {
    "0_0": {1: FAR, 2: 2 * FAR, 3: 3 * FAR},
    "0_1": {1: 2 * FAR, 2: 3 * FAR, 3: FAR},
    "0_2": {1: 3 * FAR, 2: FAR, 3: 2 * FAR},
}


@pytest.mark.parametrize(
    ("before", "lags", "budget", "moved", "after"),
    [
        pytest.param(SIX, 0, HUGE, 0, SIX, id="TM-01"),
        pytest.param(SIX, FAR, HUGE, 0, SIX, id="TM-02"),
        pytest.param(THREE, CROSSED, HUGE, 2, SWAPPED, id="TM-03"),
        pytest.param("P1: 0_0 / -; P2: 0_1 / -; P3: 0_2 / 0_1", NOBODY, HUGE, 2, SWAPPED, id="TM-04"),
        pytest.param(THREE, CROSSED, 1, 2, "P1: 0_0 / -; P2: 0_2 / 0_1; P3: 0_1 / -", id="TM-05"),
        pytest.param("P1: - / 0_0; P2: 0_0 / -", {"0_0": {1: 0, 2: FAR}}, 0, 1, "P1: 0_0 / -; P2: - / 0_0", id="TM-06"),
    ],
)
def test_actives_move_to_who_is_caught_up(
    before: str, lags: int | dict[str, dict[int, int]], budget: int, moved: int, after: str
) -> None:
    cluster, names = cluster_of(outcome(before))
    table = [
        {client: lags if isinstance(lags, int) else lags[str(task)][client + 1] for client in range(len(names))}
        for task in cluster.tasks
    ]
    lag_table = LagTable(list(table), [HUGE] * len(table), clients=len(names), acceptable=0)
    plan = MovementPlan(cluster, lag_table, max_warmup_replicas=budget)
    assert plan._move_actives() == moved  # the first of two steps
    placed = [(cluster.active_lists()[n], cluster.standby_lists()[n]) for n in range(len(names))]
    found = {
        name: ([str(cluster.tasks[t]) for t in own], [str(cluster.tasks[t]) for t in copies])
        for name, (own, copies) in zip(names, placed, strict=True)
    }
    assert found == outcome(after)


def cluster_of(placed: Outcome) -> tuple[Cluster, list[str]]:
    ids = sorted({TaskId.parse(task) for roles in placed.values() for role in roles for task in role})
    cluster = Cluster([process_id(n) for n in range(1, len(placed) + 1)], [1] * len(placed), ids)
    for client, (active, standby) in enumerate(placed.values()):
        for task in active:
            place_active(cluster, ids.index(TaskId.parse(task)), client)
        for task in standby:
            cluster.place_standby(ids.index(TaskId.parse(task)), client)
    return cluster, list(placed)


@pytest.mark.parametrize("replicas", [0, 5])
def test_every_standby_is_asked_for_and_none_forgotten(replicas: int) -> None:  # SR-01
    cluster, _ = cluster_of(outcome("P1: 0_0..2 / -"))
    notes = assign_default_standbys(cluster, range(3), replicas)
    assert [note.kind for note in notes] == ([NoteKind.NOT_ENOUGH_CLIENTS] * 3 if replicas else [])
    assert all("cannot place 5 of 5" in note.text for note in notes)


def spread(tags: tuple[str, ...], racks: tuple[str | None, ...], strategy: str = "min_traffic") -> list[set[str]]:
    """Return the zones (the tag) of each task's hosts: six clients, two per zone.

    Zone and rack are not the same.
    """
    zones = ("a", "b", "c", "a", "b", "c")
    ids = tasks("0_0..5")
    problem = AssignmentProblem(
        [
            ClientInput(process_id(n), tags={"az": zone}, rack=rack, lags=dict.fromkeys(ids, 0))
            for n, (zone, rack) in enumerate(zip(zones, racks, strict=True), 1)
        ],
        ids,
        dict.fromkeys(ids, 0),
        AssignmentConfigs(
            num_standby_replicas=1, rack_aware_assignment_tags=tags, rack_aware_assignment_strategy=strategy
        ),
    )
    placed = HighAvailabilityAssignor().decide(problem).placements
    return [
        {
            label
            for client, label in zip(problem.clients, zones if tags else racks, strict=True)
            for role in placed[client.process_id]
            if task in role and label is not None
        }
        for task in ids
    ]


RACKED = ("r", "r", "r", "s", "s", "s")


@pytest.mark.parametrize("racks", [(None,) * 6, (None, *RACKED[1:]), RACKED])
def test_tags_decide_whatever_the_racks_are_when_tags_are_configured(racks: tuple[str | None, ...]) -> None:  # SF-01
    assert all(len(zones) == 2 for zones in spread(("az",), racks))
    assert spread(("az",), racks) == spread(("az",), (None,) * 6)


def test_racks_decide_when_no_tags_are_configured_and_every_client_has_one() -> None:  # SF-02
    assert all(len(racks) == 2 for racks in spread((), RACKED))
    assert not all(len(racks) == 2 for racks in spread((), (None, *RACKED[1:])))
    assert not all(len(racks) == 2 for racks in spread((), RACKED, strategy="none"))


def test_nothing_moves_when_any_lag_is_acceptable() -> None:
    given = AssignmentProblem(
        [ClientInput(process_id(1), lags={TaskId(0, 1): 0}), ClientInput(process_id(2))],
        tasks("0_0 0_1"),
        dict.fromkeys(tasks("0_0 0_1"), HUGE),
    )
    assert HighAvailabilityAssignor().decide(given).probing
    unlimited = replace(given, configs=AssignmentConfigs(acceptable_recovery_lag=2**63 - 1))
    assert not HighAvailabilityAssignor().decide(unlimited).probing
