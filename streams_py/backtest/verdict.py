"""Which candidate to choose, and why, in a few sentences that can be checked against the table.

There is no overall score. Candidates that fail, flap or never stop asking are out; the rest is compared, score by
score, in the order in which it hurts: records that users wait for, copies that share a zone, state moved cold, the
busiest thread, rebalances until rest, records restored in all, tasks moved. The first score in which a candidate is
clearly better (by more than 5 %) decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Final

from streams_py.backtest.candidates import RECORDED
from streams_py.backtest.summary import FLAPS, NEVER_STABLE, OSCILLATING, Key, Summary

__all__ = ["ORDER", "Verdict", "verdict_of"]

ORDER: Final = (
    ("unavailable_records", "records to restore before tasks run again"),
    ("spread_violations", "tasks whose copies share a zone or tag"),
    ("moved_cold", "tasks moved without their state"),
    ("max_over_mean", "load of the busiest thread over the mean"),
    ("rounds", "rebalances until the group is at rest"),
    ("restore_records", "records to restore in all"),
    ("moved_active", "tasks moved"),
    ("moved_standby", "standbys moved"),
)
_BAD: Final = {FLAPS: "flaps", OSCILLATING: "changes its mind at every rebalance"}
_CLEAR: Final = 0.05
_FOR_EVER_SHARE: Final = 0.5
_REASONS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ranking`` are the usable candidates, best first; ``out`` the others with the reason."""

    ranking: Sequence[str]
    out: Sequence[tuple[str, str]]
    sentence: str
    reasons: Sequence[str]


def verdict_of(summary: Summary) -> Verdict:
    """Compare the candidates of a run."""
    out = [
        (name, reason)
        for name in summary.candidates
        if name != RECORDED and (reason := _why_out(summary, name)) is not None
    ]
    left = [name for name in summary.candidates if name != RECORDED and name not in dict(out)]

    def compare(one: str, other: str) -> int:
        return _compare(summary, one, other)

    ranking = sorted(left, key=cmp_to_key(compare))
    if not ranking:
        return Verdict((), out, "No candidate can be used.", [f"{name} {reason}" for name, reason in out])
    best = ranking[0]
    if len(ranking) == 1:
        sentence = f"Choose {best}: it is the only candidate that can be used." if out else f"{best} can be used."
        return Verdict(ranking, out, sentence, _reasons(summary, best, RECORDED))
    second = ranking[1]
    deciding = _deciding(summary, best, second)
    if deciding is None:
        sentence = f"It makes no difference: {best} and {second} score alike."
    else:
        sentence = f"Choose {best}: {_sentence(summary, best, second, *deciding)}."
    return Verdict(ranking, out, sentence, _reasons(summary, best, ranking[-1], skip=second))


def _why_out(summary: Summary, name: str) -> str | None:
    mine = [finding for finding in summary.findings if finding.candidate == name]
    for finding in mine:
        if finding.is_error:
            what = _BAD.get(finding.kind, f"fails ({finding.kind.replace('_', ' ')})")
            return f"{what} in {finding.times:,} of {summary.situations:,} situations"
    rows = sum(summary.rows.get(Key(scenario, name), 0) for scenario in summary.scenarios)
    asking = sum(finding.times for finding in mine if finding.kind == NEVER_STABLE)
    if rows and asking > rows * _FOR_EVER_SHARE:
        return f"asks for another rebalance for ever in {asking:,} of {rows:,} cases"
    if not any(summary.figures.get(Key(scenario, name)) for scenario in summary.scenarios):
        return "decided nothing"
    return None


def _total(summary: Summary, name: str, metric: str) -> float | None:
    """Mean over all situations and scenarios."""
    found = [
        of[metric] for scenario in summary.scenarios if metric in (of := summary.figures.get(Key(scenario, name), {}))
    ]
    count = sum(of.number for of in found)
    return sum(of.mean * of.number for of in found) / count if count else None


def _compare(summary: Summary, one: str, other: str) -> int:
    for metric, _ in ORDER:
        mine, theirs = _total(summary, one, metric), _total(summary, other, metric)
        if mine is None or theirs is None:
            continue
        if _is_clear(mine, theirs):
            return -1 if mine < theirs else 1
    return 0


def _is_clear(one: float, other: float) -> bool:
    return abs(one - other) > _CLEAR * max(abs(one), abs(other))


def _deciding(summary: Summary, best: str, other: str) -> tuple[str, str] | None:
    for metric, meaning in ORDER:
        mine, theirs = _total(summary, best, metric), _total(summary, other, metric)
        if mine is not None and theirs is not None and _is_clear(mine, theirs):
            return metric, meaning
    return None


def _sentence(summary: Summary, best: str, other: str, metric: str, meaning: str) -> str:
    mine, theirs = _total(summary, best, metric), _total(summary, other, metric)
    assert mine is not None
    assert theirs is not None
    return f"{meaning}: {_figure(mine)} on average, against {_figure(theirs)} with {other}"


def _reasons(summary: Summary, best: str, other: str, skip: str = "") -> list[str]:
    """Where the best differs clearly from somebody, for better or worse."""
    reasons = []
    for metric, meaning in ORDER:
        mine, theirs = _total(summary, best, metric), _total(summary, other, metric)
        if mine is not None and theirs is not None and _is_clear(mine, theirs) and other != skip:
            word = "better" if mine < theirs else "worse"
            reasons.append(f"{word} than {other} in {meaning}: {_figure(mine)} against {_figure(theirs)}")
    return reasons[:_REASONS_MAX]


def _figure(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}"
