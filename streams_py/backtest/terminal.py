"""Prints the result on a terminal: findings, one table for each scenario, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from streams_py.backtest.candidates import RECORDED
from streams_py.backtest.kernel import EVENTS
from streams_py.backtest.summary import Distribution, Finding, Key, Summary
from streams_py.backtest.verdict import Verdict
from streams_py.system.markup import plain_text

__all__ = ["COLUMNS", "TITLES", "print_summary", "reproduced_text", "scenario_title", "score_text", "shown_candidates"]

TITLES: Final[dict[str, str]] = {
    "missing_copies": "copies missing",
    "unavailable_records": "to restore before tasks run (records)",
    "restore_records": "to restore in all (records)",
    "moved_active": "tasks moved",
    "moved_cold": "tasks moved without their state",
    "moved_standby": "standbys moved",
    "max_over_mean": "busiest thread over mean",
    "balance_cv": "deviation of tasks per thread",
    "sub_skew": "most minus least tasks of a sub-topology",
    "weighted_max_over_mean": "busiest client over mean, by work",
    "spread_violations": "copies that share a zone or tag",
    "cross_rack_partitions": "partitions read from another rack",
    "rounds": "rebalances until at rest",
    "ns_cpu": "processor time of a decision",
}
COLUMNS: Final[dict[str, str]] = {
    "missing_copies": "copies\nmissing",
    "unavailable_records": "records\nto wait for",
    "spread_violations": "sharing\na zone",
    "moved_cold": "moved\ncold",
    "max_over_mean": "busiest\nthread",
    "restore_records": "records\nto restore",
    "moved_active": "tasks\nmoved",
    "rounds": "rounds\nto rest",
    "moved_standby": "standbys\nmoved",
    "ns_cpu": "CPU\ntime",
}
"""The scores on a terminal, with headings of two lines."""
_NAME_WIDTH_MAX: Final = 24
_GAP: Final = 2
_CANDIDATES_MAX: Final = 12
_FINDINGS_MAX: Final = 12
_OUT_MAX: Final = 8
_SMALL: Final = 100
_RATIOS: Final = ("max_over_mean", "balance_cv", "weighted_max_over_mean")


def score_text(metric: str, value: float) -> str:
    """Return a score with its unit, short enough for a column."""
    if metric == "ns_cpu":
        return f"{value / 1e6:,.2f} ms"
    if metric in _RATIOS or (value != int(value) and value < _SMALL):
        return f"{value:.2f}"
    return _short(value).rstrip()


def _short(value: float) -> str:
    """Return a number with three digits and a unit prefix: 12,345,678 is 12.3 M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10 * size or (value >= size and size > 1e3):
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f} "


def reproduced_text(summary: Summary) -> str | None:
    """Return a sentence about whether the recorded assignor reproduces its decisions; None if that was not tried."""
    if summary.reproduced is None:
        return None
    did, asked = summary.reproduced
    text = f"the recorded assignor reproduced {did:,} of {asked:,}"
    if did == asked:
        return text
    return f"{text}: in the other situations it decides differently here (other settings, or another release)"


def scenario_title(scenario: str) -> str:
    """Return the heading of a scenario."""
    if scenario == EVENTS:
        return "the recorded outside events, replayed in a closed loop"
    return f"what if {scenario}" if scenario else "the recorded situations"


def shown_candidates(summary: Summary, verdict: Verdict, most: int) -> list[str]:
    """Return at most ``most`` candidates: first the base, then the best, then the excluded ones."""
    order = [summary.base, *verdict.ranking, *(name for name, _ in verdict.out), *summary.candidates]
    return list(dict.fromkeys(order))[:most]


