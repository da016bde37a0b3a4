"""Schedules as they are drawn: nothing that must not happen does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from streams_py.assignment import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.testing.simulator import ASSIGNORS, Fault, run_schedule
from streams_py.testing.simulator.campaign import Campaign, run_campaign, schedule_of

CHECKED = {"A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "L1", "I1"}


def explain(campaign: Campaign) -> str:
    return "\n".join(f"seed {finding.seed}: {finding.violations[0]}" for finding in campaign.findings)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_group_keeps_its_promises_under_every_assignor(assignor: str) -> None:
    campaign = run_campaign(range(1, 13), assignor=assignor, processes=1)
    assert not campaign.findings, explain(campaign)
    assert campaign.exit_code == 0
    assert campaign.schedules == 12
    assert campaign.rebalances > 100
    expected = CHECKED if assignor == "high_availability" else CHECKED - {"A7"}
    assert expected <= {promise for promise, times in campaign.checked.items() if times}


class KeepsAll(TaskAssignor):
    """Gives every task to the first process."""

    asked = 0

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        type(self).asked += 1
        processes = sorted(application_state.kafka_streams_states(False))
        tasks = [AssignedTask(task, TaskType.ACTIVE) for task in application_state.all_tasks()]
        return TaskAssignment(
            [KafkaStreamsAssignment.of(process, tasks if process == processes[0] else ()) for process in processes]
        )


class Doubles(KeepsAll):
    """Also makes everybody else a standby, which no configuration asks for."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        first, *others = super().assign(application_state).assignment
        copies = [
            AssignedTask(task, TaskType.STANDBY)
            for task, info in application_state.all_tasks().items()
            if info.is_stateful
        ]
        return TaskAssignment([first, *(KafkaStreamsAssignment.of(other.process_id, copies) for other in others)])


def test_assignor_of_the_user_is_asked_and_judged() -> None:
    good = run_campaign(range(1, 9), assignor=f"{__name__}:KeepsAll", processes=1)
    assert KeepsAll.asked > 20
    assert not good.findings, explain(good)
    bad = run_campaign(range(1, 9), assignor=f"{__name__}:Doubles", processes=1)
    assert {violation.promise for finding in bad.findings for violation in finding.violations} == {"A2"}


def test_drawn_schedules_contain_every_kind_of_misfortune() -> None:
    planned = Counter(action.fault for seed in range(300) for action in schedule_of(seed).actions)
    assert planned.keys() == set(Fault)
    versions = {p.newest for seed in range(300) for p in schedule_of(seed).shape.processes}
    assert versions == set(range(1, 13))
    hooks = {action.hook for seed in range(300) for action in schedule_of(seed).actions}
    assert hooks == {None, "assign begins", "effect", "assigned", "revoked"}


PROGRAM = """
from streams_py.testing.simulator import run_schedule
from streams_py.testing.simulator.campaign import schedule_of
for seed in range(60, 76):
    result = run_schedule(schedule_of(seed))
    print(seed, result.fingerprint, result.rebalances, result.steps, [str(v) for v in result.violations])
"""


def test_every_byte_of_a_group_is_the_same_under_every_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == 16


def test_campaign_on_two_processes_adds_up_to_that_on_one() -> None:
    alone, together = (run_campaign(range(1, 18), processes=processes) for processes in (1, 2))
    assert not together.findings, explain(together)
    assert (together.schedules, together.rebalances, together.events) == (17, alone.rebalances, alone.events)
    assert together.faults == alone.faults
    assert (together.repeated, alone.repeated) == (1, 0)


def test_sticky_assignor_that_goes_round_in_circles_is_recognised_and_no_violation() -> None:
    result = run_schedule(schedule_of(101_039, assignor="legacy_sticky"))
    assert result.circles
    assert not result.violations


@pytest.mark.slow
@pytest.mark.parametrize("assignor", [None, *ASSIGNORS])
@pytest.mark.timeout(1800)
def test_group_keeps_its_promises_for_hundreds_of_schedules(assignor: str | None) -> None:
    campaign = run_campaign(range(1_000, 1_400), assignor=assignor, processes=2)
    assert not campaign.findings, explain(campaign)
    assert campaign.repeated == 8
