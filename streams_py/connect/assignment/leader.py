"""The leader's step: from what the members sent to what each of them gets, in bytes.

Called on the client's network thread, so it works on snapshots in memory and never waits.
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

__all__ = ["ConfigSnapshot", "GroupLeader", "Led"]

_log = logging.getLogger("streams_py.connect")

_IDS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """What a worker knows of the config topic: up to ``offset`` (-1: nothing yet), how many tasks each connector has,
    and which connectors' tasks are being rewritten (``inconsistent``)."""

    offset: int = -1
    task_counts: Mapping[str, int] = field(default_factory=dict)
    inconsistent: Set[str] = frozenset()

    @property
    def jobs(self) -> Jobs:
        return configured_jobs(self.task_counts, self.inconsistent)


@dataclass(frozen=True, slots=True)
class Led:
    """What a leader knows of its group after a round, by member: what it owns, its URL, and what it lists (None
    without lists, and while the group's protocol knows none)."""

    owned: Mapping[str, Jobs]
    urls: Mapping[str, str]
    listed: Mapping[str, Jobs | None]
    configured: Jobs = NOTHING
    unassignable: Jobs = NOTHING
    delay_ms: int = 0

    def owner_url(self, job: str | TaskId) -> str | None:
        """URL of the worker that has a connector (by name) or a task; None when nobody has it."""
        for member, jobs in self.owned.items():
            if job in (jobs.tasks if isinstance(job, TaskId) else jobs.connectors):
                return self.urls[member]
        return None


class GroupLeader:
    """Leads rounds of one worker process. The cooperative assignor's memory outlives changes of the protocol."""

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
    ) -> tuple[dict[str, bytes], Led | None]:
        """(assignment of every member, what the leader knows now).

        ``snapshot`` is the one that this leader joined with; ``newest`` gives a newer one if there is. Nothing is
        assigned (and None is known) when a member has read further than that: everybody gets a failed assignment, reads
        the config topic and comes back. Raises SchemaError for a member's bytes that cannot be read.
        """
        states = {member: decode_worker_state(data) for member, data in sorted(metadata.items())}
        furthest = max(state.config_offset for state in states.values())
        offset = furthest
        if snapshot.offset < furthest:
            snapshot = newest()
            if snapshot.offset < furthest:
                _log.info("the group has read the config topic to %d, this leader to %d", furthest, snapshot.offset)
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
        led = Led(
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
    """What the assignor sees of a worker."""
    held = state.allocation
    reported = NOTHING if held is None else Jobs.of(held.connectors, held.tasks)
    return Member(reported, listed_jobs(state.static_connectors, state.static_tasks))


def _log_round(mode: Mode, generation: int, led: Led, revoked: Mapping[str, Jobs], given: Mapping[str, Jobs]) -> None:
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
        f"; the next round is in {led.delay_ms} ms" if led.delay_ms else "",
    )
    shared = sorted({url for url in led.urls.values() if list(led.urls.values()).count(url) > 1})
    if shared:
        _log.warning(
            "more than one worker says that it is reached at %s, so requests go astray; give each its own listeners, "
            "rest.advertised.host.name or rest.advertised.port",
            ", ".join(shared),
        )


def _warn_of_unassignable(jobs: Jobs) -> None:
    if jobs:
        names = [*sorted(jobs.connectors), *map(str, sorted(jobs.tasks))]
        more = f", and {len(names) - _IDS_SHOWN_MAX} more" if len(names) > _IDS_SHOWN_MAX else ""
        _log.warning(
            "%d jobs run nowhere, because no worker lists them and every worker has lists: %s%s; start a worker that "
            "lists them, or one without static.connectors and static.tasks",
            len(names),
            ", ".join(names[:_IDS_SHOWN_MAX]),
            more,
        )
