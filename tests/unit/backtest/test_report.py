"""The report: complete, escaped, and a sentence where there is nothing to show."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from streams_py.backtest.kernel import Row
from streams_py.backtest.report import CANDIDATES_MAX, report_page
from streams_py.backtest.summary import Summary, summarise
from streams_py.backtest.terminal import print_summary, score_text
from streams_py.backtest.verdict import verdict_of
from tests.support.backtest.summaries import many, row
from tests.support.telemetry.report import EVIL, Checked


def page_of(summary: Summary, title: str = "orders") -> str:
    page = report_page(summary, verdict_of(summary), title=title)
    checked = Checked()
    checked.feed(page)
    assert checked.open == []
    assert not {"script", "link", "img", "iframe"} & checked.names
    assert not [value for name, value in checked.attributes if name in ("src", "href") and value]
    return page


def shown(summary: Summary, width: int = 160) -> str:
    written = io.StringIO()
    print_summary(Console(width=width, file=written), summary, verdict_of(summary))
    return written.getvalue()


def everything() -> list[Row]:
    scores: dict[str, Any] = {"max_over_mean": 1.25, "moved_cold": 3, "ns_cpu": 1_500_000}
    rows = many("recorded", [100.0] * 20, **scores) + many("better", [0.0] * 20, **scores, stable=True)
    rows += many("worse", [9_999_999.0] * 20, **scores, stable=True)
    return [*rows, row("broken", 0, valid="raised", error=f"ValueError: {EVIL}")]


def test_report_shows_verdict_findings_and_scores_when_there_are_all() -> None:
    summary = summarise(everything(), ["recorded", "better", "worse", "broken"], [""])
    page = page_of(summary)
    for text in (
        "Choose better",
        "broken is out",
        "10 M",
        "1.50 ms",
        "better 20, alike 0, worse 0",
        "num good",
        "num bad",
    ):
        assert text in page, text


def test_order_says_who_is_alike_also_behind_the_best_one() -> None:
    rows = many("recorded", [100.0] * 20) + many("a", [0.0] * 20) + many("b", [100.0] * 20) + many("c", [900.0] * 20)
    page = page_of(summarise(rows, ["recorded", "c", "b", "a"], [""]))
    assert ">Best first: a; then recorded, b (no clear difference); then c</p>" in page


def test_everything_is_escaped_when_names_and_errors_are_hostile() -> None:
    rows = [*many(EVIL, [1.0]), row(EVIL, 1, valid="raised", error=EVIL)]
    summary = summarise(rows, [EVIL], [""])
    page = page_of(summary, title=EVIL)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert EVIL in shown(summary, 400)


def test_report_has_sentences_when_there_is_nothing_to_show() -> None:
    page = page_of(summarise([row("a", 0, valid="raised", error="x")], ["a"], [""]))
    assert "no candidate gave a valid answer" in page
    assert "do not differ" in page
    fine = page_of(summarise(many("a", [1.0], stable=True), ["a"], [""]))
    assert "None: every candidate gave a valid answer" in fine


def test_report_is_bounded_when_a_sweep_has_thousands_of_candidates() -> None:
    names = [f"c{number}" for number in range(300)]
    rows = [one for number, name in enumerate(names) for one in many(name, [float(number + 1)] * 17)]
    summary = summarise(rows, names, [""])
    page = page_of(summary)
    assert f"{300 - CANDIDATES_MAX:,} more candidates" in page
    assert "Choose c0" in page
    assert len(page) < 500_000
    assert "more candidates" in shown(summary)
    assert len(json.loads(summary.to_json())["results"]) == 300


def test_those_that_are_out_are_counted_when_they_are_many() -> None:
    names = [f"c{number}" for number in range(50)]
    summary = summarise([row(name, 0, valid="raised", error="x") for name in names], names, [""])
    assert "42 more are out" in page_of(summary)
    assert "42 more are out" in shown(summary)
    assert "38 more findings" in shown(summary)


def test_terminal_says_which_to_choose_when_it_is_narrow_or_wide() -> None:
    summary = summarise(everything(), ["recorded", "better", "worse", "broken"], [""])
    for width in (80, 160):
        text = shown(summary, width)
        assert "Choose better" in text
        assert "broken is out" in text
        assert all(len(line) <= width for line in text.splitlines())
    assert all("CPU" in shown(summary, width) for width in (40, 80, 160)), "nothing is cut"


def test_scores_are_short_when_they_are_large() -> None:
    found = [score_text("restore_records", value) for value in (0, 9_999, 12_345, 1_234_567, 9.87e9)]
    assert found == ["0", "9,999", "12.3 k", "1.23 M", "9.87 G"]
    assert score_text("moved_cold", 0.25) == "0.25"
    assert score_text("max_over_mean", 1) == "1.00"


def test_names_do_not_control_the_terminal() -> None:
    name = "[/red]\x1b]0;owned\x07\u202ex"
    rows = many("recorded", [100.0] * 20, max_over_mean=1.25) + many(name, [0.0] * 20, max_over_mean=1.0, stable=True)
    rows.append(row("broken", 0, valid="raised", error=f"ValueError: {name}"))
    text = shown(summarise(rows, ["recorded", name, "broken"], [""]), width=400)
    assert not set("\x1b\x07\u202e") & set(text)
    assert r"[/red]\x1b]0;owned\x07\u202ex" in text
