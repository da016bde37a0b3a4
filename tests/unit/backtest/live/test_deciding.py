"""Candidates decide the situation of a running group from outside, without joining it or creating topics."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.backtest.candidates import Candidate, parse_candidate
from streams_py.backtest.inputs import read_input
from streams_py.backtest.kernel import Orders
from streams_py.backtest.live.deciding import Outcome, outcomes
from streams_py.backtest.live.reading import present_situation
from streams_py.cli.groups import deciding_live
from streams_py.ports import MemberSubscription
from tests.support.backtest import assignors
from tests.support.inspection.groups import FakeCluster, process, rebalanced, said, topics

STANDBYS = AssignmentConfigs(num_standby_replicas=1)
HA, STICKY, NOW = (parse_candidate(text) for text in ("ha=builtin:high_availability", "sticky", "recorded"))


def counting(partitions: int, end: int = 50_000) -> FakeCluster:
    return FakeCluster(topics(partitions), {"in": 1_000, "app-counts-changelog": end})


def running(number: int, *names: str, **copies: int) -> MemberSubscription:
    """A member that runs tasks; ``t0_1=5``: it has a copy of 0_1 with 5 records."""
    mine = [TaskId.parse(name) for name in names]
    sums = {task: LATEST_OFFSET for task in mine if task.subtopology == 0}
    return said(number, owned=mine, sums=sums | {TaskId.parse(name[1:]): value for name, value in copies.items()})


def at_rest() -> FakeCluster:
    cluster = counting(2)
    members = {"m0": running(0, "0_0", "1_0", t0_1=49_990), "m1": running(1, "0_1", "1_1", t0_0=49_000)}
    rebalanced(cluster, members, 2, STANDBYS)
    return cluster


def joined() -> FakeCluster:
    """The second member joined without state and warms up. All tasks still run on the first."""
    cluster = counting(2)
    rebalanced(cluster, {"m0": running(0, "0_0", "0_1", "1_0", "1_1"), "m1": said(1, generation=-1)}, 2)
    return cluster


def found(cluster: FakeCluster, *candidates: Candidate, **options: Any) -> dict[str, Outcome]:
    present = present_situation(cluster, "app", configs={})
    return {of.candidate: of for of in outcomes(present.situation, Orders(candidates, **options))}


def test_situation_is_that_which_a_leader_would_record_when_a_group_is_at_rest() -> None:
    cluster = at_rest()
    present = present_situation(cluster, "app", configs={"acceptable.recovery.lag": "77"})
    situation = present.situation
    text = situation.canonical()
    assert replace(read_input(text), text=None).canonical() == text
    assert situation.configs["num.standby.replicas"] == 1, "taken from the copies there are"
    assert situation.configs["acceptable.recovery.lag"] == 77
    assert any("num.standby.replicas=1" in text for text in present.assumed)
    first = situation.clients[0]
    assert first.client == str(process(0))
    assert dict(zip(first.sums.tasks, first.sums.v, strict=True)) == {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): 49_990}
    assert [list(consumer.owned) for consumer in first.consumers] == [[TaskId(0, 0), TaskId(1, 0)]]
    assert situation.decision is not None
    held = situation.decision.clients[first.client]
    assert (held.active, held.standby, held.warmup) == ([TaskId(0, 0), TaskId(1, 0)], [TaskId(0, 1)], [])
    ends = [(piece.sub, piece.logged, piece.end) for piece in situation.subs]
    assert ends == [("0", True, [50_000, 50_000]), ("1", False, None)]
    assert not cluster.created


def test_nothing_moves_when_the_group_is_as_the_candidate_wants_it() -> None:
    of = found(at_rest(), NOW, HA)
    assert (of["ha"].moves, of["ha"].scores["rounds"], of["ha"].scores["moved_active"]) == ([], 1, 0)
    assert of["recorded"].scores["moved_active"] == 0
    assert of["recorded"].scores["max_over_mean"] == of["ha"].scores["max_over_mean"] == 1


def test_candidates_differ_in_what_they_would_do_when_somebody_has_just_joined() -> None:
    """High availability warms up first. Sticky moves tasks immediately, so they must be restored then."""
    of = found(joined(), NOW, HA, STICKY)
    assert of["ha"].scores["unavailable_records"] == 0
    assert of["sticky"].scores["unavailable_records"] == 50_000
    assert of["ha"].scores["rounds"] > of["sticky"].scores["rounds"]
    (moved,) = (move for move in of["sticky"].moves if move.task.subtopology == 0)
    assert (moved.before, moved.after) == (str(process(0)), str(process(1)))
    assert of["recorded"].scores["max_over_mean"] > 1


def test_tasks_come_from_nobody_when_a_what_if_takes_their_client_away() -> None:
    present = present_situation(at_rest(), "app", configs={}).situation
    (lost,) = outcomes(present, Orders([NOW, HA], scenarios=("remove_clients(1)",)))
    assert len(lost.moves) == 2
    assert {move.before for move in lost.moves} == {None}
    assert 0 < lost.scores["unavailable_records"] <= 1_000, "there is a standby"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(cluster: FakeCluster, *candidates: Candidate, as_json: bool = False, **options: Any) -> int:
        @contextlib.contextmanager
        def connected(*_: object) -> Iterator[FakeCluster]:
            yield cluster

        monkeypatch.setattr(deciding_live, "connected", connected)
        orders = Orders(candidates, **options)
        return deciding_live.decide_live(
            "app", "x:1", None, assumed=["max.warmup.replicas=1"], orders=orders, as_json=as_json
        )

    return run


def test_command_prints_what_would_move_when_it_is_asked(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(joined(), NOW, STICKY, scenarios=("", "add_standby(1)")) == 0
    shown = capsys.readouterr().out
    assert "A is client-m0 at 10.0.0.1" in shown
    assert "0_0 A -> B" in shown or "0_1 A -> B" in shown
    assert "what if add_standby(1)" in shown
    assert "recorded: the present assignment" in shown
    assert command(joined(), NOW, STICKY, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["configs"]["max.warmup.replicas"] == 1
    assert [of["candidate"] for of in told["outcomes"]] == ["recorded", "sticky"]
    assert told["outcomes"][1]["figures"]["unavailable_records"] == 50_000


def test_nothing_is_cut_on_an_ordinary_terminal(
    command: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert command(joined(), NOW, HA, STICKY) == 0
    shown = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert {"recorded", "ha", "sticky"} < set(shown.split())
    assert "to restore before tasks run (records)" in shown


def test_command_says_what_is_wrong_in_one_sentence(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(joined(), Candidate("draft", assignors.Raises)) == 1
    assert "draft: cannot be used here: KeyError" in capsys.readouterr().out
    assert command(counting(2), STICKY) == 2
    assert "has no members" in capsys.readouterr().err
    assert command(at_rest(), STICKY, scenarios=("remove_clients(2)",)) == 2
    assert "one must stay" in capsys.readouterr().err
