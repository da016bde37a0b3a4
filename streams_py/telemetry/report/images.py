"""Writes the report's charts as PNG files, for documents and chats. Needs matplotlib, a part of the extra ``spark``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streams_protocol.types import TaskId
from streams_py.telemetry.report import series
from streams_py.telemetry.report.tables import Row, Tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_IN: Final = (10.0, 3.2)
_DPI: Final = 120
COLOURS: Final[Mapping[str, str]] = {
    "first": "#1f8f82", "member_joined": "#2f6fb2", "member_left": "#c98a15", "metadata_changed": "#7a5bb0",
    "subscription_changed": "#b5548a", "followup": "#5a9a3a", "revocation_done": "#8a5a3c", "unknown": "#8b949d",
    "failed": "#c2452d", "move_free": "#1f8f82", "move_warm": "#c98a15", "move_cold": "#c2452d",
    "lost_owner": "#c2452d", "standby_add": "#2f6fb2", "warmup_add": "#7a5bb0", "active": "#2f6fb2",
    "target": "#c98a15", "standby": "#8b949d", "warmup": "#7a5bb0",
}  # fmt: skip
_MOVES: Final = (*series.TASK_MOVES, *series.COPY_MOVES)
_ROLES: Final = ("standby", "warmup", "target", "active")
"""The roles in the order in which they are drawn."""


def write_images(tables: Tables, folder: Path) -> list[Path]:
    """Write ``timeline.png``, ``placement.png``, ``moves.png``, ``balance.png``, ``pauses.png`` and ``restores.png``.

    Charts without data are left out. Returns the written files.
    """
    from matplotlib.figure import Figure  # no window, no global state

    written = []
    for name, title, draw in _charts(tables):
        figure = Figure(figsize=_SIZE_IN, dpi=_DPI, layout="constrained")
        axes = figure.subplots()
        axes.set_title(f"{tables.group}: {title}", loc="left", fontsize=11, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        path = folder / f"{name}.png"
        figure.savefig(path, metadata={"Software": "kafka-streams-py"})
        written.append(path)
    return written


def _charts(tables: Tables) -> Iterator[tuple[str, str, Callable[[Axes], None]]]:
    shown = series.rebalances(tables)
    if shown:
        yield "timeline", "rebalances", lambda axes: _timeline(axes, shown)
    if tables["placement"]:
        yield "placement", "placement after the last rebalance", lambda axes: _placement(axes, tables["placement"])
    if any(row["kind"] in _MOVES for row in tables["move"]):
        yield "moves", "moves by rebalance", lambda axes: _moves(axes, shown, series.moves(tables))
    points = [(at, row["max_over_mean"]) for at, row in series.balance(tables)]
    if points:
        yield "balance", "active tasks of the busiest thread over the mean", lambda axes: _balance(axes, points)
    pauses = [ms / 1_000 for ms in series.pauses_ms(tables)]
    if pauses:
        yield "pauses", "time without processing of tasks that moved", lambda axes: _histogram(axes, pauses)
    took = [row["took_ms"] / 1_000 for row in series.restored(tables) if row["took_ms"] is not None]
    if took:
        yield "restores", "time to restore", lambda axes: _histogram(axes, took)


def _timeline(axes: Axes, rebalances: Sequence[Row]) -> None:
    by_cause: dict[str, list[Any]] = defaultdict(list)
    for row in rebalances:
        by_cause[series.cause_of(row)].append(row["at"])
    for cause, moments in by_cause.items():
        axes.vlines(moments, 0, 1, color=COLOURS[cause], label=cause.replace("_", " "), linewidth=2)
    axes.set_yticks([])
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _placement(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw tasks across and clients down. With many tasks, draw bars with the number of each client's tasks."""
    clients = sorted({row["client"] for row in rows})
    tasks = sorted({TaskId.parse(row["task"]) for row in rows})
    if len(tasks) > series.TASKS_MAX:
        left = [0] * len(clients)
        for role in reversed(_ROLES):
            counts = Counter(row["client"] for row in rows if row["role"] == role)
            widths = [counts[client] for client in clients]
            axes.barh(range(len(clients)), widths, left=left, color=COLOURS[role], label=role)
            left = [before + width for before, width in zip(left, widths, strict=True)]
    else:
        place = {str(task): number for number, task in enumerate(tasks)}
        for role in _ROLES:
            mine = [(place[row["task"]], clients.index(row["client"])) for row in rows if row["role"] == role]
            if mine:
                across, down = zip(*mine, strict=True)
                axes.scatter(across, down, 18, color=COLOURS[role], label=role, marker="s")
        axes.set_xlabel(f"{tasks[0]} to {tasks[-1]}", parse_math=False)
    axes.set_yticks(range(len(clients)) if len(clients) <= 20 else [])
    if len(clients) <= 20:
        axes.set_yticklabels([client[-12:] for client in clients], fontsize=7, parse_math=False)
    axes.invert_yaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _moves(axes: Axes, decided: Sequence[Row], counts: Mapping[str, Counter[str]]) -> None:
    shown = [row for row in decided if any(counts[row["rebalance_id"]][kind] for kind in _MOVES)][-series.BARS_MAX :]
    bottom = [0] * len(shown)
    for kind in _MOVES:
        heights = [counts[row["rebalance_id"]][kind] for row in shown]
        if any(heights):
            axes.bar(range(len(shown)), heights, bottom=bottom, color=COLOURS[kind], label=kind.replace("_", " "))
            bottom = [before + height for before, height in zip(bottom, heights, strict=True)]
    every = max(1, len(shown) // 12)
    axes.set_xticks(range(0, len(shown), every), [str(row["generation"]) for row in shown[::every]])
    axes.set_xlabel("generation")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _balance(axes: Axes, points: Sequence[tuple[Any, float]]) -> None:
    axes.step([at for at, _ in points], [value for _, value in points], where="post", color=COLOURS["first"])
    axes.set_ylim(bottom=0)


def _histogram(axes: Axes, seconds: Sequence[float]) -> None:
    axes.hist(seconds, bins=min(40, max(5, len(seconds) // 3)), color=COLOURS["active"])
    axes.set_xlabel("seconds")
