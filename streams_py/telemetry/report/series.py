"""The data of the charts, the same for the page and for images."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from streams_py.telemetry.report.tables import Row, Tables

CAUSES: Final = (
    "first", "member_joined", "member_left", "metadata_changed", "subscription_changed", "followup", "revocation_done",
    "unknown", "failed",
)  # fmt: skip
"""Causes of rebalances. A rebalance with several triggers has the first of them as its cause."""
TASK_MOVES: Final = ("move_free", "move_warm", "move_cold", "lost_owner")
COPY_MOVES: Final = ("standby_add", "warmup_add")
ROLES: Final = ("active", "target", "standby", "warmup")
BARS_MAX: Final = 60
TASKS_MAX: Final = 500
"""Number of tasks above which a chart of the placement does not show single tasks."""


def rebalances(tables: Tables) -> list[Row]:
    """Return the rebalances in the order of time."""
    return sorted(tables["rebalance"], key=lambda row: row["at"])


def cause_of(rebalance: Row) -> str:
    """Return the cause of a rebalance."""
    if rebalance["outcome"] != "ok":
        return "failed"
    return next((name for name in CAUSES if name in rebalance["trigger"]), "unknown")


def moves(tables: Tables) -> Mapping[str, Counter[str]]:
    """Return the number of moves by rebalance and kind."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in tables["move"]:
        counts[row["rebalance_id"]][row["kind"]] += 1
    return counts


def balance(tables: Tables) -> list[tuple[datetime, Row]]:
    """Return the rows of balance that have a value, in the order of time."""
    at = {row["rebalance_id"]: row["at"] for row in tables["rebalance"]}
    found = [
        (at[row["rebalance_id"]], row)
        for row in tables["balance_summary"]
        if row["max_over_mean"] is not None and row["rebalance_id"] in at
    ]
    return sorted(found, key=lambda each: each[0])


def pauses_ms(tables: Tables, *, moved: bool = True) -> list[int]:
    """Return for how long tasks did not process available records: tasks that moved, or tasks that stayed."""
    return [row["paused_ms"] for row in tables["gap"] if (row["kind"] == "moved") is moved and row["paused_ms"]]


def restored(tables: Tables) -> list[Row]:
    """Return the complete restorations that restored records."""
    return [row for row in tables["restore"] if row["outcome"] == "done" and row["records"] != 0]
