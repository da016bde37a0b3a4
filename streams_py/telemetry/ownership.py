"""The owners of tasks after a rebalance, with which the next rebalance is compared.

A task that is withheld from its new client stays with its old client for this generation. So the holder of a task is
the client whose thread may run it. The holder of a withheld task is its previous client, and the new client is its
*target*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streams_protocol.types import TaskId
from streams_py.assignment.problem import reported_lag
from streams_py.events.model import ClientPart
from streams_py.events.parts import WholeRebalance
from streams_py.events.taskset import format_task_set, parse_task_set


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owners of tasks.

    ``holders`` has the client of each active task. ``standbys`` and ``warmups`` have the copies of each client.
    """

    rebalance_id: str
    holders: Mapping[TaskId, str] = field(default_factory=dict)
    standbys: Mapping[str, frozenset[TaskId]] = field(default_factory=dict)
    warmups: Mapping[str, frozenset[TaskId]] = field(default_factory=dict)
    racks: Mapping[str, str | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the rebalance and its owners, for a checkpoint."""
        by_client: dict[str, list[TaskId]] = {}
        for task, client in self.holders.items():
            by_client.setdefault(client, []).append(task)
        return {
            "id": self.rebalance_id,
            "active": _texts(by_client),
            "standby": _texts(self.standbys),
            "warmup": _texts(self.warmups),
            "racks": dict(sorted(self.racks.items())),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ownership:
        """Read the value of :meth:`to_json`."""
        holders = {task: client for client, text in value["active"].items() for task in parse_task_set(text)}
        return cls(
            value["id"],
            holders,
            {client: frozenset(parse_task_set(text)) for client, text in value["standby"].items()},
            {client: frozenset(parse_task_set(text)) for client, text in value["warmup"].items()},
            value["racks"],
        )


def _texts(of: Mapping[str, Any]) -> dict[str, str]:
    return {client: format_task_set(of[client]) for client in sorted(of) if of[client]}


def ownership_of(whole: WholeRebalance) -> Ownership:
    """Return the owners after a successful rebalance is carried out."""
    before = {task: part.client for part in whole.clients for task in part.prev_active}
    holders: dict[TaskId, str] = {}
    for part in whole.clients:
        for thread in part.threads:
            holders |= dict.fromkeys(thread.active, part.client)
    for part in whole.clients:
        for thread in part.threads:
            holders |= {task: before[task] for task in thread.withheld if task in before and task not in holders}
    return Ownership(
        whole.header.rebalance_id,
        holders,
        {part.client: frozenset(part.standby) for part in whole.clients},
        {part.client: frozenset(part.warmup) for part in whole.clients},
        {part.client: part.rack for part in whole.clients},
    )


def lag_of(part: ClientPart | None, sums: Mapping[TaskId, int], task: TaskId, end: int | None) -> int | None:
    """Return the lag of a client in a task, in records.

    Args:
        part: the client's part of the rebalance; None if it was not a member.
        sums: the offset sums that the client reported.
        task: the task.
        end: the sum of end offsets; None without a changelog, -3 if it is unknown.

    Returns:
        -2 if the task runs on the client. None if the lag is unknown, or the task has no changelog.
    """
    if end is None:
        return None
    return reported_lag(sums.get(task, 0) if part is not None else 0, end)
