"""Properties on random clusters: equality with the literal implementation, and documented rules."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor, Decision
from tests.support.assignment.drawn_problems import ASSIGNORS, problems
from tests.support.assignment.reference import decide as decide_literally

SOME_SETTINGS = settings(max_examples=150, deadline=None)


def as_lists(decision: Decision) -> dict[ProcessId, tuple[list[TaskId], list[TaskId]]]:
    return {client: (place.active, place.standby) for client, place in decision.placements.items()}


@SOME_SETTINGS
@given(problems())
def test_high_availability_decides_as_its_literal_form(problem: AssignmentProblem) -> None:
    decision = HighAvailabilityAssignor(reference_behaviour=True).decide(problem)
    assert (as_lists(decision), decision.probing) == decide_literally(problem)


@SOME_SETTINGS
@given(problems(), st.randoms(use_true_random=False))
def test_high_availability_does_not_depend_on_input_order(problem: AssignmentProblem, random: Random) -> None:
    clients, tasks, ends = list(problem.clients), list(problem.tasks), list(problem.end_offset_sums.items())
    random.shuffle(clients)
    random.shuffle(tasks)
    random.shuffle(ends)
    other = replace(problem, clients=clients, tasks=tasks, end_offset_sums=dict(ends))
    first, second = HighAvailabilityAssignor().decide(problem), HighAvailabilityAssignor().decide(other)
    assert as_lists(first) == as_lists(second)
    assert first.probing == second.probing


@SOME_SETTINGS
@given(problems(), st.sampled_from(ASSIGNORS))
def test_every_task_is_active_once_and_copies_are_bounded(
    problem: AssignmentProblem, assignor: BuiltInAssignor
) -> None:
    decision = assignor.decide(problem)
    active = sorted(task for place in decision.placements.values() for task in place.active)
    assert active == sorted(problem.tasks)
    wanted = min(len(problem.clients), 1 + problem.configs.num_standby_replicas)
    copies = dict.fromkeys(problem.end_offset_sums, 0)
    for place in decision.placements.values():
        assert place.active == sorted(place.active)
        assert place.standby == sorted(place.standby)
        assert not set(place.active) & set(place.standby)
        for task in place.standby:
            copies[task] += 1  # KeyError for a stateless standby
    extra = [copies[task] + 1 - wanted for task in copies]
    assert all(more >= 0 for more in extra)
    assert sum(extra) == len(decision.warmups) <= problem.configs.max_warmup_replicas


@SOME_SETTINGS
@given(problems(tags=False))
def test_high_availability_converges_when_warmups_catch_up_in_one_round(problem: AssignmentProblem) -> None:
    stateful = len(problem.end_offset_sums)
    bound = 2 * (stateful + stateful * problem.configs.num_standby_replicas) + 1
    for _ in range(bound):
        decision = HighAvailabilityAssignor().decide(problem)
        if not decision.probing:
            break
        ends = problem.end_offset_sums
        clients = [
            replace(
                client,
                lags={task: 0 for role in decision.placements[client.process_id] for task in role if task in ends},
            )
            for client in problem.clients
        ]
        problem = replace(problem, clients=clients, end_offset_sums=dict.fromkeys(ends, 150_000))
    assert not decision.probing


@SOME_SETTINGS
@given(problems(tags=False))
def test_fallback_never_takes_a_running_task_away(problem: AssignmentProblem) -> None:
    placements = FallbackPriorAssignor().decide(problem).placements
    last_owner = {task: client.process_id for client in problem.clients for task in client.previous_active}
    for task, owner in last_owner.items():
        assert task in placements[owner].active


PROGRAM = """
import uuid
from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput
tasks = [TaskId(s, p, name) for name in ("a", "b") for s in range(2) for p in range(9)]
zones = ("x", "y", "z")
clients = [
    ClientInput(ProcessId(uuid.UUID(int=n * 2**90)), 1 + n % 2, {"zone": zones[n % 3], "host": str(n)},
                lags={t: (n * 50) % 300 for t in tasks[n::3]},
                previous_active=tasks[n::7], previous_standby=tasks[n::5])
    for n in range(7)
]
configs = AssignmentConfigs(100, 3, 2, rack_aware_assignment_tags=("zone", "host"))
problem = AssignmentProblem(clients, tasks, dict.fromkeys(tasks, 500), configs)
for assignor in (HighAvailabilityAssignor(), LegacyStickyAssignor()):
    decision = assignor.decide(problem)
    print(decision.placements, decision.probing, decision.warmups, decision.notes)
"""


def test_decisions_are_the_same_under_every_hash_seed() -> None:
    outputs = set()
    for seed in ("0", "1", "4242"):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1
    assert str(uuid.UUID(int=0)) in outputs.pop()
