"""Known results of the sticky assignors, the fallback and the identity assignment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.api import TaskType
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor, StickyTaskAssignor
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import AssignmentProblem, ClientInput, Placement
from streams_py.assignment.task_assignment_utils import identity_assignment
from streams_py.errors import IllegalStateError
from tests.support.assignment.scenario_language import as_outcome, outcome, process_id, rows, tasks
from tests.support.assignment.sticky import problem, state

ROWS = rows("sticky.txt")
PRESERVING = "ST-34"


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_internal_sticky_places_as_known(row: list[str]) -> None:
    named, given = problem(row[1], row[2])
    decision = LegacyStickyAssignor(preserve_actives=row[0] == PRESERVING).decide(given)
    assert as_outcome(named, decision.placements) == outcome(row[3])
    assert not decision.probing


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_public_sticky_places_as_known(row: list[str]) -> None:
    named, given = problem(row[1], row[2])
    assignor = StickyTaskAssignor(row[0] == PRESERVING, hash_sizing=HashSizing.JDK_18_AND_OLDER)
    entries = assignor.assign(state(given)).assignment
    placements = {
        entry.process_id: Placement(
            sorted(t for t, a in entry.tasks.items() if a.type is TaskType.ACTIVE),
            sorted(t for t, a in entry.tasks.items() if a.type is TaskType.STANDBY),
        )
        for entry in entries
    }
    assert as_outcome(named, placements) == outcome(row[4])
    deadlines = {entry.process_id: entry.followup_rebalance_deadline for entry in entries}
    expected = datetime.fromtimestamp(0, UTC) if row[0] == PRESERVING else None
    assert deadlines.pop(named[0].process_id) == expected
    assert set(deadlines.values()) <= {None}


def test_internal_sticky_refuses_when_there_are_no_clients() -> None:  # ST-42
    with pytest.raises(IllegalStateError, match="no threads"):
        LegacyStickyAssignor().decide(AssignmentProblem([], tasks("0_0"), {}))


def test_a_client_without_threads_is_refused() -> None:  # ST-41, CS-17
    with pytest.raises(IllegalStateError, match="capacity 0"):
        ClientInput(process_id(1), capacity=0)


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        pytest.param("P1 A{0_0..2}; P2 new", "0_0..2", "P1: 0_0..2 / -; P2: - / -", id="FB-01"),
        pytest.param(
            "P1 A{0_0 0_1} S{0_2}; P2 A{0_2} S{0_0}; P3 new",
            "0_0..3, r=1",
            "P1: 0_0 0_1 / 0_2; P2: 0_2 / 0_0 0_3; P3: 0_3 / 0_1",
            id="FB-02",
        ),
    ],
)
def test_fallback_keeps_every_active_and_asks_for_a_probing_rebalance(text: str, wanted: str, expected: str) -> None:
    named, given = problem(text, wanted)
    decision = FallbackPriorAssignor().decide(given)
    assert as_outcome(named, decision.placements) == outcome(expected)
    assert decision.probing


def roles(given: AssignmentProblem) -> dict[str, Sequence[tuple[TaskId, TaskType]]]:
    return {
        str(p): sorted((a.id, a.type) for a in entry.tasks.values())
        for p, entry in identity_assignment(state(given)).items()
    }


def test_identity_gives_every_client_what_it_had() -> None:  # ID-01
    _, given = problem("P1 A{0_0..2}; P2 S{0_0..2}; P3-P5 new", "0_0..2")
    found = roles(given)
    assert [len(found[str(process_id(n))]) for n in range(1, 6)] == [3, 3, 0, 0, 0]
    assert {role for _, role in found[str(process_id(1))]} == {TaskType.ACTIVE}
    assert {role for _, role in found[str(process_id(2))]} == {TaskType.STANDBY}


def test_identity_refuses_a_task_in_both_roles_of_one_client() -> None:  # ID-02
    _, given = problem("P1 A{0_0} S{0_0}", "0_0")
    with pytest.raises(IllegalStateError, match="0_0 twice"):
        identity_assignment(state(given))
