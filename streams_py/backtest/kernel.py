"""The kernel: one recorded situation in, a score row for each candidate out. It does not depend on Spark.

The input may also be a segment of a history (:mod:`~streams_py.backtest.loop`). Its rows have the scenario ``EVENTS``,
one for each outside event and candidate.

Every candidate gets a row, whatever it does: with scores, or with the kind of the failure in ``valid`` and a text in
``error``. Except for the two times, a row depends only on the situation, the candidate and the seed. The machine, the
number of cores and the order do not affect it.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from streams_protocol import DecodeError
from streams_py.backtest.candidates import RECORDED, Candidate, Chosen, choose, choose_recorded, seed_of
from streams_py.backtest.deciding import OK, Answer, Placed, ask, recorded_answer
from streams_py.backtest.inputs import RecordedDecision, ReplayInput, read_input
from streams_py.backtest.loop.outside import Segment, is_segment, read_segment
from streams_py.backtest.loop.replaying import UNASSIGNED, event_hashes, replay_segment
from streams_py.backtest.rounds import RoundSettings, settle
from streams_py.backtest.scores import Scores, score
from streams_py.backtest.situation import Situation, configs_of
from streams_py.backtest.what_if import apply_what_if
from streams_py.errors import ConfigError, StreamsError
from streams_py.events.taskset import format_task_set
from streams_py.system.quiet_logs import quiet_logs

__all__ = [
    "COLUMNS",
    "DDL",
    "EVENTS",
    "INPUT_FAILURES",
    "KEY",
    "METRICS",
    "NO_SCENARIO",
    "TIMES",
    "UNASSIGNED",
    "Bench",
    "Orders",
    "Row",
    "chunks_of",
]

Row = dict[str, Any]

EVENTS: Final = "events"
"""The scenario of the recorded outside events, replayed in a closed loop. Scores cover the time until rest."""
DAMAGED: Final = "damaged"
NO_SCENARIO: Final = "no_scenario"
NOT_RECORDED: Final = "not_recorded"
_CHUNKS_MAX: Final = 8
INPUT_FAILURES: Final = (DAMAGED, NO_SCENARIO, NOT_RECORDED)
"""Failures that no candidate has caused: the input is damaged, the what-if does not fit it, or it has no decision."""
KEY: Final = ("input_hash", "scenario", "candidate")
TIMES: Final = ("ns_wall", "ns_cpu")
COLUMNS: Final[dict[str, str]] = {
    "input_hash": "string",
    "scenario": "string",
    "candidate": "string",
    "seen": "int",
    "tasks": "int",
    "clients": "int",
    "valid": "string",
    "error": "string",
    "unassigned": "int",
    "missing_copies": "double",
    "balance_cv": "double",
    "max_over_mean": "double",
    "sub_skew": "double",
    "weighted_max_over_mean": "double",
    "moved_active": "int",
    "moved_cold": "int",
    "moved_standby": "int",
    "restore_records": "bigint",
    "unavailable_records": "bigint",
    "spread_violations": "double",
    "cross_rack_partitions": "double",
    "rounds": "int",
    "stable": "boolean",
    "cycle": "int",
    "endless": "boolean",
    "reproduced": "boolean",
    "ns_wall": "bigint",
    "ns_cpu": "bigint",
    "decision": "string",
}
"""Columns of the score table with Spark's types.

- ``seen``: how often the situation was recorded.
- ``valid``: ``ok``, or the kind of the failure.
- ``reproduced``: whether the recorded assignor gives the recorded decision again; null if its code is not available.
"""

DDL: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
"""The columns as Spark's DDL."""

