"""What the benchmarks found, as one table: ours beside each peer, the ratio, the goal."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from rich.markup import escape
from rich.table import Table

from benchmarks.cluster import BenchmarkError

__all__ = ["NO_GOAL", "Goal", "Row", "line_of", "middle", "reason_of", "table_of"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should be: ``text`` for the table, and the limits of ours / peer's, or of ours alone."""

    text: str
    ratio_min: float | None = None
    ratio_max: float | None = None
    ours_max: float | None = None
    ours_min: float | None = None

    def is_met(self, ours: float, peer: float | None) -> bool | None:
        """None when there is nothing to compare with."""
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
    beside: str
    unit: str
    ours: tuple[float, ...]
    peer: tuple[float, ...] = ()
    goal: Goal = NO_GOAL
    note: str = ""
    failed: bool = False


def reason_of(error: Exception) -> str:
    """Return the first line of an error, with its kind if it is not one of ours."""
    text = (str(error).strip() or "no reason given").splitlines()[0]
    return text if isinstance(error, BenchmarkError) else f"{type(error).__name__}: {text}"


def middle(values: tuple[float, ...]) -> float | None:
    """The median, None of nothing."""
    return median(values) if values else None


def _figure(values: tuple[float, ...], unit: str) -> str:
    """Median and, of several runs, the range: a wide one means that the machine was busy."""
    found = middle(values)
    if found is None:
        return "-"
    digits = 0 if found >= 1000 else 1 if found >= 100 else 2
    text = f"{found:,.{digits}f} {unit}"
    if len(values) > 1:
        text += f"\n[dim]{min(values):,.{digits}f} - {max(values):,.{digits}f}[/dim]"
    return text


def _ratio(ours: float, peer: float) -> str:
    """Small ones as a fraction: 1/900 says more than 0.00."""
    return f"{ours / peer:.2f}" if ours > 0.05 * peer else f"1/{peer / ours:,.0f}"


def _peer_text(row: Row) -> str:
    figure = _figure(row.peer, row.unit)
    if not row.note:
        return figure
    note = f"[red]FAILED: {escape(row.note)}[/red]" if row.failed else f"[yellow]{escape(row.note)}[/yellow]"
    return f"{figure}\n{note}" if row.peer else note


def line_of(row: Row) -> str:
    """One row as a line, for whoever waits for the table."""
    ours, peer = middle(row.ours), middle(row.peer)
    figures = ["-" if figure is None else f"{figure:,.2f} {row.unit}" for figure in (ours, peer)]
    note = f"FAILED: {row.note}" if row.failed else row.note
    return f"{row.work}: {figures[0]}" + (f"; {row.beside}: {note or figures[1]}" if row.beside else f" {note}")


def table_of(rows: list[Row], *, title: str) -> Table:
    """All rows; figures are medians with the smallest and largest run below."""
    table = Table(title=title, caption="medians; smallest and largest run below each", show_lines=True)
    for name in ("work", "ours", "beside"):
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
        table.add_row(work, _figure(row.ours, row.unit), row.beside, peer_text, ratio, row.goal.text, verdict)
    return table
