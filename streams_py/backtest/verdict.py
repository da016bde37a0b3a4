"""The verdict: which candidate to choose, and why, in a few sentences that can be checked against the table.

Scores are not combined into one. Candidates are excluded if they fail, flap, request rebalances forever, or place fewer
copies than configured. The others are compared in cases that all of them have: the recorded outside events, each with
the candidate's own group. Without events, and for what-ifs, the cases are the situations.

Scores are compared one after the other, the most important first. A score divides candidates that were equal so far.
The one with the smallest mean leads, and candidates that are *clearly* worse come after it. Among those, the next
leader is found, and so on. Clearly worse means three things: worse in more cases than chance explains (a sign test over
the cases, at p < 0.01 for all comparisons together), worse on average, and by more than 5 %. The result does not depend
on the order in which candidates are given.

``recorded``, the assignor that decided at the time, is one of the candidates. If it is among the first, or if there are
too few cases to distinguish a difference from chance, the verdict is to stay with it.

The verdict also contains:

* *Trade-offs.* An early score may hide a later one. The verdict names every score in which the chosen candidate is
  worse by more than chance, however small the difference, than the recorded assignor or than the runner-up.
* *Stability.* The choice must hold for another history of the same kind. If fewer than 80 % of histories resampled from
  the recorded cases give the same choice, the verdict is to stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streams_py.backtest.candidates import RECORDED
from streams_py.backtest.kernel import EVENTS
from streams_py.backtest.pairs import Paired, p_value, repeats
from streams_py.backtest.summary import CHANCE, FLAPS, MISSING, NEVER_STABLE, OSCILLATING, Key, Summary

__all__ = ["ORDER", "Verdict", "scenarios_of", "verdict_of"]

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
_BAD: Final = {
    FLAPS: "flaps",
    OSCILLATING: "changes its decision at every rebalance",
    MISSING: "places fewer copies than num.standby.replicas requires",
}
_RELEVANT: Final = 0.05
_ASKING_SHARE_MAX: Final = 0.5
"""Largest share of cases in which a candidate may request rebalances forever."""
_REASONS_MAX: Final = 3
_STABLE: Final = 0.8
"""Smallest share of resampled histories that must give the same choice."""
_LEADERS_MAX: Final = 64
"""Number of leaders that are determined for one score. Candidates behind all of them are ordered by their means."""
_DIGITS: Final = ".9g"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict.

    Attributes:
        ranking: the usable candidates, best first.
        out: the excluded candidates, each with the reason.
        sentence: the verdict in one sentence.
        reasons: more sentences.
        alike: the ranking in groups of candidates without a clear difference.
        stay: whether the verdict is to stay with the recorded assignor.
        scenarios: the scenarios that are compared.
        trade_offs: the scores in which the first of the ranking is worse.
        stability: share of resampled histories that give the same choice; None without a choice.
    """

    ranking: Sequence[str]
    out: Sequence[tuple[str, str]]
    sentence: str
    reasons: Sequence[str]
    alike: Sequence[Sequence[str]] = ()
    stay: bool = False
    scenarios: Sequence[str] = field(default=())
    trade_offs: Sequence[str] = ()
    stability: float | None = None


class _Class(NamedTuple):
    """Candidates without a clear difference. ``metric`` is the score in which they are behind the previous class."""

    names: Sequence[str]
    metric: str | None


def scenarios_of(summary: Summary) -> list[str]:
    """Return the scenarios in which candidates are compared."""
    has_events = any(summary.rows.get(Key(EVENTS, name)) for name in summary.candidates)
    left_out = "" if has_events else EVENTS  # what-ifs are always compared
    return [scenario for scenario in summary.scenarios if scenario != left_out]


