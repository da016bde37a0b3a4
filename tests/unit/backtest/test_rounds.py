"""Groups that continue to rebalance: withheld tasks, copies that catch up, circles."""

from __future__ import annotations

import pytest

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.assignment import ApplicationState, TaskAssignor
from streams_py.backtest.candidates import Candidate
from streams_py.backtest.generate import History, generate
from streams_py.backtest.inputs import read_input
from streams_py.backtest.kernel import Row
from streams_py.backtest.rounds import RoundSettings, advance
from streams_py.backtest.situation import Situation
from streams_py.backtest.summary import summarise
from tests.support.backtest import assignors
from tests.support.backtest.kit import A, B, answer, client, placed, replay, rows, situation_of, sub


def settled(situation: object, assignor: type[TaskAssignor] | str) -> Row:
    (row,) = rows(situation, Candidate("mine", assignor))  # type: ignore[arg-type]  # a situation
    assert row["valid"] == "ok", row["error"]
    return row


def test_circle_of_two_is_found_when_a_candidate_flaps() -> None:
    row = settled(replay(client(A, "0:0-1"), client(B, "0:2-3")), assignors.Flaps)
    assert (row["stable"], row["cycle"], row["rounds"]) == (False, 2, 50)
    summary = summarise([row], ["mine"], [""])
    assert summary.has_errors
    assert "2 decisions" in summary.findings[0].text


def test_group_is_at_rest_at_once_when_it_was_before() -> None:
    row = settled(replay(client(A, "0:0-1"), client(B, "0:2-3")), "builtin:sticky")
    assert (row["stable"], row["rounds"], row["cycle"], row["moved_active"]) == (True, 1, None, 0)


def test_warm_ups_end_in_moves_when_the_high_availability_assignor_is_followed() -> None:
    row = settled(replay(client(A, "0:0-3"), client(B)), "builtin:high_availability")
    assert row["stable"]
    assert row["moved_active"] == 0  # first it warms up
    assert row["rounds"] > 2


def test_candidate_never_stable_when_it_always_wants_another_rebalance() -> None:
    row = settled(replay(client(A, "0:0-1"), client(B, "0:2-3")), "builtin:fallback")
    assert (row["stable"], row["cycle"]) == (False, 1)
    assert row["endless"]
    assert not summarise([row], ["mine"], [""]).has_errors


def test_later_failure_is_told_when_only_the_situation_after_it_is_too_much() -> None:
    (row,) = rows(replay(client(A, "0:0-3"), client(B)), Candidate("mine", RaisesWhenShared))
    assert row["valid"] == "raised"
    assert row["error"].startswith("in round 2:")
    assert row["moved_active"] == 2


class RaisesWhenShared(assignors.InTurn):
    def spoil(self, assignments: object, clients: object, state: ApplicationState) -> None:
        if all(not client.previous_active_tasks or len(client.previous_active_tasks) < 4
               for client in state.kafka_streams_states().values()):  # fmt: skip
            raise ValueError("not like this")


# -- one step ----------------------------------------------------------------------------------------------------------


def test_task_is_withheld_and_given_up_when_another_client_is_to_have_it() -> None:
    situation = situation_of(replay(client(A, "0:0-3"), client(B, sums={"0:3": 400})))
    step = advance(situation, answer(placed(A="0:0-1", B="0:2-3")), RoundSettings(restore_rate=100))
    assert step.withheld == {TaskId(0, 2), TaskId(0, 3)}
    a, b = step.replay.clients
    assert list(a.prev_active) == [TaskId(0, 0), TaskId(0, 1)]
    assert list(a.prev_standby) == [TaskId(0, 2), TaskId(0, 3)]  # on its disk for now, complete
    assert dict(zip(a.sums.tasks, a.sums.v, strict=True))[TaskId(0, 3)] == 1_000
    assert list(b.prev_active) == []
    assert dict(zip(b.sums.tasks, b.sums.v, strict=True)) == {TaskId(0, 3): 500}  # its copy was restored for a second


def test_task_is_taken_over_when_nobody_owns_it_any_more() -> None:
    situation = situation_of(replay(client(A, "0:0-1"), client(B, sums={"0:2-3": 0})))
    step = advance(situation, answer(placed(A="0:0-1", B="0:2-3")), RoundSettings(restore_rate=1))
    assert not step.withheld
    b = step.replay.clients[1]
    assert list(b.prev_active) == [TaskId(0, 2), TaskId(0, 3)]
    assert list(b.sums.v) == [600, 600]  # still restoring after ten minutes of one record a second
    done = advance(situation, answer(placed(A="0:0-1", B="0:2-3")), RoundSettings()).replay.clients[1]
    assert list(done.sums.v) == [LATEST_OFFSET, LATEST_OFFSET]


def test_dropped_copy_is_gone_when_the_cleanup_delay_is_over() -> None:
    situation = situation_of(replay(client(A, "0:0-3"), client(B, sums={"0:0-1": 1_000})))
    at_rest = advance(situation, answer(placed(A="0:0-3", B=("", "0:0"))), RoundSettings())
    assert list(at_rest.replay.clients[1].sums.tasks) == [TaskId(0, 0)]
    soon = advance(situation, answer(placed(A="0:0-3", B=("", "0:0")), "at_once"), RoundSettings())
    assert list(soon.replay.clients[1].sums.tasks) == [TaskId(0, 0), TaskId(0, 1)]


def test_changelogs_grow_when_records_arrive() -> None:
    situation = situation_of(replay(client(A, "0:0-3"), subs=[sub(ends=(0, 10, -3, 10))]))
    step = advance(situation, answer(placed(A="0:0-3")), RoundSettings(produce_rate=2))
    assert step.replay.subs[0].end == (1_200, 1_210, -3, 1_210)


def test_stateless_task_needs_no_sums_when_it_moves() -> None:
    situation = situation_of(replay(client(A, "0:0-3"), client(B), subs=[sub(ends=None)]))
    first = advance(situation, answer(placed(A="0:0-1", B="0:2-3")), RoundSettings())
    assert len(first.withheld) == 2
    second = advance(Situation(first.replay), answer(placed(A="0:0-1", B="0:2-3")), RoundSettings())
    assert not second.withheld
    assert [len(c.prev_active) for c in second.replay.clients] == [2, 2]


@pytest.mark.parametrize("threads", [1, 3])
def test_every_task_is_owned_once_when_a_history_goes_on(threads: int) -> None:
    history = History(tasks=18, clients=4, threads=threads, records=1_000)
    for text in generate(history, 60):
        read = read_input(text)
        owned = [task for c in read.clients for consumer in c.consumers for task in consumer.owned]
        assert len(owned) == len(set(owned))
        for c in read.clients:
            assert {task for consumer in c.consumers for task in consumer.owned} == set(c.prev_active)
            assert not set(c.prev_active) & set(c.prev_standby)
        assert read.decision is not None
        given = [task for of in read.decision.clients.values() for task in of.active]
        assert len(given) == len(set(given)) == 18