METRICS: Final = (
    "missing_copies",
    "unavailable_records",
    "restore_records",
    "moved_active",
    "moved_cold",
    "moved_standby",
    "max_over_mean",
    "balance_cv",
    "sub_skew",
    "weighted_max_over_mean",
    "spread_violations",
    "cross_rack_partitions",
    "rounds",
    "ns_cpu",
)
"""Columns that are compared. In all of them, less is better."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of a run.

    Attributes:
        candidates: the candidates.
        scenarios: what-ifs as text; ``""`` is the recorded situation.
        seed: the user's random seed.
        limit_s: time limit of a decision, in s; 0 or less: no limit.
        rounds: whether to follow groups until they are at rest.
        round_settings: settings of these rounds.
        keep_decisions: whether rows contain the decisions.
        loop: whether to replay outside events, too. This requires ``rounds`` and the scenario ``""``.
    """

    candidates: Sequence[Candidate]
    scenarios: Sequence[str] = ("",)
    seed: int = 0
    limit_s: float = 60.0
    rounds: bool = True
    round_settings: RoundSettings = field(default_factory=RoundSettings)
    keep_decisions: bool = False
    loop: bool = True

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ConfigError("no candidate is given; name one, e.g. --candidate ha=builtin:high_availability")
        names = [candidate.name for candidate in self.candidates]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"two candidates have the name {twice!r}; give each its own name, NAME=SPEC")

    @property
    def replays_events(self) -> bool:
        """Whether outside events are replayed."""
        return self.loop and self.rounds and "" in self.scenarios

    @property
    def all_scenarios(self) -> tuple[str, ...]:
        """All scenarios of the score rows."""
        return (*self.scenarios, *([EVENTS] if self.replays_events else []))

    def fingerprint(self) -> str:
        """Return a text that is equal for equal orders, so that a resumed run is the same run."""
        return json.dumps(
            {
                "candidates": [
                    [c.name, c.spec, sorted((k, str(v)) for k, v in c.overrides.items())] for c in self.candidates
                ],
                "scenarios": list(self.scenarios),
                "seed": self.seed,
                "limit_s": self.limit_s,
                "rounds": self.rounds,
                "round_settings": list(self.round_settings),
                "keep_decisions": self.keep_decisions,
                "loop": self.loop,
            }
        )


