"""Static placement: jobs run where their workers list them (KIP-987, steps 1 to 6 of its eight).

A *static* job is one that a member of this round lists; a *static* worker is one that sent a list, even an empty one.
What is on the wrong worker is revoked now and placed in the next round, when nobody reports it any more: that a job
never runs twice costs one round. None of this waits for the delay of lost jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs, union

J = TypeVar("J", str, TaskId)

__all__ = ["StaticPlacement", "place_static_jobs"]


@dataclass(frozen=True, slots=True)
class StaticPlacement:
    """``revoked`` and ``placed`` by member; ``static_jobs`` are the configured ones that somebody present lists."""

    static_jobs: Jobs
    revoked: Mapping[str, Jobs]
    placed: Mapping[str, Jobs]


def place_static_jobs(
    configured: Jobs, active: Jobs, load: Mapping[str, Jobs], listed: Mapping[str, Jobs | None]
) -> StaticPlacement:
    """``load`` is what each member holds and may keep so far; ``listed`` what it lists, None without lists."""
    lists = {member: jobs for member, jobs in sorted(listed.items()) if jobs is not None}
    static_jobs = configured & union(lists.values())
    revoked = {
        member: held - lists[member] if member in lists else held & static_jobs for member, held in sorted(load.items())
    }
    open_jobs = static_jobs - active
    kept = {member: load[member] - revoked[member] for member in lists}
    connectors = _place(
        open_jobs.connectors,
        {member: jobs.connectors for member, jobs in lists.items()},
        {member: len(jobs.connectors) for member, jobs in kept.items()},
    )
    tasks = _place(
        open_jobs.tasks,
        {member: jobs.tasks for member, jobs in lists.items()},
        {member: len(jobs.tasks) for member, jobs in kept.items()},
    )
    placed = {member: Jobs.of(connectors[member], tasks[member]) for member in lists}
    return StaticPlacement(static_jobs, revoked, placed)


def _place(jobs: Iterable[J], lists: Mapping[str, frozenset[J]], counts: dict[str, int]) -> dict[str, list[J]]:
    """Jobs that few list first, each to the lister that holds fewest."""
    listers: dict[J, list[str]] = {job: [] for job in jobs}
    for member, listed in lists.items():
        for job in listed & listers.keys():
            listers[job].append(member)
    placed: dict[str, list[J]] = {member: [] for member in lists}
    for job in sorted(listers, key=lambda job: (len(listers[job]), job)):
        member = min(listers[job], key=lambda member: (counts[member], member))
        placed[member].append(job)
        counts[member] += 1
    return placed
