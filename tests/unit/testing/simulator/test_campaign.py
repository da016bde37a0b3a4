"""Randomly drawn schedules violate no promise."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from streams_py.assignment import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.testing.checkers import Checker, Outcome, Published, all_checkers
from streams_py.testing.simulator import ASSIGNORS, Fault, run_schedule
from streams_py.testing.simulator.campaign import Campaign, run_campaign, schedule_of

CHECKED = {"A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "L1", "I1", "S1"}


def explain(campaign: Campaign) -> str:
    return "\n".join(f"seed {finding.seed}: {finding.violations[0]}" for finding in campaign.findings)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_group_keeps_its_promises_under_every_assignor(assignor: str) -> None:
    campaign = run_campaign(range(1, 9), assignor=assignor, processes=1)
    assert not campaign.findings, explain(campaign)
    assert campaign.exit_code == 0
    assert campaign.schedules == 8
    assert campaign.rebalances > 60
    expected = CHECKED if assignor == "high_availability" else CHECKED - {"A7"}
    assert expected <= {promise for promise, times in campaign.checked.items() if times}


class KeepsAll(TaskAssignor):
    """Gives every task to the first process."""

    asked = 0

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        type(self).asked += 1
        processes = sorted(application_state.kafka_streams_states())
        tasks = [AssignedTask(task, TaskType.ACTIVE) for task in application_state.all_tasks()]
        return TaskAssignment(
            [KafkaStreamsAssignment(process, tasks if process == processes[0] else ()) for process in processes]
        )


class Doubles(KeepsAll):
    """Also makes every other client a standby, which is not configured."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        first, *others = super().assign(application_state).assignment
        copies = [
            AssignedTask(task, TaskType.STANDBY)
            for task, info in application_state.all_tasks().items()
            if info.is_stateful
        ]
        return TaskAssignment([first, *(KafkaStreamsAssignment(other.process_id, copies) for other in others)])


def test_assignor_of_the_user_is_asked_and_judged() -> None:
    good = run_campaign(range(3, 9), assignor=f"{__name__}:KeepsAll", processes=1)
    assert KeepsAll.asked > 20
    assert not good.findings, explain(good)
    bad = run_campaign(range(3, 9), assignor=f"{__name__}:Doubles", processes=1)
    assert {violation.promise for finding in bad.findings for violation in finding.violations} == {"A2"}


class Raises(KeepsAll):
    """Has a bug that only shows in groups of two."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        if len(application_state.kafka_streams_states()) > 1:
            raise ZeroDivisionError("a bug of the user's")
        return super().assign(application_state)


class CallbackRaises(KeepsAll):
    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        raise ZeroDivisionError("a bug of the callback's")


class NeverReturns(KeepsAll):
    released = threading.Event()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        self.released.wait()
        return super().assign(application_state)


class InTurn(KeepsAll):
    """Moves all tasks to the next process each time and requests another rebalance, so it oscillates."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        states = application_state.kafka_streams_states()
        processes = sorted(states)
        last = next((n for n, process in enumerate(processes) if states[process].previous_active_tasks), 0)
        chosen = processes[(last + 1) % len(processes)]
        tasks = [AssignedTask(task, TaskType.ACTIVE) for task in application_state.all_tasks()]
        again = datetime.fromtimestamp(0, UTC)
        return TaskAssignment(
            [
                KafkaStreamsAssignment(process, tasks if process == chosen else ()).with_followup_rebalance(again)
                for process in processes
            ]
        )


class ReadsSettings(KeepsAll):
    seen: ClassVar[list[object]] = []

    def configure(self, configs: Mapping[str, object]) -> None:
        self.seen.append(configs.get("app.favourite"))


def run_own(assignor: type[TaskAssignor], seeds: range = range(2, 4), **options: Any) -> Campaign:
    return run_campaign(seeds, assignor=f"{__name__}:{assignor.__name__}", processes=1, **options)


def promises(campaign: Campaign) -> set[str]:
    return {violation.promise for finding in campaign.findings for violation in finding.violations}


@pytest.mark.parametrize(
    ("assignor", "bug", "words"),
    [(Raises, "a bug of the user's", "in assign"), (CallbackRaises, "of the callback's", "in on_assignment_computed")],
)
def test_exception_of_the_users_assignor_is_a_violation_with_its_traceback(
    assignor: type[TaskAssignor], bug: str, words: str
) -> None:
    campaign = run_own(assignor)
    [first, *_] = [v for f in campaign.findings for v in f.violations if v.promise == "I1"]
    assert bug in first.text
    assert words in first.text
    assert f"{__name__}:{assignor.__name__}" in first.text
    assert "ZeroDivisionError: a bug of " in first.traceback
    assert f'File "{__file__}"' in first.traceback
    assert not first.liveness


