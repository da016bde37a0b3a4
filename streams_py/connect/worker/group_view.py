"""The whole group as seen by its leader: the jobs of each worker, and unassigned jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs, union
from streams_py.connect.assignment.leader import LeaderView
from streams_py.connect.assignment.modes import Mode


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker.

    ``listed`` is None without lists, and while the group's protocol does not support lists.
    """

    worker_id: str
    is_leader: bool
    owned: Jobs
    listed: Jobs | None


@dataclass(frozen=True, slots=True)
class Unassigned:
    """A job without a worker. ``could_run`` are the ids of workers that may run it."""

    could_run: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """The group after the newest round. ``delay_ms`` was the delay until the next round, or 0."""

    protocol: str
    delay_ms: int
    workers: tuple[WorkerView, ...]
    unassigned: Mapping[str | TaskId, Unassigned]


def group_view(led: LeaderView, leader: str, mode: Mode) -> GroupView:
    """Return the view. ``leader`` is the leader's member id."""
    ids = {member: urlsplit(url).netloc for member, url in led.urls.items()}
    views = [
        WorkerView(ids[member], member == leader, owned, led.listed[member]) for member, owned in led.owned.items()
    ]
    nowhere = led.configured - union(led.owned.values())
    jobs: list[str | TaskId] = [*sorted(nowhere.connectors), *sorted(nowhere.tasks)]
    return GroupView(
        mode.name.lower(),
        led.delay_ms,
        tuple(sorted(views, key=lambda view: view.worker_id)),
        {job: _explained(job, led, ids) for job in jobs},
    )


def _explained(job: str | TaskId, led: LeaderView, ids: Mapping[str, str]) -> Unassigned:
    def lists(jobs: Jobs) -> bool:
        return job in (jobs.tasks if isinstance(job, TaskId) else jobs.connectors)

    listers = [ids[member] for member, jobs in led.listed.items() if jobs is not None and lists(jobs)]
    free = [ids[member] for member, jobs in led.listed.items() if jobs is None]
    could_run = tuple(sorted(listers or free))
    if not could_run:
        key = "static.tasks" if isinstance(job, TaskId) else "static.connectors"
        reason = (
            f"every worker has lists, and no list contains it; add it to {key} of a worker, or start one without lists"
        )
    elif led.delay_ms and not listers:
        reason = f"reserved for a worker that left; another worker gets it {led.delay_ms / 1000:g} s after that"
    else:
        reason = "its old worker is stopping it; the next round assigns it"
    return Unassigned(could_run, reason)