def verdict_of(summary: Summary) -> Verdict:
    """Compare the candidates of a run."""
    scenarios = scenarios_of(summary)
    names = sorted(summary.candidates)
    reasons = {name: _why_out(summary, name) for name in names}
    out = [(name, reason) for name in names if (reason := reasons[name]) is not None]
    left = [name for name in names if reasons[name] is None and _decided(summary, name, scenarios)]
    if not left:
        return Verdict(
            (), out, "No candidate can be used.", [f"{name} {why}" for name, why in out], (), False, scenarios
        )
    cases = min(sum(summary.rows.get(Key(of, name), 0) for of in scenarios) for name in left)
    judge = _Judge(summary, scenarios, CHANCE / max(1, len(left) - 1))
    classes = judge.classes(left)
    ranking = [name for of in classes for name in of.names]
    kind = "outside events" if EVENTS in scenarios else "situations"
    so_far = _Judge(summary, scenarios, None).classes(left)
    if cases < judge.needed and len(so_far) > 1:
        stay = RECORDED in left
        lead = "Stay with what you have" if stay else "No candidate can be chosen yet"
        few = f"{cases:,} {kind} are too few to distinguish a difference from chance"
        sentence = f"{lead}: {few}; at least {judge.needed:,} are necessary."
        leader = so_far[0].names[0]
        leads = f"so far {leader} leads in {_split(_Judge(summary, scenarios, None), leader, so_far[1])}"
        ranking = [name for of in so_far for name in of.names]
        return Verdict(ranking, out, sentence, [leads], [ranking], stay, scenarios)
    stability = _stability(judge, classes)
    reasons_given = _reasons(judge, classes)
    if stability is not None and stability < _STABLE:
        stay = RECORDED in left
        lead = "Stay with what you have" if stay else "No candidate can be chosen yet"
        sentence = (
            f"{lead}: {ranking[0]} leads, but only {stability:.0%} of histories resampled from these {cases:,} {kind} "
            f"would choose it; {_STABLE:.0%} are necessary."
        )
        return Verdict(ranking, out, sentence, reasons_given, [ranking], stay, scenarios, (), stability)
    trade_offs = _trade_offs(judge, classes)
    sentence = _sentence(judge, classes, out)
    if trade_offs:
        sentence += f" It is a trade-off: {'; '.join(trade_offs)}."
    if stability is not None:
        sentence += f" {stability:.0%} of resampled histories give the same choice."
    alike = [tuple(of.names) for of in classes]
    stay = ranking[0] == RECORDED
    return Verdict(ranking, out, sentence, reasons_given, alike, stay, scenarios, trade_offs, stability)


def _decided(summary: Summary, name: str, scenarios: Sequence[str]) -> bool:
    """Whether the candidate has scores in all scenarios.

    ``recorded`` has none for what-ifs, and none for events if its code is not available.
    """
    return all(summary.distributions.get(Key(scenario, name)) for scenario in scenarios)


def _why_out(summary: Summary, name: str) -> str | None:
    mine = [finding for finding in summary.findings if finding.candidate == name]
    for finding in mine:
        if finding.is_error or finding.kind == MISSING:
            what = _BAD.get(finding.kind, f"fails ({finding.kind.replace('_', ' ')})")
            rows = summary.rows.get(Key(finding.scenario, name), 0)
            return f"{what} in {finding.times:,} of {rows:,} {'events' if finding.scenario == EVENTS else 'situations'}"
    if name == RECORDED:
        return None
    rows = sum(summary.rows.get(Key(scenario, name), 0) for scenario in summary.scenarios)
    asking = sum(finding.times for finding in mine if finding.kind == NEVER_STABLE)
    if rows and asking > rows * _ASKING_SHARE_MAX:
        return f"requests another rebalance forever in {asking:,} of {rows:,} cases"
    if not any(summary.distributions.get(Key(scenario, name)) for scenario in summary.scenarios):
        return "decided nothing"
    return None


class _Judge:
    """Compares candidates. ``chance`` is the significance level; None: compare only means, without a test."""

    def __init__(self, summary: Summary, scenarios: Sequence[str], chance: float | None) -> None:
        self._summary = summary
        self._scenarios = tuple(scenarios)
        self._chance = chance

    @property
    def needed(self) -> int:
        """The number of cases in which a candidate must be worse, and never better, to be clearly worse."""
        number = 1
        while self._chance is not None and p_value(number, 0) >= self._chance:
            number += 1
        return number

    def classes(self, names: Sequence[str]) -> list[_Class]:
        """Return the order of candidates."""
        return self._divided(sorted(names), 0, None)

    def _divided(self, names: Sequence[str], at: int, metric: str | None) -> list[_Class]:
        if len(names) == 1 or at == len(ORDER):
            return [_Class(sorted(names, key=lambda name: (name != RECORDED, name)), metric)]
        score = ORDER[at][0]
        means = {name: mean for name in names if (mean := self.mean(name, score)) is not None}
        if len(means) < len(names):  # the score is not known for all candidates
            return self._divided(names, at + 1, metric)
        found: list[_Class] = []
        rest = sorted(names, key=lambda name: (float(f"{means[name]:{_DIGITS}}"), name))
        behind: str | None = metric
        leaders = 0
        while rest:
            leaders += 1
            leader = rest[0]
            alike = [leader] if leaders > _LEADERS_MAX else [n for n in rest if not self.is_worse(n, leader, score)]
            found += self._divided(alike, at + 1, behind)
            rest = [name for name in rest if name not in set(alike)]
            behind = score
        return found

    def is_worse(self, name: str, leader: str, score: str) -> bool:
        """Whether a candidate is clearly worse than the leader."""
        paired = self.paired(name, leader, score)
        if name == leader or paired is None or paired.losses <= paired.wins:
            return False
        if self._chance is not None and paired.p >= self._chance:
            return False
        return paired.mean - paired.leaders_mean > _RELEVANT * abs(paired.mean)

    def is_surely_worse(self, name: str, leader: str, score: str) -> bool:
        """Whether a candidate is worse by more than chance, however small the difference."""
        paired = self.paired(name, leader, score)
        if paired is None or self._chance is None:
            return False
        return paired.losses > paired.wins and paired.p < self._chance and paired.mean > paired.leaders_mean

    def repeated(self, name: str, leader: str, score: str) -> float:
        """Return the probability that the candidate is also clearly worse in a resampled history."""
        paired = self.paired(name, leader, score)
        assert paired is not None
        assert self._chance is not None
        return repeats(paired, self._chance)

    def paired(self, name: str, leader: str, score: str) -> Paired | None:
        """Return the comparison of the candidate with the leader."""
        return self._summary.pairs.against(leader, self._scenarios, score).get(name)

    def mean(self, name: str, score: str) -> float | None:
        """Return the mean over all cases."""
        return self._summary.mean(name, score, self._scenarios)

    def _median(self, name: str, score: str) -> str:
        """Return the median as text, if there is one scenario. Medians of several scenarios cannot be combined."""
        scores = [self._summary.distributions.get(Key(scenario, name), {}) for scenario in self._scenarios]
        found = [of[score] for of in scores if score in of]
        return f" (median {_short(found[0].median)})" if len(found) == 1 else ""

    def described(self, best: str, other: str, score: str) -> str:
        """Return a text with both means and the number of cases."""
        paired = self.paired(other, best, score)
        assert paired is not None
        cases = paired.wins + paired.ties + paired.losses
        return (
            f"{_short(paired.leaders_mean)} on average{self._median(best, score)}, against {_short(paired.mean)}"
            f"{self._median(other, score)} with {other}; better in {paired.losses:,} of {cases:,} cases, worse in "
            f"{paired.wins:,}"
        )


