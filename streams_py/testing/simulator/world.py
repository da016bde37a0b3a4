"""Everything at once: processes, the coordinator, the cluster, the faults, and what the checkers are told.

A world is built from a schedule and driven by :mod:`streams_py.testing.simulator.run`. All chance comes from one
generator, consumed in the order of virtual time, so a schedule takes the same course in every process.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from streams_protocol import LATEST_SUPPORTED_VERSION, SubscriptionInfo
from streams_protocol.types import TaskId, TopicPartition
from streams_py.member.group_model.ownership import Partitions
from streams_py.ports import MemberAssignment
from streams_py.runtime.group.classic.assignor_runner import AssignorRunner
from streams_py.testing.checkers import Checker, Committed, Gained, Published, Restored
from streams_py.testing.simulator.assignors import SimulatedAssignor
from streams_py.testing.simulator.faults.actions import happen
from streams_py.testing.simulator.faults.faults import Fault, Spells
from streams_py.testing.simulator.faults.hostile import HostileMember
from streams_py.testing.simulator.leader_executor import Step
from streams_py.testing.simulator.models.cluster import SimulatedCluster
from streams_py.testing.simulator.models.coordinator import GroupCoordinator, Reply
from streams_py.testing.simulator.models.timeline import START_MS, Timeline
from streams_py.testing.simulator.mutants import ACCEPT_EVERY_COMMIT, LATE_TO_REJOIN, MUTANTS, When, plant
from streams_py.testing.simulator.process import SimulatedProcess
from streams_py.testing.simulator.releases import header, sent_assignment, understood
from streams_py.testing.simulator.schedule import Action, Schedule
from streams_py.testing.simulator.thread import SimulatedThread

__all__ = ["World"]

_THREADS_MAX = 12
_PROCESSES_MAX = 8
_LATE_MS = 150_000
_ASSIGNOR_TIMEOUT_MS = 10_000  # of real time: what is virtual here cannot interrupt user code
_INTERNAL = ("high_availability", "legacy_sticky", "fallback")


class World:
    """A group and its surroundings."""

    def __init__(self, schedule: Schedule, checkers: list[Checker]) -> None:
        self.schedule = schedule
        self.shape = schedule.shape
        self.mutant = schedule.mutant
        self.rng = random.Random(f"world {schedule.seed}")
        self.timeline = Timeline()
        self.spells = Spells(self.rng)
        self.cluster = SimulatedCluster(self.timeline, self.rng, self.shape, self.spells)
        self.coordinator = GroupCoordinator(self.timeline)
        self.coordinator.check_generations = self.mutant != ACCEPT_EVERY_COMMIT
        self.checkers = checkers
        self._see_published = [c for c in checkers if type(c).published is not Checker.published]
        self._see_gained = [c for c in checkers if type(c).gained is not Checker.gained]
        self._see_restored = [c for c in checkers if type(c).restored is not Checker.restored]
        self._see_committed = [c for c in checkers if type(c).committed is not Checker.committed]
        self.processes: list[SimulatedProcess] = []
        self.hostile: list[HostileMember] = []
        self.hostile_ids: set[str] = set()
        self.happened: Counter[Fault] = Counter()
        self.failures: list[tuple[int, str]] = []
        self.last: Published | None = None
        self.history: list[tuple[int, str, tuple[object, ...]]] = []
        self.assignor_mood = "good"
        self.runner = AssignorRunner(timeout_ms=_ASSIGNOR_TIMEOUT_MS)
        self._armed: list[Action] = []
        self._holders: dict[TopicPartition, set[SimulatedThread]] = {}
        self._grants = 0
        self._tasks: dict[tuple[tuple[str, int], ...], dict[TaskId, tuple[TopicPartition, ...]]] = {}
        self.nothing_new = False
        """True in the last rebalance, for which nothing has changed."""
        self.activity = 0
        """Counts changes of who has which task."""
        self._hostile_born = 0
        self.on_published: Callable[[Published], None] = lambda seen: None

    @property
    def internal_assignor(self) -> str | None:
        """What ``internal.task.assignor.class`` says."""
        name = self.shape.assignor
        return name if name in _INTERNAL else None

    def assignor_of(self, newest: int) -> str:
        """Who decides when a leader of that release leads: older ones do not know ``task.assignor.class`` (KIP-924)."""
        name = self.shape.assignor
        return name if newest >= LATEST_SUPPORTED_VERSION or name in _INTERNAL else "high_availability"

    def task_assignor_of(self, newest: int) -> object:
        """What ``task.assignor.class`` says to a leader of that release."""
        name = self.assignor_of(newest)
        if name == "custom":
            own = self.shape.assignor_class  # asked itself, so that its name and its errors are what users see
            return own if own and self.assignor_mood == "good" else SimulatedAssignor
        return name if name in ("sticky", "static") else None

    # -- what is there ---------------------------------------------------------------------------------------

    @property
    def threads(self) -> list[SimulatedThread]:
        """All threads that live."""
        return [thread for process in self.processes for thread in process.threads]

    def tasks(self, seen: Mapping[str, int] | None = None) -> Mapping[TaskId, tuple[TopicPartition, ...]]:
        """Every task with its input partitions, as the topics are now or as somebody has ``seen`` them before."""
        counts = self.cluster.partitions if seen is None else {**self.cluster.partitions, **seen}
        known = tuple(sorted(counts.items()))
        found = self._tasks.get(known)
        if found is None:
            found = self._tasks[known] = self._tasks_of(counts)
        return found

    def _tasks_of(self, counts: Mapping[str, int]) -> dict[TaskId, tuple[TopicPartition, ...]]:
        found = {}
        for number, sub in sorted(self.shape.metadata.subtopologies.items()):
            sources = sorted(sub.source_topics)
            for p in range(max((counts.get(name, 0) for name in sources), default=0)):
                found[TaskId(number, p)] = tuple(TopicPartition(name, p) for name in sources if p < counts.get(name, 0))
        return found

    def is_stateful(self, task: TaskId) -> bool:
        """Whether the task has a changelog."""
        return self.shape.metadata.subtopologies[task.subtopology].is_logged

    # -- time and network ------------------------------------------------------------------------------------

    def latency_ms(self) -> int:
        """How long a message takes."""
        if self.spells.strikes(Fault.SLOW_NETWORK):
            return self.rng.randrange(100, 4_000)
        return self.rng.randrange(1, 20)

    def heartbeat_delay_ms(self) -> int:
        """Until the next heartbeat of a client."""
        return self.rng.randrange(1, self.shape.heartbeat_interval_ms)

    def send(self, action: Callable[[], None]) -> None:
        """A message on its way."""
        self.timeline.after(self.latency_ms(), action)

    @property
    def rejoin_delay_ms(self) -> int:
        """How long a consumer that wants to rejoin takes to do so."""
        return _LATE_MS if self.mutant == LATE_TO_REJOIN else 1

    def loses_reply(self) -> bool:
        """Whether a reply gets lost."""
        return self.spells.strikes(Fault.REPLIES_LOST)

    def note(self, text: str, *args: object) -> None:
        """A line of the history."""
        self.history.append((self.timeline.now_ms - START_MS, text, args))

    # -- what threads report ---------------------------------------------------------------------------------

    def owned(self, thread: SimulatedThread, before: Partitions, now: Partitions) -> None:
        """The consumer of a thread owns other partitions now."""
        for tp in before - now:
            self._holders[tp].discard(thread)
            thread.grants.pop(tp, None)
        for tp in sorted(now - before):
            holders = self._holders.setdefault(tp, set())
            self._grants += 1
            thread.grants[tp] = self._grants
            is_current = self.coordinator.is_current
            others: tuple[str, ...] = ()
            if holders and is_current(thread.consumer.member_id):  # a zombie may believe what it likes
                others = tuple(sorted(t.name for t in holders if t is not thread and is_current(t.consumer.member_id)))
            holders.add(thread)
            seen = Gained(self.timeline.now_ms - START_MS, tp, thread.name, thread.consumer.generation, others)
            for checker in self._see_gained:
                checker.gained(seen)

    def disown(self, thread: SimulatedThread) -> None:
        """The thread is gone."""
        for tp in thread.consumer.owned:
            self._holders[tp].discard(thread)

    def commit(self, thread: SimulatedThread, partitions: Partitions) -> None:
        """A thread commits."""
        if thread.consumer.commit(partitions) is not Reply.NONE:
            return
        for tp in sorted(partitions):
            seen = Committed(
                self.timeline.now_ms - START_MS, tp, thread.name, thread.consumer.generation, thread.grants.get(tp, 0)
            )
            for checker in self._see_committed:
                checker.committed(seen)

    def restored(self, task: TaskId, thread: object, lacking: int) -> None:
        """An active task of a thread is seen to be restored."""
        assert isinstance(thread, SimulatedThread)
        seen = Restored(self.timeline.now_ms - START_MS, task, thread.name, lacking)
        for checker in self._see_restored:
            checker.restored(seen)

    def thread_failed(self, thread: SimulatedThread, error: Exception) -> None:
        """A thread's error reached its user; the thread is replaced."""
        self.note("{} fails: {}: {}", thread.name, type(error).__name__, error)
        self.failures.append((self.timeline.now_ms, f"{thread.name}: {type(error).__name__}: {error}"))
        thread.process.replace_thread(thread)

    def reached(self, hook: str, thread: SimulatedThread) -> None:
        """A thread reached a moment of a rebalance; something may have been waiting for it."""
        for action in self._armed:
            if action.hook == hook:
                self._armed.remove(action)
                self._happen(action, thread)
                return

    def strike_assignor(self, mood: str) -> None:
        """The assignor misbehaves."""
        for fault, moods in ((Fault.ASSIGNOR_RAISES, ("raises", "refuses")), (Fault.ASSIGNOR_HANGS, ("hangs",))):
            if mood in moods:
                self.spells.struck[fault] += 1
                return
        if mood != "good":
            self.spells.struck[Fault.ASSIGNOR_NONSENSE] += 1

    def plant(self, assignments: Mapping[str, MemberAssignment], step: Step) -> Mapping[str, MemberAssignment]:
        """The planted bug of a mutant, if there is one."""
        if self.mutant is None or not self._is_time_for(MUTANTS[self.mutant].when, step):
            return assignments
        return plant(self.mutant, assignments, step.request.members, self.rng)

    def _is_time_for(self, when: When, step: Step) -> bool:
        match when:
            case When.ALWAYS:
                return True
            case When.CHAOS:
                return not self.spells.ended
            case When.ASSIGNOR_FAILED:
                return not self.spells.ended and step.assignor_error is not None
            case When.NOTHING_NEW:
                return self.nothing_new

    def falsify(self, sums: Mapping[TaskId, int]) -> dict[TaskId, int]:
        """Offset sums that are not true."""
        wild = (-(2**63), -5, -4, -3, -2, 0, 1, 10**9, 2**63 - 1)
        return {task: self.rng.choice(wild) for task in sorted(set(sums) | set(list(self.tasks())[:2]))}

    def corrupt(self, data: bytes) -> bytes:
        """User data that was damaged on its way, so that it cannot be read; other damage nobody could notice."""
        if data and self.rng.random() < 0.5:
            at = self.rng.randrange(len(data))
            damaged = data[:at] + bytes([data[at] ^ (1 << self.rng.randrange(8))]) + data[at + 1 :]
            if sent_assignment(damaged) is None:
                return damaged
        return data[: self.rng.randrange(8)]

    # -- what checkers see -----------------------------------------------------------------------------------

    def published(
        self,
        thread: SimulatedThread,
        step: Step,
        sent: Mapping[str, MemberAssignment],
        *,
        failure: Exception | None = None,
    ) -> None:
        """A leader finished."""
        tasks = self.tasks({name: len(infos) for name, infos in step.request.topics.items()})
        newest = thread.process.newest
        understandings = {name: understood(member.user_data, newest) for name, member in step.members.items()}
        seen = Published(
            at_ms=self.timeline.now_ms - START_MS,
            generation=step.generation,
            leader=thread.name,
            leader_newest=newest,
            members=step.members,
            subscriptions={
                name: None if info is None or info.is_future else info for name, info in understandings.items()
            },
            hostile=frozenset(self.hostile_ids & step.members.keys()),
            clients={name: _client(name, info) for name, info in understandings.items()},
            assignments=sent,
            infos={name: sent_assignment(assignment.user_data) for name, assignment in sent.items()},
            tasks=tasks,
            stateful=frozenset(task for task in tasks if self.is_stateful(task)),
            configs=self.shape.configs,
            assignor=self.assignor_of(newest),
            failure=failure,
            disturbed=self.cluster.struck > step.struck_before,
            assignor_error=step.assignor_error,
            assignor_spoiled=step.spoiled,
            callback_error=step.callback_error,
            source_missing=step.source_missing,
            error_code=step.error_code,
            versions={
                name: start[0]
                for name, info in understandings.items()
                if info is not None and (start := header(step.members[name].user_data)) is not None
            },
            written={name: _written_version(assignment.user_data) for name, assignment in sent.items()},
            again=partial(self._again, step),
        )
        if step.assignor_error is not None:
            self.note("generation {}: the assignor fails: {}", step.generation, step.assignor_error)
        if failure is None:
            self.note("generation {}: {} assigns to {}", step.generation, thread.name, partial(_summary, seen))
            self.last = seen
        else:
            self.note("generation {}: {} cannot assign: {}", step.generation, thread.name, failure)
        for checker in self._see_published:
            checker.published(seen)
        self.on_published(seen)

    def _again(self, step: Step, rng: random.Random) -> Mapping[str, MemberAssignment] | None:
        repeated = step.again(rng)
        if repeated is None:
            return None
        planted = self.plant(repeated, step)
        return step.release.outgoing(planted, step.members)

    # -- faults ----------------------------------------------------------------------------------------------

    def apply(self, action: Action) -> None:
        """The time of an action has come."""
        if self.spells.ended:
            return
        if action.hook is not None:
            self._armed.append(action)
        else:
            self._happen(action, None)

    def end_faults(self) -> None:
        """Nothing bad happens from now on; what is broken stays broken."""
        self.spells.end_all()
        self._armed.clear()
        self.assignor_mood = "good"
        self.note("faults end")

    def _happen(self, action: Action, thread: SimulatedThread | None) -> None:
        if happen(self, action, thread):
            self.happened[action.fault] += 1

    def new_process(self, *, threads: int, newest: int, upgrade_from: str | None) -> SimulatedProcess | None:
        """One more process, unless there are enough."""
        if sum(p.alive for p in self.processes) >= _PROCESSES_MAX or len(self.threads) >= _THREADS_MAX:
            return None
        process = SimulatedProcess(self, len(self.processes), threads=threads, newest=newest, upgrade_from=upgrade_from)
        self.processes.append(process)
        process.start()
        return process

    def new_hostile(self, *, lies: bool, steady: bool = False) -> HostileMember:
        """A poisonous member joins."""
        self._hostile_born += 1
        member = HostileMember(self, self._hostile_born, lies=lies, steady=steady)
        self.hostile.append(member)
        member.start()
        return member


def _client(name: str, info: SubscriptionInfo | None) -> object:
    """Whom the leader takes a member for: a process, the one that all future members share, or nobody."""
    if info is None:
        return name
    return "future" if info.is_future else info.process_id


def _written_version(data: bytes) -> int:
    start = header(data)
    return start[0] if start is not None else -1


def _summary(seen: Published) -> str:
    parts = []
    for name, info in sorted(seen.infos.items()):
        if info is None:
            parts.append(f"{name}: unreadable")
        elif info.error_code:
            parts.append(f"{name}: error {info.error_code}")
        else:
            active = " ".join(map(str, sorted(set(info.active_tasks))))
            standby = " ".join(map(str, sorted(info.standby_tasks)))
            parts.append(f"{name}: {active or '-'} / {standby or '-'}")
    return "; ".join(parts)
