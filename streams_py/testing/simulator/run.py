"""One schedule from beginning to end: chaos, then quiet, and the two questions.

While faults go on only *safety* is asked for: nothing that is never allowed may happen. Then the faults stop for good.
What is broken stays broken (frozen processes stay frozen, dead ones dead), at least one healthy process remains, and
*liveness* is asked for: every task active within a minute, assignments that come to rest within Kafka's bounds. When
the group is at rest, one more rebalance in which nothing is new must move nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from streams_protocol import MIN_VERSION_OFFSET_SUMS
from streams_protocol.types import TaskId
from streams_py.system.quiet_logs import quiet_logs
from streams_py.testing.checkers import Checker, Outcome, Placed, Published, Violation, all_checkers
from streams_py.testing.simulator.faults.faults import Fault
from streams_py.testing.simulator.models.timeline import START_MS
from streams_py.testing.simulator.process import SimulatedProcess
from streams_py.testing.simulator.schedule import Schedule
from streams_py.testing.simulator.shape import ProcessShape
from streams_py.testing.simulator.thread import SimulatedThread
from streams_py.testing.simulator.world import World

__all__ = ["RunResult", "run_schedule"]

_MAY_CIRCLE = frozenset(
    {"legacy_sticky", "sticky", "custom"}
)  # the last places as "sticky" does, unless it is the user's
_CIRCLE_LOOKED_AT = 24
_CIRCLE_PLACEMENTS_MAX = 8
"""So many different placements at most, in the last so many assignments, are a circle."""
_STEPS_MAX = 20_000
_CHAOS_REBALANCES_MAX = 150
"""Events of either part of a run, and rebalances of its first, at most: a group that needs more is spinning."""


@dataclass(slots=True)
class RunResult:
    """What became of a schedule. ``fingerprint`` is equal for equal runs, in any process."""

    schedule: Schedule
    violations: list[Violation] = field(default_factory=list)
    rebalances: int = 0
    steps: int = 0
    virtual_ms: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    """How often each promise was looked at."""
    fingerprint: str = ""
    circles: bool = False
    """The assignor went round in circles, which a sticky one may."""
    hung: bool = False
    """The user's assignor did not return, and still has not."""
    history: list[str] = field(default_factory=list)
    """What happened, in sentences; only when asked for."""

    @property
    def safe(self) -> bool:
        """Nothing happened that is never allowed."""
        return all(violation.liveness for violation in self.violations)


def run_schedule(schedule: Schedule, *, checkers: Iterable[Checker] | None = None, history: bool = False) -> RunResult:
    """Run it. Deterministic: the same schedule gives the same result, down to every byte that was sent."""
    watching = list(checkers) if checkers is not None else all_checkers()
    run = _Run(World(schedule, watching))
    crash: Violation | None = None
    circles = False
    try:
        with quiet_logs():
            run.chaos()
            ending = run.quiet()
        circles = ending.circles
    except Exception as error:  # whatever leaves the code under test is a finding, not a failure of the simulator
        where = _where(error)
        crash = Violation("I1", run.now_ms, f"crash: {type(error).__name__}: {error} ({where})")
    else:
        for checker in watching:
            checker.ended(ending)
    violations = [violation for checker in watching for violation in checker.violations]
    if crash is not None:
        violations.append(crash)
    world = run.world
    violations.sort(key=lambda violation: (violation.at_ms, violation.promise))
    return RunResult(
        schedule,
        violations,
        world.coordinator.rebalances,
        world.timeline.steps,
        run.now_ms,
        world.happened + world.spells.struck,
        Counter({checker.promise: checker.looked for checker in watching}),
        run.fingerprint,
        circles,
        world.runner.is_stuck,
        [f"{at_ms / 1000:9.3f} s  {_filled(text, args)}" for at_ms, text, args in world.history] if history else [],
    )


def _filled(text: str, args: tuple[object, ...]) -> str:
    return text.format(*(arg() if callable(arg) else arg for arg in args))


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    code = trace.tb_frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}"


