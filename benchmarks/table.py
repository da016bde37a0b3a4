"""The results of the benchmarks as one table: this library, each peer, the ratio and the goal."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from rich.markup import escape
from rich.table import Table

from benchmarks.cluster import BenchmarkError


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a measurement: ``text`` for the table, and limits of the ratio ours / peer, or of ours alone."""

    text: str
    ratio_min: float | None = None
    ratio_max: float | None = None
    ours_max: float | None = None
    ours_min: float | None = None

    def is_met(self, ours: float, peer: float | None) -> bool | None:
        """Return whether the goal is met; None if there is nothing to compare with."""
        if self.ours_max is not None:
            return ours < self.ours_max
        if self.ours_min is not None:
            return ours >= self.ours_min
        if peer is None or (self.ratio_min is None and self.ratio_max is None):
            return None
        ratio = ours / peer
        return ratio >= self.ratio_min if self.ratio_min is not None else ratio < (self.ratio_max or 0)


NO_GOAL = Goal("")


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. ``ours`` and ``peer`` hold one number per run; ``note`` says why something is missing.

    ``failed``: ours or the peer failed, as opposed to a peer that was not requested or gave up at a limit.
    """

    work: str
    compared_with: str
    unit: str
    ours: tuple[float, ...]
    peer: tuple[float, ...] = ()
    goal: Goal = NO_GOAL
    note: str = ""
    failed: bool = False


def reason_of(error: Exception) -> str:
    """Return the first line of an error, with its type unless it is a BenchmarkError."""
    text = (str(error).strip() or "no reason given").splitlines()[0]
    return text if isinstance(error, BenchmarkError) else f"{type(error).__name__}: {text}"


def middle(values: tuple[float, ...]) -> float | None:
    """Return the median; None for an empty tuple."""
    return median(values) if values else None


def _measured_text(values: tuple[float, ...], unit: str) -> str:
    """Return the median and, for several runs, the range. A wide range shows that the machine was busy."""
    found = middle(values)
    if found is None:
        return "-"
    digits = 0 if found >= 1000 else 1 if found >= 100 else 2
    text = f"{found:,.{digits}f} {unit}"
    if len(values) > 1:
        text += f"\n[dim]{min(values):,.{digits}f} - {max(values):,.{digits}f}[/dim]"
    return text


def _ratio(ours: float, peer: float) -> str:
    """Format a ratio. Small ratios are fractions, because 1/900 says more than 0.00."""
    return f"{ours / peer:.2f}" if ours > 0.05 * peer else f"1/{peer / ours:,.0f}"


def _peer_text(row: Row) -> str:
    text = _measured_text(row.peer, row.unit)
    if not row.note:
        return text
    note = f"[red]FAILED: {escape(row.note)}[/red]" if row.failed else f"[yellow]{escape(row.note)}[/yellow]"
    return f"{text}\n{note}" if row.peer else note


def line_of(row: Row) -> str:
    """Format a row as one line, which is printed before the table is complete."""
    ours, peer = middle(row.ours), middle(row.peer)
    texts = ["-" if value is None else f"{value:,.2f} {row.unit}" for value in (ours, peer)]
    note = f"FAILED: {row.note}" if row.failed else row.note
    return f"{row.work}: {texts[0]}" + (
        f"; {row.compared_with}: {note or texts[1]}" if row.compared_with else f" {note}"
    )


def table_of(rows: list[Row], *, title: str) -> Table:
    """Return all rows as a table of medians, with the smallest and largest run below each."""
    table = Table(title=title, caption="medians; smallest and largest run below each", show_lines=True)
    for name in ("work", "ours", "compared with"):
        table.add_column(name)
    table.add_column("peer's", justify="right")
    table.add_column("ours / peer's", justify="right")
    table.add_column("goal")
    table.add_column("met")
    before = ""
    for row in rows:
        ours, peer = middle(row.ours), middle(row.peer)
        ratio = _ratio(ours, peer) if ours and peer else "-"
        met = row.goal.is_met(ours, peer) if ours is not None else None
        verdict = {True: "[green]yes[/green]", False: "[red]no[/red]", None: ""}[met]
        peer_text = _peer_text(row)
        work = row.work if row.work != before else ""
        before = row.work
        table.add_row(
            work, _measured_text(row.ours, row.unit), row.compared_with, peer_text, ratio, row.goal.text, verdict
        )
    return table
