"""The placement of all tasks and copies, with its balance and spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from streams_protocol.types import TaskId
from streams_py.events.model import ClientPart
from streams_py.telemetry.facts import Facts
from streams_py.telemetry.ownership import Ownership

Row = dict[str, Any]

_RACK: Final = "rack"
_NOT_RELEASED: Final = "not_released"
"""Reason of a task that stays with its old client until that client has revoked it."""


def placements(now: Ownership, facts: Facts) -> Iterator[Row]:
    """Yield the placement of all tasks and copies.

    Roles are ``active`` (each task once, on its holder), ``target`` (on the new client of a withheld task), ``standby``
    and ``warmup``.
    """
    for part in sorted(facts.whole.clients, key=lambda part: part.client):
        reason_of = {task: code for code, tasks in part.reasons.items() for task in tasks}
        members = [consumer.member for consumer in part.consumers]
        held: set[TaskId] = set()
        for member, thread in zip(members, part.threads, strict=True):
            for task in thread.active:
                held.add(task)
                yield _row(part, task, "active", member, reason_of.get(task), facts, withheld=False)
            for task in thread.withheld:
                yield _row(part, task, "target", member, reason_of.get(task), facts, withheld=True)
        for task in sorted(task for task, client in now.holders.items() if client == part.client and task not in held):
            owner = next((c.member for c in part.consumers if task in c.owned), None)
            yield _row(part, task, "active", owner, _NOT_RELEASED, facts, withheld=False)
        member_of = {
            task: member for member, thread in zip(members, part.threads, strict=True) for task in thread.standby
        }
        for role, tasks in (("standby", part.standby), ("warmup", part.warmup)):
            for task in tasks:
                yield _row(part, task, role, member_of.get(task), reason_of.get(task), facts, withheld=False)


def _row(
    part: ClientPart, task: TaskId, role: str, member: str | None, reason: str | None, facts: Facts, *, withheld: bool
) -> Row:
    return {
        "rebalance_id": facts.whole.header.rebalance_id,
        "task": str(task),
        "client": part.client,
        "role": role,
        "member": member,
        "withheld": withheld,
        "reason": reason,
        "lag": facts.lag(part.client, task),
        "end_offset": facts.end_of(task),
        "prev_role": facts.previous_role(part.client, task),
    }


# -- balance of the decision; withheld tasks count for their new client ------------------------------------------------


def balance(facts: Facts, work: Mapping[str, float]) -> Iterator[Row]:
    """Yield one row for each client.

    ``work`` is the measured share of each task in all work. The column ``weight`` is the sum for a client's active
    tasks, or null unless all of them were measured.
    """
    for part in sorted(facts.whole.clients, key=lambda part: part.client):
        capacity = max(1, len(part.consumers))
        weights = [work.get(str(task)) for task in part.active]
        yield {
            "rebalance_id": facts.whole.header.rebalance_id,
            "client": part.client,
            "capacity": capacity,
            "active": len(part.active),
            "standby": len(part.standby),
            "stateful": sum(facts.is_stateful(task) for task in part.active),
            "weight": _sum_known(weights),
            "active_per_thread": len(part.active) / capacity,
        }


def balance_summary(facts: Facts, work: Mapping[str, float]) -> Row:
    """Return statistics over all threads and clients; null if nothing can be compared. See :func:`balance`."""
    clients = facts.whole.clients
    threads = [len(thread.active) + len(thread.withheld) for part in clients for thread in part.threads]
    mean = statistics.fmean(threads) if threads else 0.0
    weights = [_sum_known([work.get(str(task)) for task in part.active]) for part in clients if part.active]
    known = [weight for weight in weights if weight is not None]
    weight_mean = sum(known) / len(clients) if known and len(known) == len(weights) else 0.0
    return {
        "rebalance_id": facts.whole.header.rebalance_id,
        "max_min_active": max(threads) - min(threads) if threads else None,
        "cv_active": statistics.pstdev(threads) / mean if mean else None,
        "max_over_mean": max(threads) / mean if mean else None,
        "max_sub_skew": _sub_skew(clients),
        "weighted_max_over_mean": max(known) / weight_mean if weight_mean else None,
    }


def _sub_skew(clients: Sequence[ClientPart]) -> int | None:
    """Return the largest difference of two clients' active tasks in any sub-topology. 0 and 1 are perfect."""
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for part in clients:
        for task in part.active:
            of_sub = counts.setdefault((task.name, task.subtopology), {})
            of_sub[part.client] = of_sub.get(part.client, 0) + 1
    if not counts:
        return None
    return max(
        max(of_sub.values()) - (min(of_sub.values()) if len(of_sub) == len(clients) else 0)
        for of_sub in counts.values()
    )


def _sum_known(weights: Sequence[float | None]) -> float | None:
    known = [weight for weight in weights if weight is not None]
    return sum(known) if known and len(known) == len(weights) else None


# -- spread ------------------------------------------------------------------------------------------------------------


def spread(facts: Facts) -> Iterator[Row]:
    """Yield the number of values of each tag over which the copies of a task are spread.

    Warm-ups do not count, and a task with one copy has no row. The rack counts as a tag.
    """
    values: dict[str, dict[str, str]] = {}
    replicas: dict[TaskId, list[str]] = {}
    for part in facts.whole.clients:
        tags = dict(part.tags) | ({_RACK: part.rack} if part.rack else {})
        for tag, value in tags.items():
            values.setdefault(tag, {})[part.client] = value
        for task in (*part.active, *part.standby):
            replicas.setdefault(task, []).append(part.client)
    for task in sorted(replicas):
        clients = replicas[task]
        if len(clients) < 2:
            continue
        for tag in sorted(values):
            of_tag = values[tag]
            found = sorted({of_tag[client] for client in clients if client in of_tag})
            ideal = min(len(clients), len(set(of_tag.values())))
            yield {
                "rebalance_id": facts.whole.header.rebalance_id,
                "task": str(task),
                "tag": tag,
                "replicas": len(clients),
                "distinct": len(found),
                "ideal": ideal,
                "violation": len(found) < ideal,
                "values": found,
            }
