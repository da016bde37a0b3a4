"""The decisions of candidates in a present situation: a rebalance now, and all further ones until rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streams_protocol.types import TaskId
from streams_py.backtest.candidates import RECORDED, choose, seed_of
from streams_py.backtest.deciding import OK, Answer, Placed, ask, recorded_answer
from streams_py.backtest.inputs import ReplayInput
from streams_py.backtest.kernel import UNASSIGNED, Orders
from streams_py.backtest.loop.way import EventCosts
from streams_py.backtest.rounds import settle
from streams_py.backtest.scores import owners_of, score
from streams_py.backtest.situation import Situation
from streams_py.backtest.what_if import apply_what_if
from streams_py.errors import StreamsError


@dataclass(frozen=True, slots=True)
class Move:
    """A task that moves to another client. ``before``: its present client; None without one, or if it is gone."""

    task: TaskId
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one candidate in one scenario.

    Attributes:
        candidate: name of the candidate.
        scenario: the what-if, or ``""``.
        valid: see the score table.
        error: see the score table.
        scores: scores of all rebalances until rest.
        moves: tasks whose owner at rest differs from the present one.
    """

    candidate: str
    scenario: str
    valid: str
    error: str | None = None
    scores: Mapping[str, Any] = field(default_factory=dict)
    moves: Sequence[Move] = ()

    @property
    def is_usable(self) -> bool:
        """Whether the candidate has decided and has assigned all tasks."""
        return self.valid == OK


def outcomes(present: ReplayInput, orders: Orders) -> Iterator[Outcome]:
    """Yield the outcome of every candidate under every what-if. ``recorded`` is the present assignment of the group.

    Raises:
        ConfigError: the code of a candidate is not found, or a what-if does not fit the situation.
    """
    chosen = [choose(candidate) for candidate in orders.candidates]
    text_hash = present.hash()
    for scenario in orders.scenarios:
        replay = apply_what_if(present, scenario, seed=seed_of(text_hash, scenario, orders.seed))
        for one in chosen:
            name = one.candidate.name
            situation = Situation(replay, one.candidate.overrides)
            if one.candidate.spec == RECORDED:
                if replay.decision is not None:
                    yield _now(name, situation, recorded_answer(replay.decision))
                continue
            seed = seed_of(text_hash, name, orders.seed)
            first = ask(one, situation, seed=seed, limit_s=orders.limit_s)
            if first.failure is not None:
                yield Outcome(name, scenario, first.failure.kind, first.failure.text)
                continue
            costs = EventCosts()
            try:
                settled = settle(
                    one, situation, first,
                    seed=seed, limit_s=orders.limit_s, settings=orders.round_settings, watch=costs,
                )  # fmt: skip
            except StreamsError as error:
                yield Outcome(name, scenario, "raised", f"carrying out the decision failed: {error}")
                continue
            if settled.problem is not None and settled.problem.failure is not None:
                kind, text = settled.problem.failure
                yield Outcome(name, scenario, kind, f"in round {settled.rest.rounds}: {text}")
                continue
            assert costs.last is not None
            scores = costs.row(stable=settled.rest.stable) | settled.rest._asdict()
            lost = costs.unassigned
            valid, why = (UNASSIGNED, f"{lost} tasks are not assigned") if lost else (OK, None)
            yield Outcome(name, scenario, valid, why, scores, _moves(situation, costs.last[1].placed))


def _now(name: str, situation: Situation, answer: Answer) -> Outcome:
    return Outcome(name, "", OK, None, asdict(score(situation, answer.placed)))


def _moves(situation: Situation, placed: Mapping[str, Placed]) -> list[Move]:
    owners = owners_of(situation)
    after = {task: name for name, of in placed.items() for task in of.active}
    return [Move(task, owners.get(task), name) for task, name in sorted(after.items()) if owners.get(task) != name]
