"""The kernel: one recorded situation in, a row for each candidate out. A plain function; Spark only calls it.

Whatever a candidate does, there is a row: with scores, or with ``valid`` saying what went wrong and ``error`` how.
Apart from the two times, a row follows from the situation, the candidate and the seed: on any machine, with any number
of cores, in any order.
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
from streams_py.backtest.candidates import RECORDED, Candidate, Chosen, choose, seed_of
from streams_py.backtest.deciding import OK, Answer, Placed, ask, recorded_answer
from streams_py.backtest.inputs import ReplayInput, read_input
from streams_py.backtest.rounds import RoundSettings, settle
from streams_py.backtest.scores import Scores, score
from streams_py.backtest.situation import Situation, configs_of
from streams_py.backtest.what_if import apply_what_if
from streams_py.errors import ConfigError, StreamsError
from streams_py.events.taskset import format_task_set
from streams_py.quiet import quiet_logs

__all__ = ["COLUMNS", "DDL", "KEY", "METRICS", "NOBODYS_FAULT", "TIMES", "UNASSIGNED", "Bench", "Orders", "Row"]

Row = dict[str, Any]

UNASSIGNED: Final = "unassigned"
DAMAGED: Final = "damaged"
NO_SCENARIO: Final = "no_scenario"
NOT_RECORDED: Final = "not_recorded"
NOBODYS_FAULT: Final = (DAMAGED, NO_SCENARIO, NOT_RECORDED)
"""No candidate is to blame: the input cannot be read, the what-if does not fit it, nothing was decided."""
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
    "balance_cv": "double",
    "max_over_mean": "double",
    "sub_skew": "int",
    "weighted_max_over_mean": "double",
    "moved_active": "int",
    "moved_cold": "int",
    "moved_standby": "int",
    "restore_records": "bigint",
    "restore_bytes": "bigint",
    "bytes_known_share": "double",
    "unavailable_records": "bigint",
    "spread_violations": "int",
    "cross_rack_partitions": "int",
    "rounds": "int",
    "stable": "boolean",
    "cycle": "int",
    "endless": "boolean",
    "ns_wall": "bigint",
    "ns_cpu": "bigint",
    "decision": "string",
}
"""Columns of the score table with Spark's types. ``seen``: how often the situation was recorded. ``valid``: ``ok``, or
what is wrong."""

DDL: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
"""The same in Spark's words."""

METRICS: Final = (
    "unavailable_records",
    "restore_records",
    "restore_bytes",
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
"""Columns that are compared; less is better in every one."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a run is to do. ``scenarios`` are what-ifs as text, ``""`` for the situation as it was.

    ``limit_s`` is for one decision; 0 or less: none. With ``rounds`` groups are followed until they are at rest.
    """

    candidates: Sequence[Candidate]
    scenarios: Sequence[str] = ("",)
    seed: int = 0
    limit_s: float = 60.0
    rounds: bool = True
    round_settings: RoundSettings = field(default_factory=RoundSettings)
    keep_decisions: bool = False

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ConfigError("there is no candidate; name one, e.g. --candidate ha=builtin:high_availability")
        names = [candidate.name for candidate in self.candidates]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"two candidates are called {twice!r}; give each a name, NAME=SPEC")

    def fingerprint(self) -> str:
        """Text that is equal for equal orders, so that a resumed run is the same run."""
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
            }
        )


class Bench:
    """Evaluates situations. Made once for a process (or Spark task): the code of the candidates is found here.

    ConfigError when a candidate's code is not to be found.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._chosen = [choose(candidate) for candidate in orders.candidates]

    def rows(self, text: str, *, input_hash: str, seen: int = 1) -> Iterator[Row]:
        """Rows of one situation: every scenario, every candidate."""
        with _undisturbed():
            try:
                recorded = read_input(text)
            except DecodeError as error:
                for scenario in self._orders.scenarios:
                    yield from self._all_alike(_empty(input_hash, scenario, seen), DAMAGED, error)
                return
            for scenario in self._orders.scenarios:
                yield from self._scenario(recorded, scenario, input_hash, seen)

    def _all_alike(self, empty: Row, valid: str, error: Exception) -> Iterator[Row]:
        for chosen in self._chosen:
            yield {**empty, "candidate": chosen.candidate.name, "valid": valid, "error": str(error)}

    def _scenario(self, recorded: ReplayInput, scenario: str, input_hash: str, seen: int) -> Iterator[Row]:
        orders = self._orders
        empty = _empty(input_hash, scenario, seen)
        try:
            replay = apply_what_if(recorded, scenario, seed=seed_of(input_hash, scenario, orders.seed))
        except ConfigError as error:  # it does not fit this situation, such as removing more clients than there are
            yield from self._all_alike(empty, NO_SCENARIO, error)
            return
        empty |= {"tasks": replay.task_count, "clients": len(replay.clients)}
        try:
            plain = Situation(replay)
        except StreamsError as error:  # settings or topics that no leader would have accepted
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
                return {"valid": NOT_RECORDED, "error": "nobody ever decided this situation"}
            answer = recorded_answer(decision)
        else:
            answer = ask(chosen, situation, seed=seed, limit_s=orders.limit_s)
        if answer.failure is not None:
            return {"valid": answer.failure.kind, "error": answer.failure.text}
        scores = score(situation, answer.placed)
        row = {"valid": OK, "ns_wall": answer.ns_wall, "ns_cpu": answer.ns_cpu, **_as_row(scores)}
        if scores.unassigned:
            row |= {"valid": UNASSIGNED, "error": f"{scores.unassigned} tasks are given to nobody"}
        if orders.keep_decisions:
            row["decision"] = _decision_text(answer.placed)
        if orders.rounds and chosen.candidate.spec != RECORDED:
            row |= self._settled(chosen, situation, answer, seed)
        return row

    def _settled(self, chosen: Chosen, situation: Situation, answer: Answer, seed: int) -> Row:
        orders = self._orders
        try:
            settled = settle(
                chosen, situation, answer, seed=seed, limit_s=orders.limit_s, settings=orders.round_settings
            )
        except StreamsError as error:  # tasks that cannot be dealt to threads
            return {"valid": "raised", "error": f"when it was carried out: {error}"}
        row: Row = {"rounds": settled.rounds, "stable": settled.stable, "cycle": settled.cycle}
        row["endless"] = settled.endless
        if settled.problem is not None and settled.problem.failure is not None:
            kind, text = settled.problem.failure
            row |= {"valid": kind, "error": f"in round {settled.rounds}: {text}"}
        return row


def _empty(input_hash: str, scenario: str, seen: int) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    return row | {"input_hash": input_hash, "scenario": scenario, "seen": seen}


def _as_row(scores: Scores) -> Mapping[str, Any]:
    return asdict(scores)


def _decision_text(placed: Mapping[str, Placed]) -> str:
    written = {name: [format_task_set(tasks) for tasks in of] for name, of in sorted(placed.items())}
    return json.dumps(written, sort_keys=True, separators=(",", ":"))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No warnings of the assignors, one per decision, and the state of ``random`` afterwards as it was before."""
    state = random.getstate()
    try:
        with quiet_logs("streams_py.assignment", below=logging.CRITICAL):
            yield
    finally:
        random.setstate(state)
