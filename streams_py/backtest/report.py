"""The result as one HTML page, light and dark, that loads nothing from a network: verdict, findings and all scores."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from streams_py.backtest.candidates import RECORDED
from streams_py.backtest.kernel import EVENTS
from streams_py.backtest.loop.way import HORIZON_MS
from streams_py.backtest.summary import CHANCE, Comparison, Distribution, Finding, Key, Summary
from streams_py.backtest.terminal import TITLES, reproduced_text, scenario_title, score_text, shown_candidates
from streams_py.backtest.verdict import ORDER, Verdict, scenarios_of
from streams_py.telemetry.report.frame import framed, headline

__all__ = ["report_page"]

CANDIDATES_MAX: Final = 24
"""Candidates on the page. The others are only in summary.json."""

_FINDINGS_MAX: Final = 100
_OUT_MAX: Final = 8
_GLANCE: Final = 4
_RANKED_MIN: Final = 2
_GLANCE_CANDIDATES: Final = 10
_LONG_NAME: Final = 22
_HASH_CHARS: Final = 12

_MORE_STYLE: Final = """
.verdict{font-size:19px;line-height:1.4;margin:0 0 8px}.verdict+ul{margin:0;padding-left:20px}
.order{margin:0 0 10px}.mean{font-size:12px;white-space:nowrap}
.out{color:var(--red)}td.num{text-align:right;vertical-align:top;padding-bottom:9px}th.num{text-align:right}
td.name{white-space:normal;min-width:170px;overflow-wrap:anywhere}
td.text{white-space:normal;min-width:260px}th.num{white-space:normal;min-width:110px;overflow-wrap:anywhere}
td small{display:block;font-size:12px}.good b{color:var(--green)}.bad b{color:var(--red)}
.wtl{display:flex;height:5px;border-radius:3px;overflow:hidden;margin-top:4px;min-width:84px}
.wtl i{display:block}.w{background:var(--green)}.t{background:var(--rule)}.l{background:var(--red)}
.glance{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:18px 34px}
.glance h3{font-size:14px;font-weight:500;margin:0 0 6px}.bar{display:grid;
grid-template-columns:minmax(120px,2fr) 3fr 70px;gap:10px;
align-items:center;font-size:13px;margin:3px 0}.bar span{overflow-wrap:anywhere;line-height:1.2}
.bar em{font-style:normal;text-align:right;font-variant-numeric:tabular-nums}
.bar div{height:11px;border-radius:3px;background:var(--rule)}.bar div i{display:block;height:100%;border-radius:3px;
background:var(--grey)}.bar.best div i{background:var(--teal)}.bar.gone{opacity:.55}
.bar.gone div i{background:var(--red)}
.long{grid-template-columns:1fr}.long .bar{grid-template-columns:minmax(120px,3fr) 4fr 70px}code{font-size:13px}
"""


def report_page(summary: Summary, verdict: Verdict, *, title: str) -> str:
    """Return the page. ``title`` names the origin of the situations."""
    shown = shown_candidates(summary, verdict, CANDIDATES_MAX)
    sections = [
        ("Which one to choose", _verdict(summary, verdict)),
        ("Findings", _findings(summary)),
        ("At a glance", _glance(summary, verdict, shown)),
    ]
    for scenario in summary.scenarios:
        name = scenario_title(scenario)
        sections.append((name[0].upper() + name[1:], _scores(summary, scenario, shown)))
    hidden = len(summary.candidates) - len(shown)
    if hidden > 0:
        sections.append(("More candidates", f"<p>{hidden:,} more candidates are in summary.json.</p>"))
    body = "".join(f"<section><h2>{escape(name)}</h2>{content}</section>" for name, content in sections)
    return framed(title, "assignor backtest", _headline(summary, title) + body, more_style=_MORE_STYLE)


def _headline(summary: Summary, title: str) -> str:
    errors = sum(finding.is_error for finding in summary.findings)
    repeated = f"recorded {summary.seen:,} times" if summary.seen > summary.situations else "each one different"
    cards = [
        (f"{summary.situations:,}", "situations", repeated),
        (f"{len(summary.candidates):,}", "candidates", f"compared with {summary.base}"),
        (f"{summary.events:,}", "outside events", "replayed for each candidate")
        if EVENTS in summary.scenarios
        else (f"{len(summary.scenarios):,}", "scenarios", "what if" if any(summary.scenarios) else "the recorded one"),
        (f"{errors:,}", "errors", f"{len(summary.findings) - errors:,} remarks"),
    ]
    return headline(title, "The recorded rebalances, decided again", cards)


def _verdict(summary: Summary, verdict: Verdict) -> str:
    items = [f"<li>{escape(reason)}</li>" for reason in verdict.reasons]
    items += [
        f'<li class="out">{escape(name)} is out: {escape(reason)}</li>' for name, reason in verdict.out[:_OUT_MAX]
    ]
    if len(verdict.out) > _OUT_MAX:
        items.append(f'<li class="out">{len(verdict.out) - _OUT_MAX:,} more are out</li>')
    listed = f"<ul>{''.join(items)}</ul>" if items else ""
    scores = ", ".join(meaning for _, meaning in ORDER)
    judged = ", ".join(scenario_title(scenario) for scenario in scenarios_of(summary))
    note = (
        f"<p class=note>Judged by {escape(judged)}. Decided by the first of these in which candidates differ by more "
        f"than chance (sign test over common cases, p &lt; {CHANCE:g} for all comparisons together) "
        "and by more than 5 %: "
        f"{escape(scores)}.</p>"
    )
    reproduced = reproduced_text(summary)
    if reproduced is not None:
        note = f"<p>{escape(reproduced[0].upper() + reproduced[1:])}.</p>{note}"
    return f'<p class="verdict">{escape(verdict.sentence)}</p>{_ranking(verdict)}{listed}{note}'


def _ranking(verdict: Verdict) -> str:
    """Return the ranking on one line."""
    if len(verdict.ranking) < _RANKED_MIN:
        return ""
    left = CANDIDATES_MAX
    groups = []
    for names in verdict.alike:
        listed = ", ".join(map(escape, names[:left]))
        groups.append(f"{listed} (no clear difference)" if listed and len(names) > 1 else listed)
        left = max(0, left - len(names))
    return f'<p class="order">Best first: {"; then ".join(filter(None, groups))}</p>'


def _findings(summary: Summary) -> str:
    findings: Sequence[Finding] = summary.findings
    if not findings:
        rested = ", and came to rest" if any("rounds" in of for of in summary.distributions.values()) else ""
        return f"<p>None: every candidate gave a valid answer everywhere{rested}.</p>"
    rows = []
    for finding in findings[:_FINDINGS_MAX]:
        kind = finding.kind.replace("_", " ")
        rows.append(
            f'<tr><td class="{"out" if finding.is_error else ""}">{escape(kind)}</td>'
            f'<td class="name">{escape(finding.candidate)}</td>'
            f"<td>{escape(finding.scenario or 'as recorded')}</td><td>{finding.times:,}</td>"
            f'<td class="text">{escape(finding.text)}</td>'
            f"<td><code>{escape(finding.example[:_HASH_CHARS])}</code></td></tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in ("", "candidate", "scenario", "times", "what", "e.g. input"))
    more = len(findings) - len(rows)
    note = f"<p class=note>{more:,} more are in summary.json.</p>" if more > 0 else ""
    return f'{note}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


# -- bars --------------------------------------------------------------------------------------------------------------


def _glance(summary: Summary, verdict: Verdict, shown: Sequence[str]) -> str:
    """Return bar charts of the means of the deciding scores."""
    charts = []
    names = list(shown[:_GLANCE_CANDIDATES])
    kind = "glance long" if any(len(name) > _LONG_NAME for name in names) else "glance"
    for metric in ("missing_copies", *(metric for metric, _ in ORDER)):
        means = [(name, mean) for name in names if (mean := _mean(summary, name, metric)) is not None]
        if len(means) > 1 and max(mean for _, mean in means) > min(mean for _, mean in means):
            charts.append(f"<div><h3>{escape(TITLES[metric])}</h3>{_bars(means, metric, verdict)}</div>")
    if not charts:
        return "<p>The candidates do not differ in any of the scores that decide.</p>"
    note = "<p class=note>Means over the cases of the verdict; less is better.</p>"
    return f'{note}<div class="{kind}">{"".join(charts[:_GLANCE])}</div>'


def _bars(means: Sequence[tuple[str, float]], metric: str, verdict: Verdict) -> str:
    top = max(mean for _, mean in means) or 1
    gone = {name for name, _ in verdict.out}
    best = verdict.ranking[0] if verdict.ranking else None
    rows = []
    for name, mean in means:
        kind = "bar best" if name == best else "bar gone" if name in gone else "bar"
        rows.append(
            f'<div class="{kind}"><span title="{escape(name, quote=True)}">{escape(name)}</span>'
            f'<div><i style="width:{100 * mean / top:.1f}%"></i></div>'
            f"<em>{escape(score_text(metric, mean))}</em></div>"
        )
    return "".join(rows)


def _mean(summary: Summary, name: str, metric: str) -> float | None:
    scenarios = scenarios_of(summary)
    if name == RECORDED and not all(summary.distributions.get(Key(scenario, name)) for scenario in scenarios):
        return None  # what-ifs have no recorded decision, so its mean would cover other cases
    return summary.mean(name, metric, scenarios)


# -- tables ------------------------------------------------------------------------------------------------------------


def _scores(summary: Summary, scenario: str, shown: Sequence[str]) -> str:
    shown = [name for name in shown if summary.distributions.get(Key(scenario, name))]
    rows = []
    for metric, heading in TITLES.items():
        cells = [_cell(summary, Key(scenario, name), metric) for name in shown]
        if any(cells):
            made = "".join(cell or '<td class="num">-</td>' for cell in cells)
            rows.append(f'<tr><td class="name">{escape(heading)}</td>{made}</tr>')
    if not rows:
        return '<p class="none">no data: no candidate gave a valid answer</p>'
    head = "".join(
        f'<th class="num">{escape(name)}{" <small>(base)</small>" if name == summary.base else ""}</th>'
        for name in shown
    )
    note = (
        f"<p class=note>{_scope(scenario)}Median and mean, below them the value that 90 % do not exceed and the worst. "
        "The line shows in how many cases a candidate is better than, as good as and worse than "
        f"{escape(summary.base)}; a coloured score differs by more than chance (sign test, p &lt; {CHANCE:g}).</p>"
    )
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'{note}<div class="wide">{table}</div>'


def _scope(scenario: str) -> str:
    if scenario != EVENTS:
        return ""
    minutes = HORIZON_MS // 60_000
    return (
        "Scores of an event cover all rebalances until the group is at rest: moved tasks and restored records are "
        f"added up; balance, spread and missing copies are averaged over the {minutes} minutes after the event. "
    )


def _cell(summary: Summary, key: Key, metric: str) -> str:
    found = summary.distributions.get(key, {}).get(metric)
    if found is None:
        return ""
    versus = summary.against.get(key, {}).get(metric)
    kind, line = "num", ""
    if versus is not None:
        if not versus.is_chance:
            kind = "num good" if versus.wins > versus.losses else "num bad"
        line = _line(versus)
    median, mean = score_text(metric, found.median), score_text(metric, found.mean)
    beside = "" if mean == median else f' <span class="mean">mean {escape(mean)}</span>'
    return f'<td class="{kind}"><b>{escape(median)}</b>{beside}{_rest(metric, found)}{line}</td>'


def _rest(metric: str, found: Distribution) -> str:
    texts = [score_text(metric, value) for value in (found.p90, found.worst)]
    if texts[0] == texts[1] == score_text(metric, found.median):
        return ""
    return f"<small>{escape(' · '.join(texts))}</small>"


def _line(versus: Comparison) -> str:
    number = sum(versus)
    title = f"better {versus.wins:,}, alike {versus.ties:,}, worse {versus.losses:,}; p = {versus.p:.2g}"
    parts = "".join(
        f'<i class="{kind}" style="width:{100 * times / number:.1f}%"></i>'
        for kind, times in zip("wtl", versus, strict=True)
        if times
    )
    return f'<div class="wtl" title="{escape(title, quote=True)}">{parts}</div>'
