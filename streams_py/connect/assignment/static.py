"""Static placement: jobs run on the workers that list them (steps 1 to 6 of KIP-987).

A *static* job is a job that a member of this round lists. A *static* worker is a worker with lists, even empty ones. A
job on the wrong worker is revoked now, and placed in the next round, when no member reports it. This extra round
ensures that a job never runs twice. Static jobs do not wait for the delay of lost jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs, union

J = TypeVar("J", str, TaskId)


@dataclass(frozen=True, slots=True)
class StaticPlacement:
    """The result.

    ``revoked`` and ``placed`` are by member. ``static_jobs`` are configured jobs that a member lists.
    """

    static_jobs: Jobs
    revoked: Mapping[str, Jobs]
    placed: Mapping[str, Jobs]


def place_static_jobs(
    configured: Jobs, active: Jobs, load: Mapping[str, Jobs], listed: Mapping[str, Jobs | None]
) -> StaticPlacement:
    """Place static jobs.

    Args:
        configured: All configured jobs.
        active: Jobs that a member reports.
        load: Jobs that each member owns and may keep so far.
        listed: Jobs that each member lists, None without lists.
    """
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
    """Place each job on the listing worker with the fewest jobs. Starts with rarely listed jobs."""
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
