"""Runs one schedule: first with faults, then without, and checks safety and liveness.

While faults are injected only *safety* is checked: some events must never happen. Then the faults stop. What is broken
stays broken (some frozen processes stay frozen, dead ones stay dead), but at least one healthy process remains. From
then on *liveness* is checked too: every task must be active within a minute, and assignments must stop changing within
Kafka's bounds. When the group is stable, one more rebalance without any change must move no task.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from streams_protocol import EARLIEST_PROBEABLE_VERSION, MIN_VERSION_OFFSET_SUMS
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

# "custom" wraps "sticky" unless the user gave a class.
_MAY_OSCILLATE = frozenset({"legacy_sticky", "sticky", "custom"})
_OSCILLATION_WINDOW = 24
"""Number of consecutive assignments that are searched for an oscillation."""
_OSCILLATION_PLACEMENTS_MAX = 8
"""Maximum number of different placements in that window for an oscillation."""
_OSCILLATION_MOVES_MIN = 12
"""Minimum number of assignments in that window that move tasks, for an oscillation."""
_STEPS_MAX = 20_000
"""Maximum number of events in each part of a run; a group that needs more does not stop rebalancing."""
_CHAOS_REBALANCES_MAX = 150
"""Maximum number of rebalances while faults are injected."""


@dataclass(slots=True)
class RunResult:
    """The result of a schedule. ``fingerprint`` is equal for equal runs, in any process."""

    schedule: Schedule
    """The schedule that was run."""
    violations: list[Violation] = field(default_factory=list)
    """The broken promises."""
    rebalances: int = 0
    """Number of rebalances."""
    steps: int = 0
    """Number of simulated events."""
    virtual_ms: int = 0
    """Virtual time of the run, in ms."""
    faults: Counter[Fault] = field(default_factory=Counter)
    """Number of faults of each kind."""
    checked: Counter[str] = field(default_factory=Counter)
    """Number of checks of each promise."""
    fingerprint: str = ""
    """Digest of everything that happened."""
    oscillates: bool = False
    """Whether the assignor oscillated after the faults had stopped, as a sticky one may."""
    hung: bool = False
    """Whether the user's assignor has still not returned."""
    history: list[str] = field(default_factory=list)
    """Events of the run as text, if they were requested."""

    @property
    def safe(self) -> bool:
        """Whether safety was not violated."""
        return all(violation.liveness for violation in self.violations)


