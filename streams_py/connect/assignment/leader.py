"""The leader's step: decodes the members' data and encodes the assignment of each member.

It runs on the client's network thread, so it uses snapshots in memory and never waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from streams_protocol.connect import (
    CONFIG_MISMATCH,
    NO_ERROR,
    Assignment,
    TaskId,
    WorkerState,
    decode_worker_state,
    encode_assignment,
)
from streams_py.connect.assignment.cooperative import CooperativeAssignor, Member
from streams_py.connect.assignment.eager import assign_eagerly
from streams_py.connect.assignment.jobs import NOTHING, Jobs, configured_jobs
from streams_py.connect.assignment.lists import listed_jobs
from streams_py.connect.assignment.modes import Mode

_log = logging.getLogger("streams_py.connect")

_IDS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """A worker's view of the config topic.

    Attributes:
        offset: The worker has read up to this offset. -1: nothing read yet.
        task_counts: Number of tasks of each connector.
        inconsistent: Connectors whose tasks are being rewritten.
    """

    offset: int = -1
    task_counts: Mapping[str, int] = field(default_factory=dict)
    inconsistent: Set[str] = frozenset()

    @property
    def jobs(self) -> Jobs:
        return configured_jobs(self.task_counts, self.inconsistent)


@dataclass(frozen=True, slots=True)
class LeaderView:
    """A leader's view of its group after a round, by member.

    ``listed`` is None for a member without lists, and while the group's protocol does not support lists.
    """

    owned: Mapping[str, Jobs]
    urls: Mapping[str, str]
    listed: Mapping[str, Jobs | None]
    configured: Jobs = NOTHING
    unassignable: Jobs = NOTHING
    delay_ms: int = 0

    def owner_url(self, job: str | TaskId) -> str | None:
        """Return the URL of the worker that runs a connector (by name) or a task, or None."""
        for member, jobs in self.owned.items():
            if job in (jobs.tasks if isinstance(job, TaskId) else jobs.connectors):
                return self.urls[member]
        return None


class GroupLeader:
    """Leads the rounds of one worker process.

    Changes of the protocol keep the cooperative assignor's memory.
    """

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int]) -> None:
        self._assignor = CooperativeAssignor(max_delay_ms, clock_ms)

    def lead(
        self,
        leader: str,
        mode: Mode,
        metadata: Mapping[str, bytes],
        snapshot: ConfigSnapshot,
        newest: Callable[[], ConfigSnapshot],
        *,
        last_completed_generation: int,
        generation: int,
    ) -> tuple[dict[str, bytes], LeaderView | None]:
        """Decide a round.

        If a member has read the config topic further than this leader, no job is assigned. All members get a failed
        assignment, read the config topic and rejoin.

        Args:
            leader: Member id of this leader.
            mode: The protocol of the group.
            metadata: Data of each member.
            snapshot: The view that this leader joined with.
            newest: Returns the newest view.
            last_completed_generation: This leader's last completed generation.
            generation: The generation of this round.

        Returns:
            The assignment of every member, and the leader's new view. The view is None after a failed assignment.

        Raises:
            SchemaError: A member's data cannot be decoded.
        """
        states = {member: decode_worker_state(data) for member, data in sorted(metadata.items())}
        furthest = max(state.config_offset for state in states.values())
        offset = furthest
        if snapshot.offset < furthest:
            snapshot = newest()
            if snapshot.offset < furthest:
                _log.info(
                    "the group has read the config topic up to offset %d, this leader only up to %d",
                    furthest,
                    snapshot.offset,
                )
                failed = Assignment(leader, states[leader].url, furthest, error=CONFIG_MISMATCH, version=mode.version)
                return {member: encode_assignment(failed, mode.version) for member in states}, None
            offset = snapshot.offset
        owned, revoked, given, delay_ms, unassignable = self._decide(
            mode, states, snapshot, last_completed_generation, generation
        )
        answers = {
            member: encode_assignment(
                Assignment(
                    leader,
                    states[leader].url,
                    offset,
                    error=NO_ERROR,
                    connectors=tuple(given[member].connectors),
                    tasks=tuple(given[member].tasks),
                    revoked_connectors=tuple(revoked[member].connectors),
                    revoked_tasks=tuple(revoked[member].tasks),
                    delay_ms=delay_ms,
                    version=mode.version,
                ),
                mode.version,
            )
            for member in states
        }
        _warn_of_unassignable(unassignable)
        led = LeaderView(
            owned,
            {member: state.url for member, state in states.items()},
            {member: listed_jobs(state.static_connectors, state.static_tasks) for member, state in states.items()},
            snapshot.jobs,
            unassignable,
            delay_ms,
        )
        _log_round(mode, generation, led, revoked, given)
        return answers, led

    def _decide(
        self,
        mode: Mode,
        states: Mapping[str, WorkerState],
        snapshot: ConfigSnapshot,
        last_completed_generation: int,
        generation: int,
    ) -> tuple[Mapping[str, Jobs], Mapping[str, Jobs], Mapping[str, Jobs], int, Jobs]:
        if not mode.is_cooperative:
            dealt = assign_eagerly(snapshot.jobs, states)
            return dealt, dict.fromkeys(states, NOTHING), dealt, 0, NOTHING
        members = {name: member_of(state) for name, state in states.items()}
        done = self._assignor.assign(
            snapshot.jobs,
            members,
            last_completed_generation=last_completed_generation,
            generation=generation,
            static=mode is Mode.STATIC,
        )
        return done.owned, done.revoked, done.new, done.delay_ms, done.unassignable


def member_of(state: WorkerState) -> Member:
    """Return a worker's state in the form for the assignor."""
    held = state.allocation
    reported = NOTHING if held is None else Jobs.of(held.connectors, held.tasks)
    return Member(reported, listed_jobs(state.static_connectors, state.static_tasks))


def _log_round(
    mode: Mode, generation: int, led: LeaderView, revoked: Mapping[str, Jobs], given: Mapping[str, Jobs]
) -> None:
    def count(parts: Mapping[str, Jobs]) -> int:
        return sum(len(jobs.connectors) + len(jobs.tasks) for jobs in parts.values())

    _log.info(
        "generation %d, %s: %d jobs on %d workers, %d to stop, %d to start%s",
        generation,
        mode.name.lower(),
        count(led.owned),
        len(led.urls),
        count(revoked),
        count(given),
        f"; next round in {led.delay_ms} ms" if led.delay_ms else "",
    )
    shared = sorted({url for url in led.urls.values() if list(led.urls.values()).count(url) > 1})
    if shared:
        _log.warning(
            "several workers advertise %s, so requests reach the wrong worker; give each worker its own listeners, "
            "rest.advertised.host.name or rest.advertised.port",
            ", ".join(shared),
        )


def _warn_of_unassignable(jobs: Jobs) -> None:
    if jobs:
        names = [*sorted(jobs.connectors), *map(str, sorted(jobs.tasks))]
        more = f", and {len(names) - _IDS_SHOWN_MAX} more" if len(names) > _IDS_SHOWN_MAX else ""
        _log.warning(
            "%d jobs run on no worker, because no worker lists them and every worker has lists: %s%s; start a worker "
            "that lists them, or one without static.connectors and static.tasks",
            len(names),
            ", ".join(names[:_IDS_SHOWN_MAX]),
            more,
        )