class _Run:
    def __init__(self, world: World) -> None:
        self.world = world
        world.on_published = self._on_published
        self._published: list[_Seen] = []
        self._digest = hashlib.sha256()
        self._quiet_from = 0  # index into _published
        self._failures_before = 0
        self._ended_ms = 0
        self._running_after_ms: int | None = None
        self._looked_at = -1

    @property
    def now_ms(self) -> int:
        """Virtual time since the start."""
        return self.world.timeline.now_ms - START_MS

    @property
    def circles(self) -> bool:
        """Whether a sticky assignor has come back to the same placements again and again; see A5."""
        if self.world.shape.assignor not in _MAY_CIRCLE or self.world.shape.assignor_class:
            return False
        placements = [tuple(sorted(seen.placement.items())) for seen in self._published[self._quiet_from :]]
        last = placements[-_CIRCLE_LOOKED_AT:]
        return len(last) == _CIRCLE_LOOKED_AT and 1 < len(set(last)) <= _CIRCLE_PLACEMENTS_MAX

    @property
    def fingerprint(self) -> str:
        """Digest of every assignment that was published."""
        return self._digest.hexdigest()[:16]

    def _on_published(self, seen: Published) -> None:
        for name in sorted(seen.assignments):
            self._digest.update(f"{seen.at_ms} {name}".encode())
            self._digest.update(seen.assignments[name].user_data)
        if seen.failure is None:
            self._published.append(_Seen.of(seen))

    # -- chaos -----------------------------------------------------------------------------------------------------

    def chaos(self) -> None:
        """From the start to some seconds after the last action."""
        world, schedule = self.world, self.world.schedule
        for shape in world.shape.processes:
            world.new_process(threads=shape.threads, newest=shape.newest, upgrade_from=shape.upgrade_from)
        for action in schedule.actions:
            world.timeline.after(action.at_ms, world.apply, action)
        last_ms = max((action.at_ms for action in schedule.actions), default=0)
        self._run_until(START_MS + last_ms + 10_000)

    def _run_until(self, until_ms: int) -> None:
        timeline, coordinator = self.world.timeline, self.world.coordinator
        while timeline.next_ms is not None and timeline.next_ms <= until_ms:
            if timeline.steps > _STEPS_MAX or coordinator.rebalances > _CHAOS_REBALANCES_MAX:
                break
            timeline.step()
        timeline.now_ms = max(timeline.now_ms, until_ms)

    # -- quiet -----------------------------------------------------------------------------------------------------

    def quiet(self) -> Outcome:
        """No more faults; the group has to find its rest."""
        world = self.world
        rng = random.Random(f"end {world.schedule.seed}")
        world.end_faults()
        self._quiet_from = len(self._published)
        self._failures_before = len(world.failures)
        self._ended_ms = world.timeline.now_ms
        stays = self._settle_hostile(rng)
        self._keep_a_healthy_core(rng)
        bound = self._bound()
        before = world.coordinator.rebalances
        steps_max = world.timeline.steps + _STEPS_MAX
        quiet = True
        while world.timeline.step():
            self._look_whether_running()
            if world.coordinator.rebalances - before > bound or world.timeline.steps > steps_max:
                quiet = False
                break
        self._look_whether_running()
        rebalances = world.coordinator.rebalances - before
        ending = self._ending(quiet=quiet, rebalances=rebalances, stays=stays)
        return self._rebalance_for_nothing(ending) if quiet and not stays and not ending.idle else ending

    def _settle_hostile(self, rng: random.Random) -> bool:
        """Hostile members leave; now and then one that sends garbage stays, without starting rebalances itself."""
        world = self.world
        had = any(not member.gone for member in world.hostile)
        for member in world.hostile:
            if not member.gone:
                member.end()
        if had and rng.random() < 0.7:
            world.note("a hostile member stays")
            world.new_hostile(lies=False, steady=True)
            return True
        return False

    def _keep_a_healthy_core(self, rng: random.Random) -> None:
        world = self.world
        for process in world.processes:
            doomed = any(thread.frozen for thread in process.threads) and rng.random() < 0.5
            if doomed:
                process.freeze()  # all of it: a thread that hangs alone would keep its directories from the others
            for thread in process.threads:
                thread.doomed = doomed
                thread.resume()
        if not any(process.healthy_threads for process in world.processes):
            there = [process for process in world.processes if process.alive or process.coming_back]
            self._start(max(there or world.processes, key=lambda process: (process.bounces, process.number)))

    def _start(self, like: SimulatedProcess) -> None:
        shape = ProcessShape(1, like.newest, like.upgrade_from)
        new = SimulatedProcess(
            self.world,
            len(self.world.processes),
            threads=shape.threads,
            newest=shape.newest,
            upgrade_from=shape.upgrade_from,
        )
        new.bounces = like.bounces
        self.world.processes.append(new)
        self.world.note("{} joins: nobody else is healthy", new.name)
        new.start()

    def _bound(self) -> int:
        """Rebalances after which a group that still wants more is taken not to come to rest."""
        shape = self.world.shape
        if shape.assignor == "fallback":
            return 12
        return 40 + 3 * len(self.world.tasks()) * (1 + shape.configs.num_standby_replicas) * self._catch_up_rounds()

    def _catch_up_rounds(self) -> int:
        """Probing intervals that restoring the largest task takes, at most."""
        return 1 + self._catch_up_ms() // self.world.shape.configs.probing_rebalance_interval_ms

    def _catch_up_ms(self) -> int:
        """How long restoring the largest task takes, at most."""
        world = self.world
        largest = max((world.cluster.end_of_task(task) for task in world.tasks() if world.is_stateful(task)), default=0)
        return 1000 * largest // world.shape.restore_records_per_s

    def _look_whether_running(self) -> None:
        if self._running_after_ms is None and self._looked_at != self.world.activity:
            self._looked_at = self.world.activity
            if not self._idle():
                self._running_after_ms = self.world.timeline.now_ms - self._ended_ms

    def _idle(self) -> set[TaskId]:
        """Tasks that nobody healthy has."""
        had = {
            task
            for process in self.world.processes
            for thread in process.healthy_threads
            if self.world.coordinator.is_current(thread.consumer.member_id)
            for task in thread.active
        }
        return self.world.tasks().keys() - had

    def _rebalance_for_nothing(self, ending: Outcome) -> Outcome:
        """One more rebalance without news; what it moved.

        A rebalance before it brings in what nobody was asked about so far: static members that came back with other
        state, and copies that were still behind at the last one.
        """
        if self._published[-1].version < MIN_VERSION_OFFSET_SUMS:
            return ending  # older versions do not tell lags: the assignor cannot know that nothing is new
        self.world.timeline.now_ms += self._catch_up_ms()
        if not self._rebalance_once_more():
            return replace(ending, quiet=False, rebalances=self._bound(), circles=self.circles)
        before = self._placement()
        self.world.nothing_new = True
        self._rebalance_once_more()
        return replace(ending, before=before, after=self._placement())

    def _rebalance_once_more(self) -> bool:
        """The leader asks for a rebalance; whether the group comes to rest after it."""
        world = self.world
        threads = [thread for process in world.processes for thread in process.healthy_threads]
        leader = next((t for t in threads if t.consumer.member_id == world.coordinator.leader), threads[0])
        leader.consumer.request_rejoin()
        bound = world.coordinator.rebalances + self._bound()
        while world.timeline.step():
            if world.coordinator.rebalances > bound:
                return False
        return True

    def _placement(self) -> dict[TaskId, Placed]:
        return {
            task: Placed(process.number, thread.name)
            for process in self.world.processes
            for thread in process.healthy_threads
            for task in thread.active
        }

    def _ending(self, *, quiet: bool, rebalances: int, stays: bool) -> Outcome:
        world = self.world
        since = self._published[self._quiet_from :]
        start = self._published[self._quiet_from - 1 : self._quiet_from] if self._quiet_from else []
        chain = start + since
        changes = [n for n in range(1, len(chain)) if chain[n].members != chain[n - 1].members]
        moves = [n for n in range(1, len(chain)) if chain[n].placement != chain[n - 1].placement]
        versions = [n for n in range(1, len(chain)) if chain[n].version != chain[n - 1].version]
        last_change = max(changes, default=0)
        healthy = [thread for process in world.processes for thread in process.healthy_threads]
        return Outcome(
            at_ms=self.now_ms,
            assignor=world.last.assignor if world.last is not None else world.shape.assignor,
            configs=world.shape.configs,
            stateful=sum(world.is_stateful(task) for task in world.tasks()),
            tasks=len(world.tasks()),
            quiet=quiet,
            rebalances=rebalances,
            running_after_ms=self._running_after_ms,
            last_move_after=max(moves, default=0),
            catch_up_rounds=self._catch_up_rounds(),
            membership_changes=len(changes),
            final_version=chain[-1].version if chain else None,
            highest_common_version=min((_newest(thread) for thread in healthy), default=0),
            version_after=max(0, max(versions, default=0) - last_change),
            idle=tuple(sorted(self._idle())),
            failures=tuple(
                text
                for at_ms, text in world.failures[self._failures_before :]
                if at_ms > self._ended_ms + world.shape.max_poll_interval_ms  # earlier ones may have been on their way
            ),
            hostile=stays,
            retry_pending=(
                world.last is not None
                and world.last.assignor_error is not None
                and chain[-1].version < MIN_VERSION_OFFSET_SUMS  # KIP-441 brought both
            ),
            own_assignor=bool(world.shape.assignor_class)
            and world.last is not None
            and world.last.assignor == "custom",
            circles=not quiet and self.circles,
        )


def _newest(thread: SimulatedThread) -> int:
    """The newest version that a thread can speak, as its release and ``upgrade.from`` have it."""
    pinned = {"0.10.0": 1, "1.1": 2}.get(thread.process.upgrade_from or "", 99)
    return min(thread.process.newest, pinned)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the end wants to know about one published assignment."""

    members: frozenset[str]
    placement: dict[TaskId, str]
    version: int

    @classmethod
    def of(cls, seen: Published) -> _Seen:
        normal = {name: info for name, info in seen.infos.items() if info is not None and not info.error_code}
        return cls(
            frozenset(seen.members),
            {task: name for name, info in sorted(normal.items()) for task in info.active_tasks},
            min((seen.written[name] for name in normal), default=0),
        )
