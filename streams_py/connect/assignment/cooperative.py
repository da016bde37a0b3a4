"""One round of an incremental group (KIP-415).

Its result is the jobs that each worker starts and stops, and the time of the next round.

The steps are those of Kafka's ``IncrementalCooperativeAssignor``. Static placement (KIP-987) comes after the mandatory
revocations and before balancing. A revoked job is placed in the next round, which its worker causes by rejoining.
Connectors and tasks are balanced separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from streams_py.connect.assignment.delay import LostJobs, backoff_ms
from streams_py.connect.assignment.jobs import NOTHING, Jobs, union
from streams_py.connect.assignment.static import place_static_jobs


class _Ordered(Protocol):
    def __lt__(self, other: Self, /) -> bool: ...
    def __hash__(self) -> int: ...


J = TypeVar("J", bound=_Ordered)


class KindLoad(Generic[J]):
    """The jobs of one kind, by member. Members are processed in ascending order."""

    def __init__(self, held: Mapping[str, Set[J]]) -> None:
        self.held: dict[str, set[J]] = {member: set(held[member]) for member in sorted(held)}

    def spread(self, jobs: Iterable[J]) -> None:
        """Give each job to a member with the fewest jobs. The order of ``jobs`` matters."""
        items = list(jobs)
        order = sorted(self.held, key=lambda member: (len(self.held[member]), member))
        if not order:
            return
        counts = [len(self.held[member]) for member in order]
        level, up_to, position = counts[0], 0, 0
        while position < len(items):
            while up_to < len(order) and counts[up_to] <= level:
                up_to += 1
            for member in order[:up_to]:
                if position == len(items):
                    return
                self.held[member].add(items[position])
                position += 1
            level += 1

    def excess(self, total: int) -> dict[str, list[J]]:
        """Return the jobs above each member's fair share of ``total`` jobs.

        ``total`` includes jobs that do not run.
        """
        if not self.held:
            return {}
        low, extra = divmod(total, len(self.held))
        counts = [len(jobs) for jobs in self.held.values()]
        if counts.count(low + 1) == extra and counts.count(low) == len(counts) - extra:
            return {}
        surplus: dict[str, list[J]] = {}
        for member, jobs in self.held.items():
            count, cap = len(jobs), low
            if count <= low:
                continue
            if extra:
                extra -= 1
                cap = low + 1
            if count > cap:
                surplus[member] = sorted(jobs)[: count - cap]
        return surplus


@dataclass(frozen=True, slots=True)
class Member:
    """The jobs that a member reports as its own, and those that it lists.

    ``listed`` is None for a worker without static lists. Empty lists are different: they allow no job.
    """

    reported: Jobs = NOTHING
    listed: Jobs | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """The result, by member id.

    ``owned`` are the jobs of a member after it has stopped ``revoked`` and started ``new``. ``unassignable`` are
    configured jobs that no present member may run.
    """

    new: Mapping[str, Jobs]
    revoked: Mapping[str, Jobs]
    owned: Mapping[str, Jobs]
    delay_ms: int
    unassignable: Jobs = NOTHING


class CooperativeAssignor:
    """Assigns jobs, and remembers earlier rounds that this process led.

    One object exists for the life of a worker.

    ``max_delay_ms`` is ``scheduled.rebalance.max.delay.ms``. ``clock_ms`` returns milliseconds above 0.
    """

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int]) -> None:
        self._max_delay_ms = max_delay_ms
        self.lost_jobs = LostJobs(max_delay_ms, clock_ms)
        self._previous = NOTHING
        self._previous_revocation = NOTHING
        self._previous_generation = -1
        self._previous_members: frozenset[str] = frozenset()
        self._revoked_in_previous = False
        self._successive = 0

    def assign(
        self,
        configured: Jobs,
        members: Mapping[str, Member],
        *,
        last_completed_generation: int,
        generation: int,
        static: bool = False,
    ) -> Round:
        """Compute one round.

        Args:
            configured: All configured jobs.
            members: The members that joined.
            last_completed_generation: The leader's last completed generation, -1 before its first. If this object did
                not decide that generation, its memory is outdated.
            generation: The generation of this round.
            static: Whether every member understands lists, so that they apply.
        """
        if self._previous_generation != last_completed_generation:
            self._previous = NOTHING
        active = union(member.reported for member in members.values())
        if self._previous_revocation:
            if self._previous_revocation & active:
                self._previous = active  # the revocation did not take effect
            self._previous_revocation = NOTHING
        known = self._previous | active
        deleted = known - configured
        lost = self._previous - active - deleted
        created = configured - self._previous - active
        unwanted = deleted | _duplicated(members)
        reported = {name: members[name].reported for name in sorted(members)}
        revoked = {name: jobs & unwanted for name, jobs in reported.items()}
        load = {name: jobs - revoked[name] for name, jobs in reported.items()}

        free, to_place, waiting, wildcard = configured, created, lost, list(load)
        if static and any(member.listed is not None for member in members.values()):
            listed = {name: members[name].listed for name in load}
            placement = place_static_jobs(configured, active, load, listed)
            for name in load:
                revoked[name] |= placement.revoked[name]
                load[name] = load[name] - placement.revoked[name] | placement.placed.get(name, NOTHING)
            free -= placement.static_jobs
            to_place -= placement.static_jobs
            waiting -= placement.static_jobs
            wildcard = [name for name in load if listed[name] is None]

        released, returned, is_over = self.lost_jobs.handle(
            waiting,
            {name: load[name] for name in wildcard},
            members=members,
            previous_members=self._previous_members,
            revoked_before=self._revoked_in_previous,
        )
        if is_over:
            self._revoked_in_previous = False
        for name, jobs in returned.items():
            load[name] |= jobs
        for name, jobs in self._balance(free, {name: load[name] for name in wildcard}).items():
            revoked[name] |= jobs
            load[name] -= jobs
        load |= _spread({name: load[name] for name in wildcard}, to_place, released)

        self._previous = union(load.values()) - union(revoked.values()) | lost
        self._previous_revocation = union(revoked.values())
        self._previous_generation = generation
        self._previous_members = frozenset(members)
        return Round(
            new={name: load[name] - (reported[name] - deleted) for name in load},
            revoked=revoked,
            owned={name: load[name] - revoked[name] for name in load},
            delay_ms=self.lost_jobs.delay_ms,
            unassignable=NOTHING if wildcard else free,
        )

    def _balance(self, configured: Jobs, load: Mapping[str, Jobs]) -> Mapping[str, Jobs]:
        """Return the jobs that overloaded members give up. A second revocation in a row is delayed."""
        if self.lost_jobs.delay_ms:
            self._revoked_in_previous = False
            return {}
        wanted = _excess(configured, load)
        if not wanted:
            if self._revoked_in_previous:
                self._revoked_in_previous = False
                self._successive = 0
            return {}
        if not self._revoked_in_previous:
            self._revoked_in_previous = True
            return wanted
        self._successive += 1
        delay = backoff_ms(self._successive, self._max_delay_ms)
        if delay == 0:
            return wanted
        self.lost_jobs.schedule(delay)
        return {}


def _duplicated(members: Mapping[str, Member]) -> Jobs:
    """Return jobs that two or more members report."""
    connectors = Counter(name for member in members.values() for name in member.reported.connectors)
    tasks = Counter(task for member in members.values() for task in member.reported.tasks)
    return Jobs.of(
        (name for name, count in connectors.items() if count > 1), (task for task, count in tasks.items() if count > 1)
    )


def _excess(configured: Jobs, load: Mapping[str, Jobs]) -> dict[str, Jobs]:
    if not configured:
        return {}
    connectors = KindLoad({name: jobs.connectors for name, jobs in load.items()}).excess(len(configured.connectors))
    tasks = KindLoad({name: jobs.tasks for name, jobs in load.items()}).excess(len(configured.tasks))
    return {name: Jobs.of(connectors.get(name, ()), tasks.get(name, ())) for name in connectors.keys() | tasks.keys()}


def _spread(load: Mapping[str, Jobs], created: Jobs, released: Jobs) -> dict[str, Jobs]:
    connectors = KindLoad({name: jobs.connectors for name, jobs in load.items()})
    tasks = KindLoad({name: jobs.tasks for name, jobs in load.items()})
    connectors.spread([*sorted(created.connectors), *sorted(released.connectors)])
    tasks.spread([*sorted(created.tasks), *sorted(released.tasks)])
    return {name: Jobs.of(connectors.held[name], tasks.held[name]) for name in load}