_MEANINGS: Final = dict(ORDER)


def _sentence(judge: _Judge, classes: Sequence[_Class], out: Sequence[tuple[str, str]]) -> str:
    first = classes[0].names
    best = first[0]
    if best == RECORDED:
        if len(first) > 1:
            return "Stay with what you have: no candidate is better by more than chance."
        if len(classes) == 1:
            return "What you have is the only usable candidate." if out else "What you have can be used."
        return f"Stay with what you have: {_split(judge, best, classes[1])}."
    if len(first) > 1:
        listed = ", ".join(first[:_REASONS_MAX]) + (", ..." if len(first) > _REASONS_MAX else "")
        better = ""
        if any(RECORDED in of.names for of in classes):
            better = f"; each is better than what you have, e.g. {best}"
        return f"It makes no difference between {listed}{better}."
    if len(classes) == 1:
        return f"Choose {best}: it is the only usable candidate." if out else f"{best} can be used."
    return f"Choose {best}: {_split(judge, best, classes[1])}."


def _split(judge: _Judge, best: str, behind: _Class) -> str:
    other, metric = behind.names[0], behind.metric
    assert metric is not None
    if judge.paired(other, best, metric) is None:
        return _MEANINGS[metric]
    return f"{_MEANINGS[metric]}: {judge.described(best, other, metric)}"


def _reasons(judge: _Judge, classes: Sequence[_Class]) -> list[str]:
    """Return the scores in which the best candidate is clearly better than ``recorded``, or than the last candidate."""
    best = classes[0].names[0]
    behind = [name for of in classes[1:] for name in of.names]
    if not behind:
        return []
    other = RECORDED if RECORDED in behind else behind[-1]
    better = [
        f"better than {other} in {meaning}: {judge.described(best, other, metric)}"
        for metric, meaning in ORDER
        if judge.is_worse(other, best, metric)
    ]
    return better[:_REASONS_MAX]


def _rivals(classes: Sequence[_Class]) -> list[str]:
    """Return the candidates with which the best is compared: ``recorded`` and the runner-up."""
    best = classes[0].names[0]
    behind = [name for of in classes[1:] for name in of.names]
    everybody = [*classes[0].names, *behind]
    return list(dict.fromkeys([*([RECORDED] if RECORDED in everybody and best != RECORDED else []), *behind[:1]]))


def _trade_offs(judge: _Judge, classes: Sequence[_Class]) -> list[str]:
    """Return all scores in which the best candidate is worse by more than chance."""
    best = classes[0].names[0]
    return [
        f"worse than {other} in {meaning}: {judge.described(best, other, metric)}"
        for other in _rivals(classes)
        for metric, meaning in ORDER
        if judge.is_surely_worse(best, other, metric)
    ]


def _stability(judge: _Judge, classes: Sequence[_Class]) -> float | None:
    """Return the probability that a resampled history gives the same choice; None if the choice is to change nothing.

    The same score must again separate the best candidate from ``recorded``, or from the runner-up.
    """
    best = classes[0].names[0]
    if best == RECORDED or len(classes) == 1:
        return None
    other = _rivals(classes)[0]
    dividing = [metric for metric, _ in ORDER if judge.is_worse(other, best, metric)]
    return judge.repeated(other, best, dividing[0]) if dividing else None


def _short(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}"