def run_schedule(schedule: Schedule, *, checkers: Iterable[Checker] | None = None, history: bool = False) -> RunResult:
    """Run a schedule. Deterministic: the same schedule gives the same result, down to every byte that was sent.

    Args:
        schedule: The schedule.
        checkers: Checkers to run. Default: all.
        history: Whether to return the events of the run as text.
    """
    watching = list(checkers) if checkers is not None else all_checkers()
    run = _Run(World(schedule, watching))
    crash: Violation | None = None
    oscillates = False
    try:
        with quiet_logs():
            run.chaos()
            ending = run.quiet()
        oscillates = ending.oscillates or ending.oscillated_until > 0
    except Exception as error:  # an exception from the code under test is a finding, not an error of the simulator
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
        world.executed + world.ongoing_faults.occurred,
        Counter({checker.promise: checker.checks for checker in watching}),
        run.fingerprint,
        oscillates,
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
        self._checked_activity = -1

    @property
    def now_ms(self) -> int:
        """Virtual time since the start, in ms."""
        return self.world.timeline.now_ms - START_MS

    @property
    def oscillates(self) -> bool:
        """Whether a sticky assignor keeps repeating the same placements; see A5."""
        return self._oscillates_in(self._published[self._quiet_from :][-_OSCILLATION_WINDOW:])

    def _oscillates_in(self, window: Sequence[_Seen]) -> bool:
        if self.world.shape.assignor not in _MAY_OSCILLATE or self.world.shape.assignor_class:
            return False
        placements = [tuple(sorted(seen.placement.items())) for seen in window]
        moves = sum(before != after for before, after in pairwise(placements))
        return (
            len(placements) == _OSCILLATION_WINDOW
            and len(set(placements)) <= _OSCILLATION_PLACEMENTS_MAX
            and moves >= _OSCILLATION_MOVES_MIN
        )

    @property
    def fingerprint(self) -> str:
        """Digest of all published assignments."""
        return self._digest.hexdigest()[:16]

    def _on_published(self, seen: Published) -> None:
        for name in sorted(seen.assignments):
            self._digest.update(f"{seen.at_ms} {name}".encode())
            self._digest.update(seen.assignments[name].user_data)
        if seen.failure is None:
            self._published.append(_Seen.of(seen))

    # -- chaos -----------------------------------------------------------------------------------------------------

    def chaos(self) -> None:
        """Run from the start to 10 s after the last action."""
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
                return  # planned events are left: time must not pass them
            timeline.step()
        timeline.now_ms = max(timeline.now_ms, until_ms)

    # -- quiet -----------------------------------------------------------------------------------------------------

    def quiet(self) -> Outcome:
        """Stop all faults and run until the group is stable or a limit is reached."""
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
            self._note_if_running()
            if world.coordinator.rebalances - before > bound or world.timeline.steps > steps_max:
                quiet = False
                break
        self._note_if_running()
        if quiet and self._upgrade_waits_for_a_rebalance():
            quiet = self._rebalance_once_more()
        rebalances = world.coordinator.rebalances - before
        ending = self._ending(quiet=quiet, rebalances=rebalances, stays=stays)
        return self._rebalance_without_change(ending) if quiet and not stays and not ending.unassigned else ending

    def _settle_hostile(self, rng: random.Random) -> bool:
        """Remove hostile members; in some runs add one that sends garbage and starts no rebalances itself."""
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
                process.freeze()  # all threads: one hanging thread would keep its task directories locked
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
        self.world.note("{} joins: no other process is healthy", new.name)
        new.start()

    def _bound(self) -> int:
        """Return the number of rebalances after which the group is considered not to stop rebalancing."""
        shape = self.world.shape
        if shape.assignor == "fallback":
            return 12
        return 40 + 3 * len(self.world.tasks()) * (1 + shape.configs.num_standby_replicas) * self._catch_up_rounds()

    def _catch_up_rounds(self) -> int:
        """Return the maximum number of probing intervals that restoring the largest task takes."""
        return 1 + self._catch_up_ms() // self.world.shape.configs.probing_rebalance_interval_ms

    def _catch_up_ms(self) -> int:
        """Return the maximum time that restoring the largest task takes, in ms."""
        world = self.world
        largest = max((world.cluster.end_of_task(task) for task in world.tasks() if world.is_stateful(task)), default=0)
        return 1000 * largest // world.shape.restore_records_per_s

    def _note_if_running(self) -> None:
        if self._running_after_ms is None and self._checked_activity != self.world.activity:
            self._checked_activity = self.world.activity
            if not self._unassigned_tasks():
                self._running_after_ms = self.world.timeline.now_ms - self._ended_ms

    def _unassigned_tasks(self) -> set[TaskId]:
        """Return the tasks that are not active on a healthy member."""
        had = {
            task
            for process in self.world.processes
            for thread in process.healthy_threads
            if self.world.coordinator.is_current(thread.consumer.member_id)
            for task in thread.active
        }
        return self.world.tasks().keys() - had

    def _upgrade_waits_for_a_rebalance(self) -> bool:
        """Return whether static members returned with a newer version, and the group cannot notice it; see A8."""
        last = self._published[-1] if self._published else None
        return (
            self.world.shape.static_members
            and last is not None
            and 0 < last.version < EARLIEST_PROBEABLE_VERSION
            and last.version < self._highest_common_version()
            and last.members != self.world.coordinator.members.keys()
            and not self._unassigned_tasks()
        )

    def _highest_common_version(self) -> int:
        """Return the highest version that all healthy members support."""
        healthy = (thread for process in self.world.processes for thread in process.healthy_threads)
        return min(map(_newest, healthy), default=0)

    def _rebalance_without_change(self, ending: Outcome) -> Outcome:
        """Run one more rebalance without any change, and record the placements before and after it.

        Another rebalance runs before it, because not all changes are in the last assignment: static members may have
        returned with other state, and copies may have caught up since.
        """
        if self._published[-1].version < MIN_VERSION_OFFSET_SUMS:
            return ending  # older versions do not send lags, so the assignor cannot detect that nothing changed
        self.world.timeline.now_ms += self._catch_up_ms()
        if not self._rebalance_once_more():
            return replace(ending, quiet=False, rebalances=self._bound(), oscillates=self.oscillates)
        before = self._placement()
        self.world.nothing_new = True
        self._rebalance_once_more()
        return replace(ending, before=before, after=self._placement())

    def _rebalance_once_more(self) -> bool:
        """Let the leader request a rebalance; return whether the group becomes stable after it."""
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
        oscillations = [
            n
            for n in range(len(start) + _OSCILLATION_WINDOW - 1, len(chain))
            if self._oscillates_in(chain[n + 1 - _OSCILLATION_WINDOW : n + 1])
        ]
        changes = [n for n in range(1, len(chain)) if chain[n].members != chain[n - 1].members]
        moves = [n for n in range(1, len(chain)) if chain[n].placement != chain[n - 1].placement]
        versions = [n for n in range(1, len(chain)) if chain[n].version != chain[n - 1].version]
        last_change = max(changes, default=0)
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
            highest_common_version=self._highest_common_version(),
            version_after=max(0, max(versions, default=0) - last_change),
            unassigned=tuple(sorted(self._unassigned_tasks())),
            failures=tuple(
                text
                for at_ms, text in world.failures[self._failures_before :]
                if at_ms > self._ended_ms + world.shape.max_poll_interval_ms  # faults may have caused earlier ones
            ),
            hostile=stays,
            retry_pending=(
                world.last is not None
                and world.last.assignor_error is not None
                and chain[-1].version < MIN_VERSION_OFFSET_SUMS  # KIP-441 added the retry time in the same version
            ),
            user_assignor=bool(world.shape.assignor_class)
            and world.last is not None
            and world.last.assignor == "custom",
            oscillates=not quiet and self.oscillates,
            oscillated_until=max(oscillations, default=0),
        )


def _newest(thread: SimulatedThread) -> int:
    """Return the newest version that a thread supports, by its release and ``upgrade.from``."""
    pinned = {"0.10.0": 1, "1.1": 2}.get(thread.process.upgrade_from or "", 99)
    return min(thread.process.newest, pinned)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The facts about one published assignment that the outcome is computed from."""

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
