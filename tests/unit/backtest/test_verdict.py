"""The verdict: one order of the candidates, and when to stay with the recorded assignor."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams_py.backtest.kernel import EVENTS, Row
from streams_py.backtest.pairs import Paired, p_value, repeats
from streams_py.backtest.summary import Key, Summary, summarise
from streams_py.backtest.verdict import ORDER, Verdict, verdict_of
from tests.support.backtest.summaries import many, row, summary_of

ENOUGH = 12


def judged(*parts: list[Row]) -> Verdict:
    return verdict_of(summary_of(*parts))


def lived(candidate: str, values: list[float], **scores: Any) -> list[Row]:
    return [one | {"scenario": EVENTS} for one in many(candidate, values, **scores)]


def of_events(*parts: list[Row]) -> Summary:
    rows = [one for part in parts for one in part]
    return summarise(rows, list(dict.fromkeys(one["candidate"] for one in rows)), ["", EVENTS])


def test_first_score_that_differs_clearly_decides_when_there_are_several() -> None:
    a = many("a", [100] * ENOUGH, moved_cold=9)
    b = many("b", [102] * ENOUGH, moved_cold=1)
    c = many("c", [200] * ENOUGH, moved_cold=0)
    verdict = judged(a, b, c)
    assert verdict.ranking == ["b", "a", "c"]
    assert "tasks moved without their state: 1 on average (median 1), against 9 (median 9) with a" in verdict.sentence
    assert "better in 12 of 12 cases, worse in 0" in verdict.sentence
    assert any("better than c in records to restore before" in reason for reason in verdict.reasons)


@given(
    scores=st.lists(
        st.lists(st.sampled_from((0, 1, 2, 50, 52, 100)), min_size=3 * ENOUGH, max_size=3 * ENOUGH),
        min_size=2,
        max_size=5,
    ),
    seed=st.integers(0, 1_000),
)
@settings(max_examples=30, deadline=None)
def test_order_is_the_same_however_candidates_and_rows_are_given(scores: list[list[int]], seed: int) -> None:
    names = [f"c{number}" for number in range(len(scores) - 1)] + ["recorded"]
    rows = [
        row(
            name,
            case,
            unavailable_records=of[case],
            max_over_mean=of[ENOUGH + case],
            moved_active=of[2 * ENOUGH + case],
        )
        for name, of in zip(names, scores, strict=True)
        for case in range(ENOUGH)
    ]
    expected = verdict_of(summarise(rows, names, [""]))
    assert sorted(expected.ranking) == sorted(names)
    source = random.Random(seed)
    for _ in range(3):
        source.shuffle(rows)
        source.shuffle(names)
        assert verdict_of(summarise(rows, names, [""])) == expected


def test_each_step_of_the_old_circle_has_one_winner() -> None:
    """100, 104, 108: neighbours differ by less than 5 %, the ends by more."""
    parts = {name: many(name, [value] * ENOUGH, moved_cold=cold) for name, value, cold in
             (("a", 100, 3), ("b", 104, 2), ("c", 108, 1))}  # fmt: skip
    winners = {
        judged(*(parts[name] for name in order)).ranking[0] for order in ("abc", "bca", "cab", "acb", "bac", "cba")
    }
    assert winners == {"b"}


def test_stay_is_the_answer_when_nobody_is_better_by_more_than_chance() -> None:
    mine = many("recorded", [10] * ENOUGH)
    sometimes = many("other", [9.0, 11.0] * (ENOUGH // 2 - 1) + [0.0, 0.0])
    verdict = judged(mine, sometimes)
    assert verdict.stay
    assert verdict.ranking[0] == "recorded"
    assert [set(of) for of in verdict.alike] == [{"recorded", "other"}]
    assert verdict.sentence == "Stay with what you have: no candidate is better by more than chance."


def test_stay_says_why_when_what_there_is_is_best() -> None:
    verdict = judged(many("recorded", [1] * ENOUGH), many("other", [90] * ENOUGH))
    assert verdict.stay
    assert "against 90" in verdict.sentence


def test_a_few_cases_are_no_reason_to_change_but_say_who_leads() -> None:
    verdict = judged(many("recorded", [9] * 6), many("other", [1] * 6))
    assert verdict.stay
    assert "6 situations are too few" in verdict.sentence
    assert "at least 8" in verdict.sentence
    assert "so far other leads" in verdict.reasons[0]
    assert "No candidate can be chosen yet" in judged(many("a", [9] * 6), many("b", [1] * 6)).sentence


def test_more_cases_are_needed_when_more_candidates_are_tried() -> None:
    """Among many candidates, one is better by chance."""
    rivals = [many(f"c{number}", [9] * 10) for number in range(20)]
    assert not judged(many("recorded", [9] * 10), many("other", [1] * 10)).stay
    assert judged(many("recorded", [9] * 10), many("other", [1] * 10), *rivals).stay


def test_mean_and_cases_have_to_agree_when_somebody_is_put_behind() -> None:
    """Mostly a little better, sometimes a disaster."""
    risky = many("risky", [9.0] * 11 + [1_000.0], moved_cold=5)
    steady = many("steady", [10.0] * 12, moved_cold=1)
    assert judged(risky, steady).ranking[0] == "steady"
    assert "moved without" in judged(risky, steady).sentence


def test_events_are_what_counts_when_there_are_any() -> None:
    """On recorded situations alone, which another assignor has caused, b looks better."""
    rows = [many("a", [9] * ENOUGH), many("b", [1] * ENOUGH), lived("a", [1] * ENOUGH), lived("b", [9] * ENOUGH)]
    verdict = verdict_of(of_events(*rows))
    assert verdict.scenarios == [EVENTS]
    assert verdict.ranking == ["a", "b"]


def test_what_was_decided_is_not_compared_when_only_others_were_asked() -> None:
    """The code of the recorded assignor is not available, so it has no rows for events."""
    rows = [many("recorded", [0] * ENOUGH), many("a", [5] * ENOUGH), many("b", [6] * ENOUGH)]
    rows += [lived("a", [5] * ENOUGH), lived("b", [6] * ENOUGH)]
    assert verdict_of(of_events(*rows)).ranking == ["a", "b"]


def test_candidates_are_out_when_they_fail_flap_or_ask_for_ever() -> None:
    summary = summary_of(
        many("good", [1_000] * ENOUGH, stable=True),
        [row("raises", 0, valid="raised", error="x"), *many("raises", [0] * ENOUGH)[1:]],
        many("flaps", [0] * ENOUGH, stable=False, cycle=2, endless=True),
        many("asks", [0] * ENOUGH, stable=False, cycle=1, endless=True),
        many("recorded", [9_000] * ENOUGH),
    )
    verdict = verdict_of(summary)
    assert verdict.ranking == ["good", "recorded"]
    assert dict(verdict.out).keys() == {"raises", "flaps", "asks"}
    assert "Choose good" in verdict.sentence


@pytest.mark.parametrize("name", ["lazy", "recorded"])
def test_candidate_is_out_when_it_places_too_few_copies(name: str) -> None:
    lazy = many(name, [0] * ENOUGH)
    lazy[3]["missing_copies"] = 2.0
    summary = summary_of(lazy, many("good", [5] * ENOUGH, missing_copies=0.0))
    verdict = verdict_of(summary)
    assert verdict.ranking == ["good"]
    assert dict(verdict.out)[name].startswith("places fewer copies than num.standby.replicas requires in 1 of 12")
    assert summary.has_errors == (name != "recorded")  # what was decided is decided


def test_verdict_says_so_when_there_is_no_difference_or_nobody_is_left() -> None:
    alike = judged(many("a", [1, 2]), many("b", [1, 2]))
    assert "no difference between a, b" in alike.sentence
    nobody = judged([row("a", 0, valid="raised", error="x")])
    assert "No candidate" in nobody.sentence
    assert nobody.ranking == ()


def test_slow_but_steady_candidate_stays_in_when_it_is_only_converging() -> None:
    verdict = judged(many("ha", [0] * ENOUGH, stable=False), many("other", [9] * ENOUGH, stable=True))
    assert verdict.ranking[0] == "ha"


def test_score_is_passed_over_when_a_candidate_lacks_it() -> None:
    a = many("a", [5] * ENOUGH, restore_records=None, moved_cold=2)
    b = [one | {"unavailable_records": None, "moved_cold": 1} for one in many("b", [0] * ENOUGH)]
    summary = summary_of(a, b)
    assert "unavailable_records" not in summary.distributions[Key("", "b")]
    assert verdict_of(summary).ranking == ["b", "a"]


# -- trade-offs and stability ------------------------------------------------------------------------------------------


def test_choice_that_is_worse_in_a_listed_score_is_named_as_a_trade_off() -> None:
    """The first score hides a later one: its busiest thread is worse in every case."""
    verdict = judged(many("recorded", [100] * 16, max_over_mean=1.10), many("warm", [10] * 16, max_over_mean=1.60))
    assert verdict.ranking[0] == "warm"
    assert len(verdict.trade_offs) == 1
    assert verdict.trade_offs[0].startswith("worse than recorded in load of the busiest thread over the mean: 1.60 on ")
    assert "It is a trade-off: worse than recorded in load of the busiest thread over the mean" in verdict.sentence


@pytest.mark.parametrize("score", [name for name, _ in ORDER[1:]])
@pytest.mark.parametrize("rival", ["recorded", "other"])
def test_every_score_can_be_a_trade_off_however_small_the_difference(score: str, rival: str) -> None:
    """A difference of 1 % in all cases does not separate candidates, although it cannot be chance."""
    base = dict.fromkeys((name for name, _ in ORDER[1:]), 100.0)
    verdict = judged(many(rival, [100] * ENOUGH, **base), many("chosen", [10] * ENOUGH, **(base | {score: 101.0})))
    assert verdict.ranking[0] == "chosen"
    assert len(verdict.trade_offs) == 1
    assert dict(ORDER)[score] in verdict.trade_offs[0]


def test_all_trade_offs_are_named_also_those_to_what_there_is_and_not_to_the_runner_up() -> None:
    worse = {"max_over_mean": 2.0, "rounds": 9, "restore_records": 900, "moved_active": 90, "moved_standby": 90}
    better = {"max_over_mean": 1.0, "rounds": 1, "restore_records": 100, "moved_active": 10, "moved_standby": 10}
    verdict = judged(
        many("chosen", [1] * ENOUGH, **worse), many("runner", [10] * ENOUGH, **worse),
        many("recorded", [100] * ENOUGH, **better),
    )  # fmt: skip
    assert verdict.ranking == ["chosen", "runner", "recorded"]
    assert [text.partition(" in ")[0] for text in verdict.trade_offs] == ["worse than recorded"] * 5


def test_choice_without_a_price_names_no_trade_off() -> None:
    verdict = judged(many("recorded", [100] * ENOUGH, rounds=3), many("better", [1] * ENOUGH, rounds=3))
    assert not verdict.trade_offs
    assert "trade-off" not in verdict.sentence
    assert verdict.stability == 1.0
    assert verdict.sentence.endswith("100% of resampled histories give the same choice.")


def test_stay_when_another_history_of_the_same_kind_would_not_give_the_choice() -> None:
    """11 of 12 cases are more than chance; one case more on the other side would not be."""
    verdict = judged(many("recorded", [100.0] * 12), many("lucky", [10.0] * 11 + [110.0]))
    assert verdict.stay
    assert verdict.stability is not None
    assert verdict.stability < 0.8
    assert verdict.sentence.startswith("Stay with what you have: lucky leads, but only 7")
    assert "of histories resampled from these 12 situations would choose it" in verdict.sentence
    alone = judged(many("a", [100.0] * 12), many("lucky", [10.0] * 11 + [110.0]))
    assert alone.sentence.startswith("No candidate can be chosen yet: lucky leads, but only")
    assert not alone.stay


@pytest.mark.parametrize(("wins", "ties", "losses"), [(0, 0, 12), (1, 0, 11), (2, 3, 20), (30, 40, 60), (0, 5, 9)])
def test_stability_is_that_of_histories_drawn_from_the_cases(wins: int, ties: int, losses: int) -> None:
    cases = [-1] * wins + [0] * ties + [1] * losses
    source = random.Random(1)
    repeated = 0
    for _ in range(4_000):
        drawn = source.choices(cases, k=len(cases))
        lost, won = drawn.count(1), drawn.count(-1)
        repeated += lost > won and p_value(won, lost) < 0.01
    found = repeats(Paired(wins, ties, losses, 2.0, 1.0), 0.01)
    assert found == pytest.approx(repeated / 4_000, abs=0.03)


def test_stability_of_long_histories_is_close_to_that_of_shorter_ones() -> None:
    exact, estimated = repeats(Paired(110, 0, 190, 2, 1), 0.01), repeats(Paired(111, 0, 190, 2, 1), 0.01)
    assert estimated == pytest.approx(exact, abs=0.05)
    assert repeats(Paired(0, 900, 0, 1, 1), 0.01) == 0.0