def print_summary(console: Console, summary: Summary, verdict: Verdict) -> None:
    """Print the result. Findings come first: a candidate that fails is excluded, whatever its scores."""
    repeated = f", recorded {summary.seen:,} times" if summary.seen > summary.situations else ""
    console.print(
        f"{summary.situations:,} situations{repeated}, {len(summary.candidates):,} candidates, "
        f"{len(summary.scenarios)} scenario{'s' * (len(summary.scenarios) != 1)}"
    )
    if (reproduced := reproduced_text(summary)) is not None:
        console.print(reproduced)
    _print_findings(console, summary.findings)
    shown = shown_candidates(summary, verdict, _CANDIDATES_MAX)
    for scenario in summary.scenarios:
        for table in _tables(summary, scenario, shown, console.width):
            console.print(table)
    hidden = len(summary.candidates) - len(shown)
    if hidden > 0:
        console.print(f"{hidden:,} more candidates are in summary.json")
    console.print(f"[bold]{plain_text(verdict.sentence)}[/bold]")
    for reason in verdict.reasons:
        console.print(f"  {plain_text(reason)}")
    for name, reason in verdict.out[:_OUT_MAX]:
        console.print(f"  [red]{plain_text(name)} is out:[/red] {plain_text(reason)}")
    if len(verdict.out) > _OUT_MAX:
        console.print(f"  {len(verdict.out) - _OUT_MAX:,} more are out")


def _print_findings(console: Console, findings: Sequence[Finding]) -> None:
    for finding in findings[:_FINDINGS_MAX]:
        colour = "red" if finding.is_error else "yellow"
        where = f" under {finding.scenario}" if finding.scenario else ""
        console.print(
            f"[{colour}]{plain_text(finding.candidate)}[/{colour}]{plain_text(where)}, {finding.times:,} times: "
            f"{plain_text(finding.text)} (e.g. {plain_text(finding.example[:12])})"
        )
    if len(findings) > _FINDINGS_MAX:
        console.print(f"{len(findings) - _FINDINGS_MAX:,} more findings are in the report")


def _tables(summary: Summary, scenario: str, shown: Sequence[str], width: int) -> Iterator[Table]:
    """Yield tables of means: a line for each candidate, a column for each deciding score that differs.

    On a narrow terminal, the columns are distributed over several tables, so that none is cut off.
    """
    metrics = [metric for metric in COLUMNS if any(_mean(summary, Key(scenario, name), metric) for name in shown)]
    room = width - min(_NAME_WIDTH_MAX, max(map(len, shown), default=0) + len(" (base)"))
    part: list[str] = []
    left = room
    for metric in metrics:
        means = [_mean(summary, Key(scenario, name), metric) for name in shown]
        medians = [_median(summary, Key(scenario, name), metric) for name in shown]
        known = [score for score in (*means, *medians) if score is not None]
        texts = [*COLUMNS[metric].split("\n"), *(score_text(metric, score) for score in known)]
        needed = max(map(len, texts)) + _GAP
        if part and needed > left:
            yield _table(summary, scenario, shown, part)
            part, left = [], room
        part.append(metric)
        left -= needed
    yield _table(summary, scenario, shown, part)


def _table(summary: Summary, scenario: str, shown: Sequence[str], metrics: Sequence[str]) -> Table:
    title = scenario_title(scenario)
    caption = f"mean, median below it; green and red: better and worse than {summary.base} by more than chance"
    table = Table(
        title=plain_text(title),
        title_justify="left",
        caption=plain_text(caption),
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("", overflow="fold", min_width=12, max_width=_NAME_WIDTH_MAX)
    for metric in metrics:
        table.add_column(COLUMNS[metric], justify="right", no_wrap=True)
    for name in shown:
        key = Key(scenario, name)
        cells = [_cell(summary, key, metric) for metric in metrics]
        if any(cells):
            table.add_row(plain_text(name) + (" (base)" if name == summary.base else ""), *cells)
    return table


def _mean(summary: Summary, key: Key, metric: str) -> float | None:
    found = _found(summary, key, metric)
    return None if found is None else found.mean


def _median(summary: Summary, key: Key, metric: str) -> float | None:
    found = _found(summary, key, metric)
    return None if found is None else found.median


def _found(summary: Summary, key: Key, metric: str) -> Distribution | None:
    return summary.distributions.get(key, {}).get(metric)


def _cell(summary: Summary, key: Key, metric: str) -> str:
    mean = _mean(summary, key, metric)
    if mean is None:
        return ""
    text = score_text(metric, mean)
    median = score_text(metric, _median(summary, key, metric) or 0)
    if median != text:
        text = f"{text}\n[dim]{median}[/dim]"
    versus = summary.against.get(key, {}).get(metric)
    if versus is None or versus.is_chance or key.candidate == RECORDED:
        return text
    colour = "green" if versus.wins > versus.losses else "red"
    return f"[{colour}]{text}[/{colour}]"
