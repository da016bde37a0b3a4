"""Which candidate to choose, and why, in a few sentences that can be checked against the table.

There is no overall score. Candidates that fail, flap, never stop asking, or place fewer copies than they were asked for
are out. The others are compared on what they all have lived through: the recorded outside events, each with a group of
its own; or the situations themselves when there are no events, or other questions were asked (what-ifs).

The scores come one after the other, in the order in which it hurts. A score divides candidates that are alike so far:
the one with the smallest mean leads, and who is *clearly* worse than the leader goes behind; among those the next
leader is found, and so on. Clearly worse means worse in more cases than chance explains (a sign test over the cases, at
p < 0.01 for all comparisons together), on average too, and by more than 5 %. The result is one order, which does not
depend on the order in which candidates are given.

``recorded``, who decided at the time, is one of them. Where it is among the first, or where there are too few cases to
tell a difference from chance, the answer is to stay with it.

Two more things are part of the answer:

* *Trade-offs.* An early score may hide a later one. The verdict names every score in which the chosen candidate is
  worse by more than chance, however small the difference, than what the group has and than the runner-up.
* *Stability.* The choice must survive another history of the same kind. If fewer than 80 % of histories resampled from
  the recorded cases give the same choice, the answer is to stay.
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
    OSCILLATING: "changes its mind at every rebalance",
    MISSING: "places fewer copies than num.standby.replicas asks for",
}
_RELEVANT: Final = 0.05
_FOR_EVER_SHARE: Final = 0.5
_REASONS_MAX: Final = 3
_STABLE: Final = 0.8
"""Share of resampled histories in which a choice must be the same."""
_LEADERS_MAX: Final = 64
"""So many leaders are looked for at one score; who is behind all of them is in the order of the means."""
_DIGITS: Final = ".9g"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ranking`` are the usable candidates, best first; ``alike`` the same in groups that nothing tells apart. ``out``
    are the others with the reason. ``stay``: whether the answer is what the group has. ``trade_offs``: in what the
    first of the ranking is worse. ``stability``: share of resampled histories in which it would be chosen again; None
    when nothing is chosen."""

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
    """Candidates that are alike; ``metric`` is what puts them behind the class before."""

    names: Sequence[str]
    metric: str | None


