"""The moves of a rebalance, found by comparison with the previous rebalance.

=================  =====================================================================================================
kind               meaning
=================  =====================================================================================================
``start``          the task had no client before, and has one now
``lost_owner``     the task had a client before, and has none now
``move_free``      the task moved without a restore: it is stateless, was already running there, or was up to date
``move_warm``      the task moved to a standby or warm-up within ``acceptable.recovery.lag``
``move_cold``      the task moved, and its state must be restored first
``standby_add``    a client got a standby (``standby_drop``: lost one); ``warmup_add`` and ``warmup_drop`` likewise
``unknown_base``   moves are unknown, because the previous rebalance is (it was led by a Java member, or is lost)
=================  =====================================================================================================

A withheld task has not moved yet. It moves in the rebalance that hands it over. Tasks that stay have no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.telemetry.facts import Facts
from streams_py.telemetry.ownership import Ownership

Row = dict[str, Any]


def unknown_base(rebalance_id: str) -> Row:
    """Return the only row of a rebalance without a known predecessor."""
    return _row(rebalance_id, "", "unknown_base", None, None)


def moves(before: Ownership, now: Ownership, facts: Facts) -> Iterator[Row]:
    """Yield the moves of tasks, then of standbys, then of warm-ups."""
    for task in sorted(before.holders.keys() | now.holders.keys()):
        was, held = before.holders.get(task), now.holders.get(task)
        if was == held:
            continue
        if held is None:
            yield _row(now.rebalance_id, str(task), "lost_owner", was, None)
        elif was is None:
            yield _with_state(_row(now.rebalance_id, str(task), "start", None, held), task, held, facts)
        else:
            row = _row(now.rebalance_id, str(task), facts_kind(task, held, facts), was, held)
            from_rack, to_rack = before.racks.get(was), now.racks.get(held)
            row["cross_rack"] = None if from_rack is None or to_rack is None else from_rack != to_rack
            yield _with_state(row, task, held, facts)
    yield from _copies(before.standbys, now.standbys, "standby", now.rebalance_id, facts)
    yield from _copies(before.warmups, now.warmups, "warmup", now.rebalance_id, facts)


def facts_kind(task: TaskId, client: str, facts: Facts) -> str:
    """Return the kind of a move, for the client that gets the task."""
    if facts.end_of(task) is None:
        return "move_free"
    lag = facts.lag(client, task)
    if lag == LATEST_OFFSET or lag == 0:
        return "move_free"
    warm = lag is not None and lag <= facts.acceptable_lag and facts.had_copy(client, task)
    return "move_warm" if warm else "move_cold"


def _with_state(row: Row, task: TaskId, client: str, facts: Facts) -> Row:
    lag = facts.lag(client, task)
    row["lag_to"] = lag
    if facts.end_of(task) is not None:
        row["restore_records"] = 0 if lag == LATEST_OFFSET else lag
    return row


def _copies(
    before: Mapping[str, frozenset[TaskId]],
    now: Mapping[str, frozenset[TaskId]],
    kind: str,
    rebalance_id: str,
    facts: Facts,
) -> Iterator[Row]:
    nothing: frozenset[TaskId] = frozenset()
    for client in sorted(before.keys() | now.keys()):
        had, has = before.get(client, nothing), now.get(client, nothing)
        for task in sorted(has - had):
            yield _with_state(_row(rebalance_id, str(task), f"{kind}_add", None, client), task, client, facts)
        for task in sorted(had - has):
            yield _row(rebalance_id, str(task), f"{kind}_drop", client, None)


def _row(rebalance_id: str, task: str, kind: str, from_client: str | None, to_client: str | None) -> Row:
    return {
        "rebalance_id": rebalance_id,
        "task": task,
        "kind": kind,
        "from_client": from_client,
        "to_client": to_client,
        "lag_to": None,
        "restore_records": None,
        "cross_rack": None,
    }
