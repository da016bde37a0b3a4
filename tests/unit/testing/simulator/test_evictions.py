"""Members that other clients remove: dead ones in time, late and several times, living ones, and by a liar."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams_py.state.directory.member_record import RecordedMember
from streams_py.testing.simulator import Action, Fault, GroupShape, ProcessShape, RunResult, Schedule, run_schedule
from streams_py.testing.simulator.campaign import run_campaign, schedule_of
from streams_py.testing.simulator.evictions import MembersOnRecord

EVICTIONS = {Fault.EVICTIONS, Fault.EVICTED_LATE, Fault.EVICTED_TWICE, Fault.EVICTED_ALIVE, Fault.EVICTED_BY_LIAR}
AT_MS = 60_000
SHAPE = GroupShape(partitions={"in": 6}, processes=(ProcessShape(), ProcessShape(), ProcessShape()))
ALWAYS = Action(0, Fault.EVICTIONS, amount=2, lasts_ms=300_000)


def run(*actions: Action, shape: GroupShape = SHAPE) -> RunResult:
    result = run_schedule(Schedule(1, shape, (*actions, Action(2 * AT_MS, Fault.LAG_JUMP))), history=True)
    assert not result.violations, result.violations[0]
    return result


def generations(result: RunResult) -> list[float]:
    """Times of all assignments after the disturbance, in seconds."""
    times = [float(line.split()[0]) for line in result.history if "assigns to" in line]
    return [at for at in times if at > AT_MS / 1_000]


@pytest.mark.parametrize("seed", [1, 7, 250])
def test_schedule_with_evictions_is_the_schedule_without_and_more(seed: int) -> None:
    plain, more = schedule_of(seed), schedule_of(seed, evictions=True)
    assert more.actions[: len(plain.actions)] == plain.actions
    assert (more.shape, not EVICTIONS & {action.fault for action in plain.actions}) == (plain.shape, True)
    assert {action.fault for action in more.actions[len(plain.actions) :]} <= EVICTIONS


def test_group_keeps_its_promises_when_members_are_removed() -> None:
    campaign = run_campaign(range(1, 41), evictions=True, processes=1)
    assert not campaign.findings, campaign.findings[0]
    assert {fault for fault in EVICTIONS if campaign.faults[fault] >= 10} == EVICTIONS


def test_group_does_not_wait_for_the_session_of_a_dead_process_whose_members_are_removed() -> None:
    kill = Action(AT_MS, Fault.KILL, pick=1)
    session_s, heartbeat_s = SHAPE.session_timeout_ms / 1_000, SHAPE.heartbeat_interval_ms / 1_000
    without, with_evictions = run(kill), run(ALWAYS, kill)
    assert generations(without)[0] > AT_MS / 1_000 + session_s - heartbeat_s
    assert generations(with_evictions)[0] < AT_MS / 1_000 + 1.5 + heartbeat_s + 0.1


def test_process_that_starts_again_removes_its_former_members_before_it_joins() -> None:
    result = run(ALWAYS, Action(AT_MS, Fault.RESTART, pick=1, amount=1))
    assert any("1 of 1 members removed by p1, of its former run" in line for line in result.history)
    assert generations(result)[0] < AT_MS / 1_000 + 4


@pytest.mark.parametrize("fault", [Fault.EVICTED_LATE, Fault.EVICTED_TWICE])
@pytest.mark.parametrize("amount", [5, 2_000, 24_000, 99_999])
def test_removals_that_come_late_or_several_times_do_no_more_than_one(fault: Fault, amount: int) -> None:
    restart = run(Action(AT_MS, Fault.RESTART, pick=1, amount=amount // 7))
    result = run(Action(AT_MS, fault, pick=1, amount=amount))
    removed = sum("1 of 1 members removed" in line for line in result.history)
    assert removed <= 1
    assert result.rebalances <= restart.rebalances + 1


@pytest.mark.parametrize("pick", [0, 1, 2])
def test_removal_of_a_living_process_costs_only_a_rebalance(pick: int) -> None:
    quiet = run()
    result = run(Action(AT_MS, Fault.EVICTED_ALIVE, pick=pick))
    assert any("1 of 1 members removed by somebody by mistake" in line for line in result.history)
    assert quiet.rebalances < result.rebalances <= quiet.rebalances + 3
    disturbed = [at for at in generations(result) if at < 2 * AT_MS / 1_000]
    assert 1 <= len(disturbed) <= 3
    assert disturbed[-1] < AT_MS / 1_000 + 30


def test_liar_removes_static_members_too_and_the_group_recovers() -> None:
    liar = Action(AT_MS, Fault.EVICTED_BY_LIAR, amount=4, lasts_ms=15_000)
    for shape in (SHAPE, replace(SHAPE, static_members=True)):
        result = run(liar, shape=shape)
        assert sum("members removed by a liar" in line for line in result.history) == 5


def test_static_members_and_members_of_a_lost_disk_are_not_removable() -> None:
    record = MembersOnRecord(0)
    record.joining(RecordedMember(0, "dynamic"))
    record.joining(RecordedMember(1, "static", instance_id="i-1"))
    assert record.removable == ("dynamic",)
    assert record.start_run() == ("dynamic",)
    record.joining(RecordedMember(0, "next"))
    assert record.removable == ("dynamic", "next")
    record.former_removed()
    assert record.removable == ("next",)
    record.lose()
    assert record.removable == ()
