"""The bookkeeping of the assignors' benchmark; both sides get the same group."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.assignors import rows
from benchmarks.assignors.jvm import JvmRuns, Limits, hash_sizing, prepare, run_on_jvm
from benchmarks.assignors.leader_step import leader_step
from benchmarks.assignors.scenarios import MIN_TRAFFIC, Scenario, exchange, outcome_of, place, problem_of, rack_case
from benchmarks.table import Goal
from streams_py.assignment.java_order import HashSizing

SCENARIO = Scenario.parse("high_availability/40x4/r1/joined")
OURS = rows._Ours((0.1, 0.1, 0.1), "same", 10.0)  # a program has no public names
TEN_TIMES = Goal("", ratio_max=0.1)


def test_scenario_name_says_everything() -> None:
    assert str(SCENARIO) == "high_availability/40x4/r1/joined"
    assert Scenario.parse(str(SCENARIO)) == SCENARIO


def test_history_decides_who_is_in_the_group() -> None:
    found = {
        situation: problem_of(Scenario("high_availability", 40, 4, 1, situation), HashSizing.JDK_19_AND_NEWER)
        for situation in ("cold", "steady", "joined", "left")
    }
    assert {situation: len(problem.clients) for situation, problem in found.items()} == {
        "cold": 4,
        "steady": 4,
        "joined": 5,
        "left": 3,
    }
    assert sum(len(client.lags) for client in found["cold"].clients) == 0
    assert sum(len(client.lags) for client in found["steady"].clients) == 80


@pytest.mark.parametrize(
    ("jvm", "text", "met"),
    [
        (JvmRuns((2.0, 2.0, 2.0), "same", None), "equal decisions", True),
        (JvmRuns((0.5,), "same", None), "equal decisions", False),
        (JvmRuns((2.0,), "other", None), "DECISIONS DIFFER", False),
        (JvmRuns((), None, 60.0), "gave up after 60 s", True),
        (JvmRuns((), None, 0.9), "gave up after 1 s", None),
    ],
)
def test_row_is_judged_by_what_is_known(jvm: JvmRuns, text: str, met: bool | None) -> None:
    row = rows._compared(SCENARIO, OURS, jvm, TEN_TIMES)  # see OURS
    peer = row.peer[0] if row.peer else None
    assert text in row.compared_with + row.note
    assert row.goal.is_met(row.ours[0], peer) is met


def test_growth_is_measured_in_n_log_n(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {1_000: 1.0, 10_000: 40.0 / 3.0, 100_000: 1.2 * 40.0 / 3.0 * 12.5}

    def run(name: str, *_: object) -> SimpleNamespace:
        return SimpleNamespace(seconds=(times[Scenario.parse(name).tasks],))

    monkeypatch.setattr(rows, "_run_ours", run)  # see OURS
    assert rows._growth_row("steady", HashSizing.JDK_19_AND_NEWER, 3).ours == pytest.approx((1.2,))  # see OURS


@pytest.mark.parametrize("end_points", [False, True])
def test_leader_step_sends_bytes_to_every_member(end_points: bool) -> None:
    step = leader_step(SCENARIO, end_points=end_points)
    assert len(step.members) == 5
    assert step.run() > (5 * 300 if end_points else 5 * 10)


if shutil.which("java") and shutil.which("javac"):  # a broker may also run in Docker; then this machine may have no JVM

    @pytest.fixture(scope="module")
    def peer(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
        """Compile the peer once."""
        return prepare(tmp_path_factory.mktemp("peer"))

    @pytest.mark.broker
    @pytest.mark.parametrize("situation", ["cold", "joined", "left"])
    @pytest.mark.parametrize("assignor", ["high_availability", "sticky", "legacy_sticky", MIN_TRAFFIC])
    def test_kafka_streams_decides_as_we_do(assignor: str, situation: str, peer: list[str], tmp_path: Path) -> None:
        sizing = hash_sizing(peer)
        scenario = Scenario(assignor, 90, 7, 1, situation)
        jvm = run_on_jvm(peer, scenario, sizing, Limits(runs_min=1, runs_max=1), tmp_path)
        if assignor == MIN_TRAFFIC:
            case = rack_case(scenario)
            assert jvm.outcome == str(case.cost(exchange(case)))
        else:
            assert jvm.outcome == outcome_of(place(assignor, problem_of(scenario, sizing)))
