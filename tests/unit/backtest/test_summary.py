"""From rows to sentences: distributions, sign tests, findings, the verdict."""

from __future__ import annotations

import math

import pytest

from streams_py.backtest.pairs import p_value
from streams_py.backtest.summary import Comparison, Key, Summary, base_of
from tests.support.backtest.summaries import many, row, summary_of


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [(0, 0, 1.0), (3, 3, 1.0), (1, 0, 1.0), (5, 0, 2 / 32), (10, 0, 2 / 1024), (9, 1, 22 / 1024), (0, 20, 2 / 2**20)],
)
def test_p_value_is_that_of_a_fair_coin_when_counted_by_hand(wins: int, losses: int, p: float) -> None:
    assert p_value(wins, losses) == pytest.approx(p)


def test_p_value_is_close_to_the_exact_one_when_there_are_very_many() -> None:
    exact = p_value(50_400, 49_600)
    approximate = math.erfc((abs(50_400 - 49_600) - 1) / math.sqrt(2 * 100_000))
    assert exact == pytest.approx(approximate, rel=0.01)
    assert p_value(700_000, 300_000) < 1e-100


def test_distribution_names_values_that_occurred_when_ranked() -> None:
    found = summary_of(many("a", [float(value) for value in range(1, 11)])).distributions[Key("", "a")][
        "unavailable_records"
    ]
    assert tuple(found) == (10, 5.0, 9.0, 10.0, 5.5)


def test_comparison_counts_situation_by_situation_when_there_is_a_base() -> None:
    summary = summary_of(many("recorded", [5, 5, 5, 5]), many("a", [1, 5, 9, 4]))
    assert summary.base == "recorded"
    assert summary.against[Key("", "a")]["unavailable_records"] == Comparison(2, 1, 1)
    assert Key("", "recorded") not in summary.against


def test_rows_without_a_decision_count_for_nothing_when_compared() -> None:
    bad = [row("a", 0, valid="raised", error="ValueError: x"), *many("a", [1, 1])[1:]]
    summary = summary_of(many("recorded", [5, 5]), bad)
    assert summary.against[Key("", "a")]["unavailable_records"] == Comparison(1, 0, 0)
    assert summary.distributions[Key("", "a")]["unavailable_records"].number == 1
    assert [tuple(f)[:4] for f in summary.findings] == [("a", "", "raised", 1)]


def test_base_is_a_candidate_that_decided_when_nothing_was_recorded() -> None:
    assert base_of(["recorded", "a"], [""]) == "recorded"
    assert base_of(["recorded", "a"], ["add_standby(1)"]) == "a"
    assert base_of(["recorded", "a", "b"], [""], "b") == "b"


def test_findings_put_errors_first_when_there_are_remarks() -> None:
    converging = [row("a", 0, stable=False)]
    raised = [row("b", 0, valid="raised", error="ValueError: x")]
    unreadable = [row(name, 1, valid="damaged", error="y") for name in "ab"]
    summary = summary_of(converging, raised, unreadable)
    assert [(f.candidate, f.kind, f.is_error) for f in summary.findings] == [
        ("b", "raised", True),
        ("a", "converging", False),
        ("a", "damaged", False),  # said once
    ]


def test_oscillating_candidate_is_an_error_when_it_is_so_often() -> None:
    def oscillating(share: int) -> Summary:
        bad = [row("a", number, stable=False, cycle=2, endless=False) for number in range(share)]
        return summary_of([*bad, *(row("a", number, stable=True) for number in range(share, 100))])

    assert not oscillating(10).has_errors
    assert oscillating(11).has_errors
    assert oscillating(1).findings[0].kind == "oscillating"