def scenarios_of(summary: Summary) -> list[str]:
    """What candidates are judged by."""
    has_events = any(summary.rows.get(Key(EVENTS, name)) for name in summary.candidates)
    left_out = "" if has_events else EVENTS  # what-ifs stay: they were asked for
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
        lead = "Stay with what you have" if stay else "There is no choice yet"
        few = f"{cases:,} {kind} are too few to tell a difference from chance"
        sentence = f"{lead}: {few}, it takes {judge.needed:,} at least."
        leader = so_far[0].names[0]
        leads = f"so far {leader} leads in {_split(_Judge(summary, scenarios, None), leader, so_far[1])}"
        ranking = [name for of in so_far for name in of.names]
        return Verdict(ranking, out, sentence, [leads], [ranking], stay, scenarios)
    stability = _stability(judge, classes)
    reasons_given = _reasons(judge, classes)
    if stability is not None and stability < _STABLE:
        stay = RECORDED in left
        lead = "Stay with what you have" if stay else "There is no choice yet"
        sentence = (
            f"{lead}: {ranking[0]} leads, but only {stability:.0%} of histories resampled from these {cases:,} {kind} "
            f"would choose it, and it takes {_STABLE:.0%}."
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
    """Whether it has figures in all of them; nobody ever decided a what-if, or replayed an unknown assignor."""
    return all(summary.figures.get(Key(scenario, name)) for scenario in scenarios)


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
    if rows and asking > rows * _FOR_EVER_SHARE:
        return f"asks for another rebalance for ever in {asking:,} of {rows:,} cases"
    if not any(summary.figures.get(Key(scenario, name)) for scenario in summary.scenarios):
        return "decided nothing"
    return None


class _Judge:
    """Compares. ``chance`` None: no test, the means alone."""

    def __init__(self, summary: Summary, scenarios: Sequence[str], chance: float | None) -> None:
        self._summary = summary
        self._scenarios = tuple(scenarios)
        self._chance = chance

    @property
    def needed(self) -> int:
        """In so many cases a candidate has to be worse, and in none better, to be clearly worse."""
        number = 1
        while self._chance is not None and p_value(number, 0) >= self._chance:
            number += 1
        return number

    def classes(self, names: Sequence[str]) -> list[_Class]:
        """The order."""
        return self._divided(sorted(names), 0, None)

    def _divided(self, names: Sequence[str], at: int, metric: str | None) -> list[_Class]:
        if len(names) == 1 or at == len(ORDER):
            return [_Class(sorted(names, key=lambda name: (name != RECORDED, name)), metric)]
        score = ORDER[at][0]
        means = {name: mean for name in names if (mean := self.mean(name, score)) is not None}
        if len(means) < len(names):  # not known for everybody
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
        """Clearly."""
        paired = self.paired(name, leader, score)
        if name == leader or paired is None or paired.losses <= paired.wins:
            return False
        if self._chance is not None and paired.p >= self._chance:
            return False
        return paired.mean - paired.leaders_mean > _RELEVANT * abs(paired.mean)

    def is_surely_worse(self, name: str, leader: str, score: str) -> bool:
        """By more than chance, however little."""
        paired = self.paired(name, leader, score)
        if paired is None or self._chance is None:
            return False
        return paired.losses > paired.wins and paired.p < self._chance and paired.mean > paired.leaders_mean

    def repeated(self, name: str, leader: str, score: str) -> float:
        """Probability that the candidate is clearly worse in a resampled history, too."""
        paired = self.paired(name, leader, score)
        assert paired is not None
        assert self._chance is not None
        return repeats(paired, self._chance)

    def paired(self, name: str, leader: str, score: str) -> Paired | None:
        """The candidate beside the leader."""
        return self._summary.pairs.against(leader, self._scenarios, score).get(name)

    def mean(self, name: str, score: str) -> float | None:
        """Over all cases."""
        found = [of[score] for key in self._keys(name) if score in (of := self._summary.figures.get(key, {}))]
        count = sum(of.number for of in found)
        return sum(of.mean * of.number for of in found) / count if count else None

    def _median(self, name: str, score: str) -> str:
        """Only where there is one scenario: medians cannot be put together."""
        found = [of[score] for key in self._keys(name) if score in (of := self._summary.figures.get(key, {}))]
        return f" (median {_figure(found[0].median)})" if len(found) == 1 else ""

    def _keys(self, name: str) -> list[Key]:
        return [Key(scenario, name) for scenario in self._scenarios]

    def told(self, best: str, other: str, score: str) -> str:
        """Both figures, and in how many cases."""
        paired = self.paired(other, best, score)
        assert paired is not None
        cases = paired.wins + paired.ties + paired.losses
        return (
            f"{_figure(paired.leaders_mean)} on average{self._median(best, score)}, against {_figure(paired.mean)}"
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
            return "What you have is all that can be used." if out else "What you have can be used."
        return f"Stay with what you have: {_split(judge, best, classes[1])}."
    if len(first) > 1:
        listed = ", ".join(first[:_REASONS_MAX]) + (", ..." if len(first) > _REASONS_MAX else "")
        better = ""
        if any(RECORDED in of.names for of in classes):
            better = f"; each is better than what you have, e.g. {best}"
        return f"It makes no difference between {listed}{better}."
    if len(classes) == 1:
        return f"Choose {best}: it is the only candidate that can be used." if out else f"{best} can be used."
    return f"Choose {best}: {_split(judge, best, classes[1])}."


def _split(judge: _Judge, best: str, behind: _Class) -> str:
    other, metric = behind.names[0], behind.metric
    assert metric is not None
    if judge.paired(other, best, metric) is None:
        return _MEANINGS[metric]
    return f"{_MEANINGS[metric]}: {judge.told(best, other, metric)}"


def _reasons(judge: _Judge, classes: Sequence[_Class]) -> list[str]:
    """Where the best differs clearly from what there is now, else from the last one, for better or worse."""
    best = classes[0].names[0]
    behind = [name for of in classes[1:] for name in of.names]
    if not behind:
        return []
    other = RECORDED if RECORDED in behind else behind[-1]
    better = [
        f"better than {other} in {meaning}: {judge.told(best, other, metric)}"
        for metric, meaning in ORDER
        if judge.is_worse(other, best, metric)
    ]
    return better[:_REASONS_MAX]


def _rivals(classes: Sequence[_Class]) -> list[str]:
    """Whom the best is compared with: what there is, and the runner-up."""
    best = classes[0].names[0]
    behind = [name for of in classes[1:] for name in of.names]
    everybody = [*classes[0].names, *behind]
    return list(dict.fromkeys([*([RECORDED] if RECORDED in everybody and best != RECORDED else []), *behind[:1]]))


def _trade_offs(judge: _Judge, classes: Sequence[_Class]) -> list[str]:
    """All scores in which the best is worse by more than chance."""
    best = classes[0].names[0]
    return [
        f"worse than {other} in {meaning}: {judge.told(best, other, metric)}"
        for other in _rivals(classes)
        for metric, meaning in ORDER
        if judge.is_surely_worse(best, other, metric)
    ]


def _stability(judge: _Judge, classes: Sequence[_Class]) -> float | None:
    """Of a change: the probability that a resampled history divides the best from what there is, or from the runner-up,
    by the same score."""
    best = classes[0].names[0]
    if best == RECORDED or len(classes) == 1:
        return None
    other = _rivals(classes)[0]
    dividing = [metric for metric, _ in ORDER if judge.is_worse(other, best, metric)]
    return judge.repeated(other, best, dividing[0]) if dividing else None


def _figure(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}"
