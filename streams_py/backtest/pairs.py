"""Compares two candidates case by case. A case is an outside event, or a situation with the same what-if.

Only cases in which both candidates have the score count. :class:`RowPairs` has the rows in memory;
:mod:`streams_py.spark.backtest_summary` queries the table on Spark.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Final, NamedTuple, Protocol

from streams_py.backtest.deciding import OK
from streams_py.backtest.kernel import METRICS, Row

SAME: Final = 1e-9
"""Scores with a smaller difference are equal."""
_EXACT_MAX: Final = 100_000
_RESAMPLED_EXACTLY_MAX: Final = 300
_NEGLIGIBLE: Final = 1e-9
_NO_SPREAD: Final = 1e-9
_UNKNOWN: Final = math.nan


class Paired(NamedTuple):
    """The comparison of a candidate with a leader in one score.

    It has the number of cases in which the candidate is better, equal and worse, and both means over these cases.
    """

    wins: int
    ties: int
    losses: int
    mean: float
    leaders_mean: float

    @property
    def p(self) -> float:
        """Probability of this split, or a more uneven one, by chance."""
        return p_value(self.wins, self.losses)


class Pairs(Protocol):
    """All comparisons of a run."""

    def against(self, leader: str, scenarios: Sequence[str], metric: str) -> Mapping[str, Paired]:
        """Compare every other candidate with the leader in one score.

        Candidates without a common case are missing in the result.
        """


@lru_cache(maxsize=1 << 17)
def p_value(wins: int, losses: int) -> float:
    """Two-sided sign test: return the probability of a split at least as uneven if both are equally good."""
    count, fewer = wins + losses, min(wins, losses)
    if count == 0 or wins == losses:
        return 1.0
    if count > _EXACT_MAX:
        return math.erfc((abs(wins - losses) - 1) / math.sqrt(2 * count))
    logs = (math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(fewer + 1))
    return min(1.0, 2 * math.fsum(math.exp(log - count * math.log(2)) for log in logs))


def repeats(paired: Paired, chance: float) -> float:
    """Return the probability that losses also outweigh wins by more than chance in a resampled history.

    A resampled history has as many cases as the recorded one. Each of them is one of the recorded cases, drawn with
    replacement (bootstrap). The result is exact for up to 300 cases, and beyond that a normal approximation.
    """
    count, split = paired.wins + paired.ties + paired.losses, paired.wins + paired.losses
    if not split:
        return 0.0
    if count > _RESAMPLED_EXACTLY_MAX:
        z = NormalDist().inv_cdf(1 - chance / 2)
        lead = paired.losses - paired.wins
        spread = math.sqrt(max(split - lead * lead / count, _NO_SPREAD))
        return NormalDist().cdf((lead - z * math.sqrt(split)) / spread)
    lost = paired.losses / split
    return math.fsum(
        chosen
        * math.fsum(
            part
            for losses, part in enumerate(_binomial(cases, lost))
            if 2 * losses > cases and part and p_value(cases - losses, losses) < chance
        )
        for cases, chosen in enumerate(_binomial(count, split / count))
        if chosen > _NEGLIGIBLE
    )


def _binomial(count: int, share: float) -> list[float]:
    """Return the probabilities of 0 to ``count`` successes."""
    if share in (0.0, 1.0):
        return [float(successes == count * share) for successes in range(count + 1)]
    hit, miss = math.log(share), math.log1p(-share)
    full = math.lgamma(count + 1)
    return [
        math.exp(full - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * hit + (count - k) * miss)
        for k in range(count + 1)
    ]


class NoPairs:
    """The comparisons of a run without rows."""

    def against(self, leader: str, scenarios: Sequence[str], metric: str) -> Mapping[str, Paired]:
        """See :class:`Pairs`."""
        return {}


class RowPairs:
    """The comparisons of rows in memory. It keeps a number for each score, case and candidate."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._cases: dict[tuple[str, str], int] = {}
        self._columns: dict[str, dict[str, array[float]]] = {}
        self._compared = lru_cache(maxsize=256)(self._against)
        for row in rows:
            if row["valid"] == OK:
                self._add(row)

    def _add(self, row: Row) -> None:
        case = self._cases.setdefault((row["scenario"], row["input_hash"]), len(self._cases))
        columns = self._columns.setdefault(row["candidate"], {metric: array("d") for metric in METRICS})
        for metric, column in columns.items():
            if len(column) <= case:
                column.extend([_UNKNOWN] * (case + 1 - len(column)))
            if row[metric] is not None:
                column[case] = row[metric]

    def against(self, leader: str, scenarios: Sequence[str], metric: str) -> Mapping[str, Paired]:
        """See :class:`Pairs`."""
        return self._compared(leader, tuple(scenarios), metric)

    def _against(self, leader: str, scenarios: tuple[str, ...], metric: str) -> Mapping[str, Paired]:
        wanted = [number for (scenario, _), number in self._cases.items() if scenario in scenarios]
        theirs = self._columns.get(leader, {}).get(metric, array("d"))
        return {
            name: paired
            for name, columns in self._columns.items()
            if name != leader and (paired := _paired(columns[metric], theirs, wanted)) is not None
        }


def _paired(mine: Sequence[float], theirs: Sequence[float], cases: Iterable[int]) -> Paired | None:
    least = min(len(mine), len(theirs))
    both = [
        (mine[case], theirs[case])
        for case in cases
        if case < least and not math.isnan(mine[case]) and not math.isnan(theirs[case])
    ]
    if not both:
        return None
    wins = sum(one - other < -SAME for one, other in both)
    losses = sum(one - other > SAME for one, other in both)
    means = (math.fsum(of) / len(both) for of in zip(*both, strict=True))
    return Paired(wins, len(both) - wins - losses, losses, *means)
