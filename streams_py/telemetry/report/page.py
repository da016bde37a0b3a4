"""The report as one HTML page: the last rebalances, their costs, and the present placement."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any, Final

from streams_protocol.types import TaskId
from streams_py.telemetry.report import series
from streams_py.telemetry.report.drawing import Bar, Cell, Point, grid, stacked_bars, steps, timeline
from streams_py.telemetry.report.frame import framed, headline
from streams_py.telemetry.report.tables import Row, Tables

__all__ = ["report_page"]

_MARKS_MAX: Final = 150
"""Number of rebalances above which the chart over time counts them in spans."""
_BINS: Final = 60
_LABEL_EVERY: Final = 10
_HOT_TASKS_MAX: Final = 25
_CLIENTS_MAX: Final = 10
_GRID_CLIENTS_MAX: Final = 200
_MOMENTS: Final = 5
_HISTOGRAM_MIN: Final = 20
_BUCKETS_MS: Final = tuple(factor * 10**power for power in range(7) for factor in (1, 2, 5))
_VIOLATIONS_MAX: Final = 10
_LETTERS: Final = {"active": "A", "target": "T", "standby": "S", "warmup": "W"}


def report_page(tables: Tables) -> str:
    """Return the page. A table without rows gives a sentence instead of an empty drawing."""
    sections: list[tuple[str, str, Callable[[Tables], str]]] = [
        ("Rebalances", "By cause.", _timeline),
        ("Placement", "", _placement),
        ("Moves", "Cold moves restore their state before they run.", _moves),
        ("Balance", "Active tasks of the busiest thread, over the mean of all threads. 1 is perfect.", _balance),
        ("Spread over tags", "Tasks whose copies share a tag value although they need not.", _spread),
        ("Time without processing", "How long records waited for processing around a rebalance.", _gaps),
        ("Restorations", "", _restores),
        ("Warm-ups", "", _warmups),
        (
            "Tasks that cost more than their share",
            "A share of 1 is as much of its thread as every other task.",
            _hot_tasks,
        ),
    ]
    body = [_headline(tables)]
    for title, note, make in sections:
        content = make(tables)
        described = f'<p class="note">{escape(note)}</p>' if note and "no data" not in content else ""
        body.append(f"<section><h2>{escape(title)}</h2>{described}{content}</section>")
    return framed(tables.group, "rebalances", "".join(body))


# -- the top -----------------------------------------------------------------------------------------------------------


def _headline(tables: Tables) -> str:
    shown = tables["rebalance"]
    ok = [row for row in shown if row["outcome"] == "ok"]
    last = max(ok, key=lambda row: row["at"], default=None)
    moved = Counter(row["kind"] for row in tables["move"])
    cold = sum(row["restore_records"] or 0 for row in tables["move"] if row["kind"] == "move_cold")
    pauses = series.pauses_ms(tables)
    older = tables.rebalances - len(shown)
    failed = f"{len(shown) - len(ok):,} failed"
    if older > 0:
        failed = f"{sum(row['outcome'] != 'ok' for row in tables.timeline):,} failed"
    of_last = f", in the last {len(shown):,}" if older > 0 else ""
    numbers = [
        (_compact(len(shown) + max(0, older)), "rebalances", failed),
        (
            _compact(moved["move_free"] + moved["move_warm"] + moved["move_cold"]),
            "tasks moved",
            f"{moved['move_cold']:,} cold{of_last}",
        ),
        (_compact(cold), "records to restore", f"for cold moves{of_last}"),
        (_ms(max(pauses)) if pauses else "-", "longest pause", f"of a task that moved{of_last}"),
    ]
    if last is not None:
        state = "stable" if last["stable"] else "still moving"
        numbers.insert(
            0, (_compact(last["tasks"]), "tasks", f"{last['clients']} clients, {last['consumers']} threads, {state}")
        )
    between = "no rebalance recorded yet"
    if shown:
        times = [row["at"] for row in (tables.timeline or shown)]
        between = f"{_time(min(times))} to {_time(max(times))}, UTC"
    return headline(tables.group, between, numbers)


def _none(what: str) -> str:
    return f'<p class="none">no data for {escape(what)}</p>'


def _legend(names: Sequence[str], prefix: str) -> str:
    items = "".join(f'<li><i class="{prefix}-{name}"></i>{escape(name.replace("_", " "))}</li>' for name in names)
    return f'<ul class="legend">{items}</ul>'


# -- over time ---------------------------------------------------------------------------------------------------------


def _timeline(tables: Tables) -> str:
    every = sorted(tables.timeline or tables["rebalance"], key=lambda row: row["at"])
    if len(every) > _MARKS_MAX:
        return _binned_timeline(every)
    rows = series.rebalances(tables)
    if not rows:
        return _none("rebalances")
    first, last = rows[0]["at"], rows[-1]["at"]
    span = (last - first).total_seconds() or 1
    marks = []
    used = []
    for row in rows:
        cause = series.cause_of(row)
        used.append(cause)
        total_us = (row["duration_us"] or {}).get("total", 0)
        error = f", {row['error_type']}: {row['error_text']}" if row["error_type"] else ""
        title = (
            f"{_time(row['at'])}  generation {row['generation']}: {', '.join(row['trigger'])}; {row['moved']} moved, "
            f"{row['withheld']} withheld; decided in {_ms(total_us / 1000)}{error}"
        )
        marks.append(((row["at"] - first).total_seconds() / span, cause, title))
    legend = [name for name in series.CAUSES if name in used]
    return _legend(legend, "s") + timeline(marks, _moments(first, last), "rebalances over time")


def _binned_timeline(rows: Sequence[Row]) -> str:
    """Draw columns of equal time with the number of rebalances by cause. Many single marks would form a solid bar."""
    first, last = rows[0]["at"], rows[-1]["at"]
    bins: list[Counter[str]] = [Counter() for _ in range(_BINS)]
    span = (last - first).total_seconds() or 1
    for row in rows:
        place = min(_BINS - 1, int(_BINS * (row["at"] - first).total_seconds() / span))
        bins[place][series.cause_of(row)] += 1
    causes = [name for name in series.CAUSES if any(counts[name] for counts in bins)]
    step = (last - first) / _BINS
    bars = []
    for number, counts in enumerate(bins):
        start = _time(first + number * step)
        what = ", ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in causes if counts[name]) or "none"
        parts = [(name, float(counts[name])) for name in causes if counts[name]]
        bars.append(Bar(parts, f"from {start}: {what}", start[5:16] if number % _LABEL_EVERY == 0 else ""))
    length = _ms(step.total_seconds() * 1000)
    note = f"<p class=note>All {len(rows):,} rebalances, counted in {_BINS} spans of {length}.</p>"
    return note + _legend(causes, "s") + stacked_bars(bars, "rebalances over time", height=110)


def _moves(tables: Tables) -> str:
    decided = [row for row in series.rebalances(tables) if row["outcome"] == "ok"]
    counts = series.moves(tables)
    if not any(of[kind] for of in counts.values() for kind in (*series.TASK_MOVES, *series.COPY_MOVES)):
        return _none("moves")
    charts = (("Tasks that changed their client", series.TASK_MOVES), ("New copies", series.COPY_MOVES))
    return "".join(f"<h3>{title}</h3>{_moves_of(decided, counts, kinds)}" for title, kinds in charts)


def _moves_of(decided: Sequence[Row], counts: Mapping[str, Counter[str]], kinds: Sequence[str]) -> str:
    shown = [row for row in decided if any(counts[row["rebalance_id"]][kind] for kind in kinds)]
    if not shown:
        return "<p class=note>None.</p>"
    bars = []
    for row in shown[-series.BARS_MAX :]:
        of = counts[row["rebalance_id"]]
        parts = [(kind, float(of[kind])) for kind in kinds if of[kind]]
        what = ", ".join(f"{of[kind]:,} {kind.replace('_', ' ')}" for kind in kinds if of[kind])
        bars.append(Bar(parts, f"{_time(row['at'])}  generation {row['generation']}: {what}", str(row["generation"])))
    among = f"{len(shown):,} of {len(decided):,} rebalances"
    last = f"the last {len(bars)} of them, " if len(bars) < len(shown) else ""
    used = [kind for kind in kinds if any(counts[row["rebalance_id"]][kind] for row in shown[-series.BARS_MAX :])]
    chart = stacked_bars(bars, "moves by rebalance", height=130)
    return f"<p class=note>{among}; {last}by generation.</p>{_legend(used, 's')}{chart}"


def _balance(tables: Tables) -> str:
    rows = series.balance(tables)
    if not rows:
        return _none("balance")
    first, last = rows[0][0], rows[-1][0]
    span = (last - first).total_seconds() or 1
    points = [
        Point(
            (at - first).total_seconds() / span,
            row["max_over_mean"],
            f"{_time(at)}: busiest thread {row['max_over_mean']:.2f} times the mean, "
            f"{row['max_min_active']} tasks between threads",
        )
        for at, row in rows
    ]
    return steps(points, _moments(first, last), "balance over time") + _by_client(tables)


def _by_client(tables: Tables) -> str:
    """Return the clients after the last rebalance, busiest first."""
    rows = sorted(tables["balance"], key=lambda row: (-(row["active_per_thread"] or 0), row["client"]))
    if not rows:
        return ""
    cells = [
        (
            _short(row["client"]),
            row["capacity"],
            f"{row['active']:,}",
            "-" if row["active_per_thread"] is None else f"{row['active_per_thread']:,.1f}",
            f"{row['standby']:,}",
        )
        for row in rows[:_CLIENTS_MAX]
    ]
    more = f", the busiest {_CLIENTS_MAX} of {len(rows):,}" if len(rows) > _CLIENTS_MAX else ""
    head = ("client", "threads", "active", "active per thread", "standby")
    return f"<h3>Clients after the last rebalance{more}</h3>{_table(head, cells)}"


# -- now ---------------------------------------------------------------------------------------------------------------


def _placement(tables: Tables) -> str:
    rows = tables["placement"]
    if not rows:
        return _none("the current placement")
    tasks = sorted({TaskId.parse(row["task"]) for row in rows})
    clients = sorted({row["client"] for row in (*rows, *tables["balance"])})
    states = {(row["task"], row["client"]): row["state"] for row in tables["placement_current"]}
    if len(tasks) > series.TASKS_MAX:
        return _by_subtopology(rows, clients, len(tasks))
    cells: dict[tuple[str, str], Cell] = {}
    for row in rows:
        lag = "" if row["lag"] is None or row["lag"] < 0 else f", {row['lag']:,} records behind before"
        state = states.get((row["task"], row["client"]))
        title = f"{row['task']} on {row['client']}: {row['role']}, {row['reason'] or 'no reason'}{lag}"
        cells[row["client"], row["task"]] = Cell(
            row["role"], _LETTERS[row["role"]], title + (f", {state}" if state else "")
        )
    nothing = Cell("", "", "")
    made = [(_short(c), [cells.get((c, str(t)), nothing) for t in tasks]) for c in clients[:_GRID_CLIENTS_MAX]]
    note = (
        f"<p class=note>{len(tasks)} tasks across, {len(clients)} clients down, after the last "
        f"rebalance.{_only(clients)}</p>"
    )
    used = {row["role"] for row in rows}
    legend = _legend([role for role in series.ROLES if role in used], "c")
    return note + legend + f'<div class="wide">{grid([str(t) for t in tasks], made, "placement")}</div>'


def _by_subtopology(rows: Sequence[Row], clients: Sequence[str], tasks: int) -> str:
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    subs = set()
    for row in rows:
        task = TaskId.parse(row["task"])
        sub = f"{task.name}__{task.subtopology}" if task.name else str(task.subtopology)
        subs.add((task.name, task.subtopology, sub))
        counts[row["client"], sub][row["role"]] += 1
    names = [sub for _, _, sub in sorted(subs)]
    most = max(of["active"] for of in counts.values()) or 1
    made = []
    for client in clients[:_GRID_CLIENTS_MAX]:
        cells = []
        for sub in names:
            of = counts[client, sub]
            what = ", ".join(f"{of[role]:,} {role}" for role in series.ROLES if of[role]) or "nothing"
            copies = of["standby"] + of["warmup"]
            text = f"{of['active']}+{copies}" if copies else str(of["active"]) if of["active"] else ""
            cells.append(Cell("active" if of else "", text, f"{sub} on {client}: {what}", of["active"] / most))
        made.append((_short(client), cells))
    note = (
        f"<p class=note>{tasks:,} tasks are too many for one column each: sub-topologies across, clients down; active "
        f"tasks, and copies after the plus sign.{_only(clients)}</p>"
    )
    return note + f'<div class="wide">{grid(names, made, "placement by sub-topology")}</div>'


def _only(clients: Sequence[str]) -> str:
    left = len(clients) - _GRID_CLIENTS_MAX
    return f" The first {_GRID_CLIENTS_MAX} of {len(clients):,} clients." if left > 0 else ""


def _spread(tables: Tables) -> str:
    rows = tables["spread"]
    if not rows:
        return _none("spread: no task has more than one copy on clients with tags")
    bad = sorted((row for row in rows if row["violation"]), key=lambda row: (row["tag"], TaskId.parse(row["task"])))
    if not bad:
        return f"<p>None: {len(rows):,} task and tag pairs are spread as well as they can be.</p>"
    cells = [
        (row["tag"], row["task"], f"{row['distinct']} of {row['ideal']}", ", ".join(row["values"] or ()))
        for row in bad[:_VIOLATIONS_MAX]
    ]
    more = f"<p class=note>{len(bad):,} in all, the first {len(cells)} are shown.</p>" if len(bad) > len(cells) else ""
    return more + _table(("tag", "task", "values in use", "which"), cells)


# -- costs -------------------------------------------------------------------------------------------------------------


def _gaps(tables: Tables) -> str:
    if not tables["gap"]:
        return _none("pauses: assignment.events.level must be tasks on every instance")
    moved, stayed = series.pauses_ms(tables), series.pauses_ms(tables, moved=False)
    bound = max(row["skew_bound_ms"] for row in tables["gap"])
    idle = len(tables["gap"]) - len(moved) - len(stayed)
    nothing = f" {idle:,} times a task had no input, which does not count as a pause." if idle else ""
    note = (
        f"<p class=note>A move compares the clocks of two machines and may be off by up to {_ms(bound)}.{nothing}</p>"
    )
    return (
        note
        + _distribution([("tasks that moved", moved, _ms), ("tasks that stayed", stayed, _ms)])
        + _histograms(("Tasks that moved", moved), ("Tasks that stayed", stayed))
    )


def _restores(tables: Tables) -> str:
    done = [row for row in tables["restore"] if row["outcome"] == "done"]
    interrupted = [row for row in tables["restore"] if row["outcome"] == "interrupted"]
    ended = {(row["task"], row["process"], row["started"]) for row in (*done, *interrupted)}
    running = {(row["task"], row["process"], row["started"]) for row in tables["restore"]} - ended
    if not tables["restore"]:
        return _none("restorations: assignment.events.level must be tasks on every instance")
    nothing = sum(row["records"] == 0 for row in done)
    complete = f" {nothing:,} more found their state complete and restored no record." if nothing else ""
    note = (
        f"<p class=note>{len(done) - nothing:,} done, {len(interrupted):,} interrupted, {len(running):,} running."
        f"{complete}</p>"
    )
    worked = series.restored(tables)
    took = [row["took_ms"] for row in worked if row["took_ms"] is not None]
    records = [row["records"] for row in worked if row["records"] is not None]
    of = [("time", took, _ms), ("records", records, "{:,.0f}".format)]
    return note + _distribution(of) + _histograms(("Time", took))


def _warmups(tables: Tables) -> str:
    rows = tables["warmup"]
    if not rows:
        return _none("warm-ups")
    promoted = [row for row in rows if row["promoted_at"] is not None]
    to_warm = [row["created_to_warm_ms"] for row in rows if row["created_to_warm_ms"] is not None]
    to_run = [row["warm_to_promoted_ms"] for row in promoted if row["warm_to_promoted_ms"] is not None]
    note = f"<p class=note>{len(promoted)} of {len(rows)} ended with the task running there.</p>"
    return note + _distribution([("first copy to caught up", to_warm, _ms), ("caught up to running", to_run, _ms)])


def _hot_tasks(tables: Tables) -> str:
    if not tables["offender"]:
        return _none("hot tasks: no task exceeded a limit, or no samples were recorded")
    by_task: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(tables["offender"], key=lambda row: row["window"]):
        by_task[row["task"]].append(row)
    worst = sorted(by_task, key=lambda task: (-len(by_task[task]), -_worst(by_task[task]), TaskId.parse(task)))
    cells = []
    for task in worst[:_HOT_TASKS_MAX]:
        windows, last = by_task[task], by_task[task][-1]
        why = Counter(reason for row in windows for reason in row["why"].split())
        cells.append(
            (
                task,
                f"{len(windows):,}",
                _time(last["window"])[:16],
                ", ".join(f"{reason} {count}x" for reason, count in why.most_common()),
                f"{_worst(windows):.1f}" if _worst(windows) else "-",
                "-" if last["lag"] is None else f"{last['lag']:,}",
                "-" if last["lag_trend_per_s"] is None else f"{last['lag_trend_per_s']:+,.1f}",
            )
        )
    note = f"<p class=note>The first {len(cells)} of {len(by_task):,} tasks.</p>" if len(cells) < len(by_task) else ""
    head = ("task", "windows of 10 min", "last", "why", "worst share of its thread", "last lag", "lag per second")
    return note + _table(head, cells)


def _worst(windows: Sequence[Row]) -> float:
    return max((row["score"] or 0.0 for row in windows), default=0.0)


def _distribution(of: Sequence[tuple[str, Sequence[float], Callable[[float], str]]]) -> str:
    cells = []
    for name, values, shown in of:
        ordered = sorted(values)
        numbers = [shown(_quantile(ordered, q)) for q in (0.5, 0.9, 0.99, 1.0)] if ordered else ["-"] * 4
        cells.append((name, *numbers, f"{len(ordered):,}"))
    return _table(("", "median", "90 %", "99 %", "longest or largest", "number"), cells)


def _histograms(*of: tuple[str, Sequence[float]]) -> str:
    """Draw histograms of durations side by side, in steps of a factor of about 2.5."""
    charts = []
    for name, values in of:
        if len(values) < _HISTOGRAM_MIN:
            continue
        counts = Counter(bisect_left(_BUCKETS_MS, value) for value in values)
        bars = []
        for bucket in range(min(counts), max(counts) + 1):
            label = f"≤ {_ms(_BUCKETS_MS[bucket])}".replace(".0 ", " ") if bucket < len(_BUCKETS_MS) else "more"
            bars.append(Bar([("count", float(counts[bucket]))], f"{label}: {counts[bucket]:,}", label))
        charts.append(f"<div><h3>{escape(name)}</h3>{stacked_bars(bars, name, height=90, width=460)}</div>")
    return f'<div class="pair">{"".join(charts)}</div>' if charts else ""


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _moments(first: datetime, last: datetime) -> list[str]:
    """Return a few times as labels for the axis of a chart."""
    if last <= first:
        return [_time(first)]
    step = (last - first) / (_MOMENTS - 1)
    return [_time(first + step * number)[: 19 if step < timedelta(minutes=2) else 16] for number in range(_MOMENTS)]


def _time(value: datetime) -> str:
    return value.replace(tzinfo=UTC).strftime("%Y-%m-%d %H:%M:%S")


def _compact(value: int) -> str:
    """Return a number with at most seven characters, for a card."""
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if value >= size:
            return f"{value / size:,.1f} {unit}" if value < 1_000 * size else f"{value / size:,.0f} {unit}"
    return f"{value:,}"


def _ms(value: float) -> str:
    if abs(value) < 1_000:
        return f"{value:,.0f} ms"
    if abs(value) < 120_000:
        return f"{value / 1_000:,.1f} s"
    return f"{value / 60_000:,.1f} min" if abs(value) < 7_200_000 else f"{value / 3_600_000:,.1f} h"


def _short(client: str) -> str:
    """Return a shortened process id that is long enough to find it. The title of the cell has the complete id."""
    return client if len(client) <= 12 else f"{client[:8]}…{client[-4:]}"