class Bench:
    """Evaluates situations. Created once for a process or Spark task, because it loads the code of the candidates.

    Raises:
        ConfigError: the code of a candidate is not found.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._chosen = [choose(candidate) for candidate in orders.candidates]
        self._recorded: dict[str, Chosen | None] = {}

    def rows(self, text: str, *, input_hash: str, seen: int = 1, chunk: int | None = None) -> Iterator[Row]:
        """Yield the rows of a situation (each scenario and candidate) or of a segment (each event and candidate).

        For a segment, ``chunk`` limits the candidates to one of the :func:`chunks_of` chunks.
        """
        with _undisturbed():
            if is_segment(text):
                yield from self._segment(text, input_hash, seen, chunk)
                return
            try:
                recorded = read_input(text)
            except DecodeError as error:
                for scenario in self._orders.scenarios:
                    yield from self._all_alike(_empty(input_hash, scenario, seen), DAMAGED, error)
                return
            for scenario in self._orders.scenarios:
                yield from self._scenario(recorded, scenario, input_hash, seen)

    def _segment(self, text: str, segment_hash: str, seen: int, chunk: int | None) -> Iterator[Row]:
        try:
            segment = read_segment(text)
        except DecodeError:  # cannot happen: segments are created from valid situations
            return
        hashes = event_hashes(segment_hash, segment)
        chunks = chunks_of(self._orders)
        for number, chosen in enumerate(self._chosen):
            if chunk is None or number % chunks == chunk:
                yield from self._replayed(chosen, segment, segment_hash, hashes, seen)

    def _replayed(
        self, chosen: Chosen, segment: Segment, segment_hash: str, hashes: Sequence[str], seen: int
    ) -> Iterator[Row]:
        orders, name = self._orders, chosen.candidate.name
        who = self._who(segment.start.decision) if chosen.candidate.spec == RECORDED else chosen
        if who is None:
            for one in hashes:
                empty = _empty(one, EVENTS, seen)
                yield {**empty, "candidate": name, "valid": NOT_RECORDED, "error": _unknown(segment.start.decision)}
            return
        rows = replay_segment(
            who, segment, segment_hash,
            seed=seed_of(segment_hash, name, orders.seed), limit_s=orders.limit_s, settings=orders.round_settings,
        )  # fmt: skip
        for one, row in zip(hashes, rows, strict=False):  # fewer rows when it fails
            yield {**_empty(one, EVENTS, seen), "candidate": name, **row}

    def _who(self, decision: RecordedDecision | None) -> Chosen | None:
        """Return the assignor of a record, or None if its code is not available."""
        if decision is None:
            return None
        name = decision.assignor.name
        if name not in self._recorded:
            self._recorded[name] = choose_recorded(name, self._chosen)
        return self._recorded[name]

    def _all_alike(self, empty: Row, valid: str, error: Exception) -> Iterator[Row]:
        for chosen in self._chosen:
            yield {**empty, "candidate": chosen.candidate.name, "valid": valid, "error": str(error)}

    def _scenario(self, recorded: ReplayInput, scenario: str, input_hash: str, seen: int) -> Iterator[Row]:
        orders = self._orders
        empty = _empty(input_hash, scenario, seen)
        try:
            replay = apply_what_if(recorded, scenario, seed=seed_of(input_hash, scenario, orders.seed))
        except ConfigError as error:  # it does not fit this situation, for example it removes too many clients
            yield from self._all_alike(empty, NO_SCENARIO, error)
            return
        empty |= {"tasks": replay.task_count, "clients": len(replay.clients)}
        try:
            plain = Situation(replay)
        except StreamsError as error:  # settings or topics that no leader accepts
            yield from self._all_alike(empty, DAMAGED, error)
            return
        for chosen in self._chosen:
            overrides = chosen.candidate.overrides
            situation = plain
            if overrides and configs_of(replay.configs, overrides) != plain.configs:
                situation = Situation(replay, overrides, plain.plan)
            seed = seed_of(input_hash, chosen.candidate.name, orders.seed)
            yield {**empty, "candidate": chosen.candidate.name, **self._one(chosen, situation, seed)}

    def _one(self, chosen: Chosen, situation: Situation, seed: int) -> Row:
        orders = self._orders
        if chosen.candidate.spec == RECORDED:
            decision = situation.replay.decision
            if decision is None:
                return {"valid": NOT_RECORDED, "error": "the situation has no recorded decision"}
            answer = recorded_answer(decision)
        else:
            answer = ask(chosen, situation, seed=seed, limit_s=orders.limit_s)
        if answer.failure is not None:
            return {"valid": answer.failure.kind, "error": answer.failure.text}
        scores = score(situation, answer.placed)
        row = {"valid": OK, "ns_wall": answer.ns_wall, "ns_cpu": answer.ns_cpu, **_as_row(scores)}
        if scores.unassigned:
            row |= {"valid": UNASSIGNED, "error": f"{scores.unassigned} tasks are not assigned"}
        if orders.keep_decisions:
            row["decision"] = _decision_text(answer.placed)
        if chosen.candidate.spec == RECORDED:
            row["reproduced"] = self._reproduced(situation, answer, seed)
        elif orders.rounds:
            row |= self._settled(chosen, situation, answer, seed)
        return row

    def _reproduced(self, situation: Situation, recorded: Answer, seed: int) -> bool | None:
        who = self._who(situation.replay.decision)
        if who is None:
            return None
        again = ask(who, situation, seed=seed, limit_s=self._orders.limit_s, once=True)
        return again.failure is None and _given(again) == _given(recorded)

    def _settled(self, chosen: Chosen, situation: Situation, answer: Answer, seed: int) -> Row:
        orders = self._orders
        try:
            settled = settle(
                chosen, situation, answer, seed=seed, limit_s=orders.limit_s, settings=orders.round_settings
            )
        except StreamsError as error:  # tasks cannot be distributed to threads
            return {"valid": "raised", "error": f"carrying out the decision failed: {error}"}
        row: Row = settled.rest._asdict()
        if settled.problem is not None and settled.problem.failure is not None:
            kind, text = settled.problem.failure
            row |= {"valid": kind, "error": f"in round {settled.rest.rounds}: {text}"}
        return row


def _empty(input_hash: str, scenario: str, seen: int) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    return row | {"input_hash": input_hash, "scenario": scenario, "seen": seen}


def chunks_of(orders: Orders) -> int:
    """Return the number of chunks into which the candidates of a segment are divided."""
    return min(len(orders.candidates), _CHUNKS_MAX)


def _given(answer: Answer) -> dict[str, Placed]:
    return {name: placed for name, placed in answer.placed.items() if any(placed)}


def _unknown(decision: RecordedDecision | None) -> str:
    if decision is None:
        return "the situation has no recorded decision"
    return (
        f"the recorded assignor {decision.assignor.name} is not part of this library; name it as a candidate, with its "
        "settings, to replay it"
    )


def _as_row(scores: Scores) -> Mapping[str, Any]:
    return asdict(scores)


def _decision_text(placed: Mapping[str, Placed]) -> str:
    written = {name: [format_task_set(tasks) for tasks in of] for name, of in sorted(placed.items())}
    return json.dumps(written, sort_keys=True, separators=(",", ":"))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Silence warnings of the assignors (one per decision), and restore the state of ``random`` at the end."""
    state = random.getstate()
    try:
        with quiet_logs("streams_py.assignment", below=logging.CRITICAL):
            yield
    finally:
        random.setstate(state)
