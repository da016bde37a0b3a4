"""Summarises score rows for readers: distributions, comparisons, findings.

A candidate is compared with the base in each situation. It wins where its score is smaller. A sign test shows whether
the difference may be chance: with w wins and l losses, it gives the probability that w + l tosses of a fair coin are at
least as uneven. Ties do not count.

:class:`Summary` is the same whether this module creates it from rows in memory, or Spark
(:mod:`streams_py.spark.backtest_summary`).
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from streams_py.backtest.candidates import RECORDED
from streams_py.backtest.deciding import OK
from streams_py.backtest.kernel import EVENTS, INPUT_FAILURES, METRICS, Row
from streams_py.backtest.pairs import SAME, NoPairs, Pairs, RowPairs, p_value

CHANCE: Final = 0.01
"""Significance level: a difference with a smaller probability is not chance."""
OSCILLATING: Final = "oscillating"
FLAPS: Final = "flaps"
FREQUENT: Final = 0.1
"""A candidate that oscillates in a larger share of situations is not usable."""
NEVER_STABLE: Final = "never_stable"
CONVERGING: Final = "converging"
MISSING: Final = "missing_copies"
_HARMLESS: Final = (*INPUT_FAILURES, NEVER_STABLE, CONVERGING)


class Key(NamedTuple):
    """A candidate in a scenario."""

    scenario: str
    candidate: str


class Distribution(NamedTuple):
    """The distribution of one candidate's values of a score.

    ``median`` and ``p90`` are values that occurred: the smallest value that at least 50 % or 90 % do not exceed.
    """

    number: int
    median: float
    p90: float
    worst: float
    mean: float


class Comparison(NamedTuple):
    """The number of situations in which a candidate was better than, equal to, and worse than the base."""

    wins: int
    ties: int
    losses: int

    @property
    def p(self) -> float:
        """Probability of this difference, or a larger one, by chance."""
        return p_value(self.wins, self.losses)

    @property
    def is_chance(self) -> bool:
        """Whether the difference may be chance."""
        return self.p >= CHANCE


class Finding(NamedTuple):
    """A problem of a candidate, or of the situations that it had to decide.

    ``kind`` is the value of ``valid`` in rows, or ``flaps``, ``oscillating``, ``never_stable``, ``converging`` or
    ``missing_copies``. A candidate with an error is not usable.
    """

    candidate: str
    scenario: str
    kind: str
    times: int
    example: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a run.

    Attributes:
        candidates: names of the candidates.
        scenarios: the scenarios.
        base: the candidate with which the others are compared.
        situations: number of different situations.
        seen: number of situations including repetitions.
        rows: number of rows.
        distributions: distribution of each score, per candidate and scenario.
        against: comparisons with the base.
        findings: problems.
        reproduced: number of situations in which the recorded assignor gave the recorded decision again, and number of
            situations that were tried. None if its code is not available.
        pairs: comparisons of any two candidates.
    """

    candidates: Sequence[str]
    scenarios: Sequence[str]
    base: str
    situations: int
    seen: int
    rows: Mapping[Key, int]
    distributions: Mapping[Key, Mapping[str, Distribution]]
    against: Mapping[Key, Mapping[str, Comparison]]
    findings: Sequence[Finding]
    reproduced: tuple[int, int] | None = None
    pairs: Pairs = field(default=NoPairs(), compare=False, repr=False)  # it has no state

    @property
    def events(self) -> int:
        """Number of outside events that were replayed."""
        return max((self.rows.get(Key(EVENTS, name), 0) for name in self.candidates), default=0)

    @property
    def has_errors(self) -> bool:
        """Whether a candidate has an error."""
        return any(finding.is_error for finding in self.findings)

    def mean(self, candidate: str, metric: str, scenarios: Iterable[str]) -> float | None:
        """Return the mean of a score over all cases of the scenarios. None if the candidate has no such score."""
        scores = [self.distributions.get(Key(scenario, candidate), {}) for scenario in scenarios]
        found = [of[metric] for of in scores if metric in of]
        count = sum(of.number for of in found)
        return sum(of.mean * of.number for of in found) / count if count else None

    def to_json(self) -> str:
        """Return JSON with the findings, and the scores of each candidate in each scenario."""
        value: dict[str, Any] = {
            "candidates": list(self.candidates),
            "scenarios": list(self.scenarios),
            "base": self.base,
            "situations": self.situations,
            "seen": self.seen,
            "events": self.events,
            "reproduced": None if self.reproduced is None else list(self.reproduced),
            "findings": [finding._asdict() for finding in self.findings],
            "results": [
                {
                    **key._asdict(),
                    "rows": self.rows.get(key, 0),
                    "figures": {name: of._asdict() for name, of in self.distributions.get(key, {}).items()},
                    "against_base": {
                        name: {**of._asdict(), "p": of.p} for name, of in self.against.get(key, {}).items()
                    },
                }
                for key in (Key(s, c) for s in self.scenarios for c in self.candidates)
            ],
        }
        return json.dumps(value, indent=1) + "\n"


def base_of(candidates: Sequence[str], scenarios: Sequence[str], wanted: str | None = None) -> str:
    """Return the base: ``recorded``, unless there are what-ifs, which have no recorded decision."""
    if wanted is not None:
        return wanted
    return (
        RECORDED
        if RECORDED in candidates and set(scenarios) <= {"", EVENTS}
        else next((name for name in candidates if name != RECORDED), candidates[0])
    )


