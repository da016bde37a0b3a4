"""The tables: names, keys, columns. All of them also have ``group`` and ``day``, by which they are partitioned.

Times are timestamps in UTC. Durations and counts are whole numbers. An unknown value is null.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Table(NamedTuple):
    """A table. ``key`` names the columns that identify a row within group and day. ``columns`` is Spark's DDL."""

    key: tuple[str, ...]
    columns: str


STATE_TABLE: Final = "state"
"""An internal table: the state of a group's fold at the end of each day."""

LIVE: Final = "live"
"""Not a table: marks the row with the final state among the rows of a fold."""

TABLES: Final[dict[str, Table]] = {
    "rebalance": Table(
        ("rebalance_id",),
        "rebalance_id string, generation int, epoch int, at timestamp, trigger array<string>, assignor string, "
        "outcome string, error_type string, error_text string, clients bigint, consumers bigint, tasks bigint, "
        "stateful bigint, active bigint, standby bigint, warmup bigint, withheld bigint, moved bigint, "
        "duration_us map<string, bigint>, lag_ok boolean, parts int, complete boolean, stable boolean",
    ),
    "rebalance_input": Table(("rebalance_id",), "rebalance_id string, input string, tasks int, clients int"),
    "placement": Table(
        ("rebalance_id", "task", "client", "role"),
        "rebalance_id string, task string, client string, role string, member string, withheld boolean, reason string, "
        "lag bigint, end_offset bigint, prev_role string",
    ),
    "placement_current": Table(
        ("task", "client", "role"),
        "task string, client string, role string, rebalance_id string, member string, since timestamp, state string, "
        "lag bigint",
    ),
    "move": Table(
        ("rebalance_id", "task", "kind", "to_client", "from_client"),
        "rebalance_id string, task string, kind string, from_client string, to_client string, lag_to bigint, "
        "restore_records bigint, cross_rack boolean",
    ),
    "balance": Table(
        ("rebalance_id", "client"),
        "rebalance_id string, client string, capacity int, active int, standby int, stateful int, weight double, "
        "active_per_thread double",
    ),
    "balance_summary": Table(
        ("rebalance_id",),
        "rebalance_id string, max_min_active int, cv_active double, max_over_mean double, max_sub_skew int, "
        "weighted_max_over_mean double",
    ),
    "spread": Table(
        ("rebalance_id", "task", "tag"),
        "rebalance_id string, task string, tag string, replicas int, distinct int, ideal int, violation boolean, "
        "values array<string>",
    ),
    "restore": Table(
        ("task", "process", "started"),
        "task string, process string, started timestamp, records bigint, took_ms bigint, "
        "records_per_s double, outcome string",
    ),
    "gap": Table(
        ("task", "first_at"),
        "rebalance_id string, task string, from_process string, to_process string, last_at timestamp, "
        "first_at timestamp, gap_ms bigint, paused_ms bigint, skew_bound_ms bigint, kind string",
    ),
    "warmup": Table(
        ("task", "client", "created"),
        "task string, client string, created timestamp, warm_at timestamp, promoted_at timestamp, "
        "created_to_warm_ms bigint, warm_to_promoted_ms bigint, rebalances_between int",
    ),
    "offender": Table(
        ("task", "window"),
        "task string, window timestamp, busy_share double, lag bigint, lag_trend_per_s double, "
        "restores int, moves int, score double, why string",
    ),
}


def columns_of(table: str) -> list[tuple[str, str]]:
    """Return (name, type) of each column. Commas inside of <> belong to a type."""
    text = "state string" if table == STATE_TABLE else TABLES[table].columns
    found = []
    depth, start = 0, 0
    for at, char in enumerate(f"{text},"):
        depth += {"<": 1, ">": -1}.get(char, 0)
        if char == "," and depth == 0:
            name, _, kind = text[start:at].strip().partition(" ")
            found.append((name, kind))
            start = at + 1
    return found