def test_campaign_ends_when_the_users_assignor_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NeverReturns, "released", threading.Event())
    monkeypatch.setattr("streams_py.testing.simulator.world._ASSIGNOR_TIMEOUT_MS", 50)
    campaign = run_own(NeverReturns, range(1, 40))
    NeverReturns.released.set()
    assert campaign.hung
    assert campaign.schedules == 1
    assert any("did not return in time" in v.text for v in campaign.findings[0].violations)


def test_users_assignor_that_oscillates_is_not_excused_as_sticky() -> None:
    campaign = run_own(InTurn)
    assert "A5" in promises(campaign)
    assert campaign.oscillating == 0


def test_movement_for_nothing_is_looked_for_under_the_users_assignor() -> None:
    assert promises(run_own(KeepsAll, range(1, 9), mutant="move for nothing")) == {"A7"}


def test_users_assignor_is_configured_with_the_applications_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadsSettings, "seen", [])
    run_own(ReadsSettings, range(1, 3), settings={"app.favourite": "blue"})
    assert set(ReadsSettings.seen) == {"blue"}


def test_drawn_schedules_contain_every_kind_of_misfortune() -> None:
    planned = Counter(action.fault for seed in range(300) for action in schedule_of(seed, evictions=True).actions)
    assert planned.keys() == set(Fault)
    versions = {p.newest for seed in range(300) for p in schedule_of(seed).shape.processes}
    assert versions == set(range(1, 13))
    hooks = {action.hook for seed in range(300) for action in schedule_of(seed).actions}
    assert hooks == {None, "assign begins", "effect", "assigned", "revoked"}


PROGRAM = """
from streams_py.testing.simulator import run_schedule
from streams_py.testing.simulator.campaign import schedule_of
for seed in range(60, 68):
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
    assert len(outputs.pop().splitlines()) == 8


def test_campaign_on_two_processes_adds_up_to_that_on_one() -> None:
    alone, together = (run_campaign(range(1, 18), processes=processes) for processes in (1, 2))
    assert not together.findings, explain(together)
    assert (together.schedules, together.rebalances, together.events) == (17, alone.rebalances, alone.events)
    assert together.faults == alone.faults
    assert (together.repeated, alone.repeated) == (1, 0)


def test_sticky_assignor_that_oscillates_is_recognised_and_no_violation() -> None:
    result = run_schedule(schedule_of(101_039, assignor="legacy_sticky"))
    assert result.oscillates
    assert not result.violations


class Recorder(Checker):
    """Keeps the versions of the published assignments, and the outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[set[int]] = []
        self.outcome: Outcome | None = None

    def published(self, seen: Published) -> None:
        self.written.append(set(seen.written.values()))

    def ended(self, seen: Outcome) -> None:
        self.outcome = seen


def test_sticky_assignor_that_stops_oscillating_is_recognised_and_no_violation() -> None:
    """Java's legacy sticky assignor decides the same in all rebalances of this schedule."""
    recorder = Recorder()
    result = run_schedule(schedule_of(3_245), checkers=[*all_checkers(), recorder])
    assert not result.violations
    assert result.oscillates
    outcome = recorder.outcome
    assert outcome is not None
    assert outcome.quiet
    assert outcome.last_move_after > 100
    assert outcome.last_move_after - outcome.oscillated_until <= 2


def test_virtual_time_does_not_go_back_after_a_group_that_rebalanced_too_often() -> None:
    history = run_schedule(schedule_of(3_245), history=True).history
    times = [float(line.split()[0]) for line in history]
    assert times == sorted(times)


def test_static_members_that_return_with_a_newer_version_use_it_from_the_next_rebalance_on() -> None:
    """Neither the broker nor an assignment of version 2 starts a rebalance, so the simulator requests one."""
    recorder = Recorder()
    schedule = schedule_of(9_521)
    assert schedule.shape.static_members
    result = run_schedule(schedule, checkers=[*all_checkers(), recorder])
    assert not result.violations
    assert recorder.written[9:11] == [{2}, {11}]
    outcome = recorder.outcome
    assert outcome is not None
    assert (outcome.final_version, outcome.highest_common_version) == (11, 11)
    assert outcome.rebalances == 1


@pytest.mark.weekly
@pytest.mark.parametrize("assignor", [None, *ASSIGNORS])
@pytest.mark.timeout(1800)
def test_group_keeps_its_promises_when_members_are_removed_in_hundreds_of_schedules(assignor: str | None) -> None:
    campaign = run_campaign(range(2_000, 2_400), assignor=assignor, evictions=True, processes=2)
    assert not campaign.findings, explain(campaign)


@pytest.mark.weekly
@pytest.mark.parametrize("assignor", [None, *ASSIGNORS])
@pytest.mark.timeout(1800)
def test_group_keeps_its_promises_for_hundreds_of_schedules(assignor: str | None) -> None:
    campaign = run_campaign(range(1_000, 1_400), assignor=assignor, processes=2)
    assert not campaign.findings, explain(campaign)
    assert campaign.repeated == 8