def summarise(
    rows: Iterable[Row], candidates: Sequence[str], scenarios: Sequence[str], *, base: str | None = None
) -> Summary:
    """Summarise rows in memory."""
    base = base_of(candidates, scenarios, base)
    by_key: dict[Key, dict[str, Row]] = defaultdict(dict)
    seen: dict[str, int] = {}
    for row in rows:
        by_key[Key(row["scenario"], row["candidate"])][row["input_hash"]] = row
        if row["scenario"] != EVENTS:
            seen[row["input_hash"]] = row["seen"]
    distributions: dict[Key, dict[str, Distribution]] = {}
    against: dict[Key, dict[str, Comparison]] = {}
    for key, mine in by_key.items():
        good = {name: row for name, row in mine.items() if row["valid"] == OK}
        distributions[key] = {
            metric: _distribution(values)
            for metric in METRICS
            if (values := [row[metric] for row in good.values() if row[metric] is not None])
        }
        if key.candidate != base:
            against[key] = _compared(good, by_key.get(Key(key.scenario, base), {}))
    return Summary(
        candidates,
        scenarios,
        base,
        len(seen),
        sum(seen.values()),
        {key: len(of) for key, of in by_key.items()},
        distributions,
        against,
        findings_of(_noted(by_key), {key: len(of) for key, of in by_key.items()}, candidates, scenarios),
        _reproduced(by_key),
        RowPairs(row for of in by_key.values() for row in of.values()),
    )


def _reproduced(by_key: Mapping[Key, Mapping[str, Row]]) -> tuple[int, int] | None:
    answers = [
        row["reproduced"] for key, of in by_key.items() if key.scenario == "" for row in of.values()
        if row["reproduced"] is not None
    ]  # fmt: skip
    return (sum(answers), len(answers)) if answers else None


def _distribution(values: Sequence[float]) -> Distribution:
    ordered = sorted(values)
    count = len(ordered)
    mean = math.fsum(ordered) / count
    return Distribution(count, _ranked(ordered, 0.5), _ranked(ordered, 0.9), ordered[-1], mean)


def _ranked(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _compared(mine: Mapping[str, Row], base: Mapping[str, Row]) -> dict[str, Comparison]:
    found: dict[str, list[int]] = {}
    for name, row in mine.items():
        other = base.get(name)
        if other is None or other["valid"] != OK:
            continue
        for metric in METRICS:
            if row[metric] is not None and other[metric] is not None:
                difference = row[metric] - other[metric]
                place = 1 if abs(difference) <= SAME else 0 if difference < 0 else 2
                found.setdefault(metric, [0, 0, 0])[place] += 1
    return {metric: Comparison(*counts) for metric, counts in found.items()}


class Noted(NamedTuple):
    """Rows of one candidate and scenario with one kind of problem: their number, and the one with the smallest hash."""

    key: Key
    kind: str
    times: int
    example: str
    error: str | None
    cycle: int | None


def _noted(by_key: Mapping[Key, Mapping[str, Row]]) -> list[Noted]:
    noted: list[Noted] = []
    for key, rows in by_key.items():
        kinds: Counter[str] = Counter()
        first: dict[str, Row] = {}
        for name in sorted(rows):
            row = rows[name]
            kind = row["valid"]
            if kind == OK and row["stable"] is False:
                cycle = row["cycle"]
                kind = (
                    CONVERGING
                    if cycle is None
                    else NEVER_STABLE
                    if cycle == 1
                    else FLAPS
                    if row["endless"]
                    else OSCILLATING
                )
            for one in (kind, MISSING if row["valid"] == OK and row["missing_copies"] else OK):
                if one != OK:
                    kinds[one] += 1
                    first.setdefault(one, row)
        noted += [
            Noted(key, kind, count, first[kind]["input_hash"], first[kind]["error"], first[kind]["cycle"])
            for kind, count in kinds.items()
        ]
    return noted


def findings_of(
    noted: Iterable[Noted], rows: Mapping[Key, int], candidates: Sequence[str], scenarios: Sequence[str]
) -> list[Finding]:
    """Return findings, errors first, then by candidate. Input failures are reported once, not for each candidate."""
    findings: list[Finding] = []
    listed: set[tuple[str, str]] = set()
    for of in noted:
        if of.kind in INPUT_FAILURES:
            if of.kind == "not_recorded" and of.key.scenario:
                continue  # what-ifs never have a recorded decision
            if (of.key.scenario, of.kind) in listed:
                continue
            listed.add((of.key.scenario, of.kind))
        harmless = (
            of.kind in _HARMLESS
            or (of.kind == OSCILLATING and of.times <= FREQUENT * rows[of.key])
            or (of.kind == MISSING and of.key.candidate == RECORDED)  # the recorded decision cannot change
        )
        findings.append(
            Finding(of.key.candidate, of.key.scenario, of.kind, of.times, of.example, _sentence(of), not harmless)
        )
    places = {name: number for number, name in enumerate(candidates)}
    orders = {name: number for number, name in enumerate(scenarios)}
    return sorted(findings, key=lambda f: (not f.is_error, places[f.candidate], orders[f.scenario], f.kind))


def _sentence(of: Noted) -> str:
    match of.kind:
        case "flaps":
            return (
                f"never comes to rest: it repeats a circle of {of.cycle} decisions, and each rebalance causes the next"
            )
        case "oscillating":
            return f"alternates between {of.cycle} decisions at every rebalance: tasks move without a benefit"
        case "converging":
            return "has not finished after the last round: it needs many rebalances (see max.warmup.replicas)"
        case "missing_copies":
            return "places fewer copies of state than num.standby.replicas requires, although clients are available"
        case "never_stable":
            return "repeats the same decision, but requests another rebalance forever"
        case _:
            return of.error or of.kind
