"""The simulated world: processes, coordinator, cluster and faults, and the calls of the checkers.

A world is created from a schedule and driven by :mod:`streams_py.testing.simulator.run`. Random numbers come from
generators with fixed seeds, consumed in the order of virtual time, so a schedule runs the same way in every process.
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
from streams_py.testing.simulator.evictions import Evictions
from streams_py.testing.simulator.faults.actions import execute
from streams_py.testing.simulator.faults.faults import Fault, OngoingFaults
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

_THREADS_MAX = 12
_PROCESSES_MAX = 8
_LATE_MS = 150_000
_ASSIGNOR_TIMEOUT_MS = 10_000  # real time: virtual time cannot interrupt user code
_INTERNAL = ("high_availability", "legacy_sticky", "fallback")


class World:
    """A group and its environment."""

    def __init__(self, schedule: Schedule, checkers: list[Checker]) -> None:
        self.schedule = schedule
        self.shape = schedule.shape
        self.mutant = schedule.mutant
        self.rng = random.Random(f"world {schedule.seed}")
        self.timeline = Timeline()
        self.ongoing_faults = OngoingFaults(self.rng)
        self.evictions = Evictions(self)
        self.cluster = SimulatedCluster(self.timeline, self.rng, self.shape, self.ongoing_faults)
        self.coordinator = GroupCoordinator(self.timeline)
        self.coordinator.check_generations = self.mutant != ACCEPT_EVERY_COMMIT
        self._see_published = [c for c in checkers if type(c).published is not Checker.published]
        self._see_gained = [c for c in checkers if type(c).gained is not Checker.gained]
        self._see_restored = [c for c in checkers if type(c).restored is not Checker.restored]
        self._see_committed = [c for c in checkers if type(c).committed is not Checker.committed]
        self.processes: list[SimulatedProcess] = []
        self.hostile: list[HostileMember] = []
        self.hostile_ids: set[str] = set()
        self.executed: Counter[Fault] = Counter()
        self.failures: list[tuple[int, str]] = []
        self.last: Published | None = None
        self.history: list[tuple[int, str, tuple[object, ...]]] = []
        self.assignor_behaviour = "good"
        self.runner = AssignorRunner(timeout_ms=_ASSIGNOR_TIMEOUT_MS)
        self._armed: list[Action] = []
        self._holders: dict[TopicPartition, set[SimulatedThread]] = {}
        self._grants = 0
        self._tasks: dict[tuple[tuple[str, int], ...], dict[TaskId, tuple[TopicPartition, ...]]] = {}
        self.nothing_new = False
        """Whether the last rebalance runs, in which nothing changed."""
        self.activity = 0
        """Counts events after which tasks may have another owner."""
        self._hostile_born = 0
        self.on_published: Callable[[Published], None] = lambda seen: None

    @property
    def internal_assignor(self) -> str | None:
        """Value of ``internal.task.assignor.class``."""
        name = self.shape.assignor
        return name if name in _INTERNAL else None

    def assignor_of(self, newest: int) -> str:
        """Return the assignor of a leader of that release; older ones ignore ``task.assignor.class`` (KIP-924)."""
        name = self.shape.assignor
        return name if newest >= LATEST_SUPPORTED_VERSION or name in _INTERNAL else "high_availability"

    def task_assignor_of(self, newest: int) -> object:
        """Return the value of ``task.assignor.class`` for a leader of that release."""
        name = self.assignor_of(newest)
        if name == "custom":
            own = self.shape.assignor_class  # called directly, so that users see its name and its errors
            return own if own and self.assignor_behaviour == "good" else SimulatedAssignor
        return name if name in ("sticky", "static") else None

    # -- threads and tasks -----------------------------------------------------------------------------------

    @property
    def threads(self) -> list[SimulatedThread]:
        """All threads that are not dead."""
        return [thread for process in self.processes for thread in process.threads]

    def tasks(self, seen: Mapping[str, int] | None = None) -> Mapping[TaskId, tuple[TopicPartition, ...]]:
        """Return every task with its input partitions. ``seen``: partition counts that replace the current ones."""
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
        """Draw the delay of a message, in ms."""
        if self.ongoing_faults.occurs(Fault.SLOW_NETWORK):
            return self.rng.randrange(100, 4_000)
        return self.rng.randrange(1, 20)

    def heartbeat_delay_ms(self) -> int:
        """Draw the time until the next heartbeat of a client, in ms."""
        return self.rng.randrange(1, self.shape.heartbeat_interval_ms)

    def send(self, action: Callable[[], None]) -> None:
        """Send a message: run ``action`` after the delay of the network."""
        self.timeline.after(self.latency_ms(), action)

    @property
    def rejoin_delay_ms(self) -> int:
        """Delay until a consumer that wants to rejoin does so, in ms."""
        return _LATE_MS if self.mutant == LATE_TO_REJOIN else 1

    def loses_reply(self) -> bool:
        """Return whether a reply is lost."""
        return self.ongoing_faults.occurs(Fault.REPLIES_LOST)

    def note(self, text: str, *args: object) -> None:
        """Append a line to the history."""
        self.history.append((self.timeline.now_ms - START_MS, text, args))

    # -- events of threads -----------------------------------------------------------------------------------

    def owned(self, thread: SimulatedThread, before: Partitions, now: Partitions) -> None:
        """Record that the consumer of a thread owns other partitions now."""
        for tp in before - now:
            self._holders[tp].discard(thread)
            thread.grants.pop(tp, None)
        for tp in sorted(now - before):
            holders = self._holders.setdefault(tp, set())
            self._grants += 1
            thread.grants[tp] = self._grants
            is_current = self.coordinator.is_current
            others: tuple[str, ...] = ()
            if holders and is_current(thread.consumer.member_id):  # claims of zombies do not count
                others = tuple(sorted(t.name for t in holders if t is not thread and is_current(t.consumer.member_id)))
            holders.add(thread)
            seen = Gained(self.timeline.now_ms - START_MS, tp, thread.name, thread.consumer.generation, others)
            for checker in self._see_gained:
                checker.gained(seen)

    def disown(self, thread: SimulatedThread) -> None:
        """Remove a dead thread from the owners of its partitions."""
        for tp in thread.consumer.owned:
            self._holders[tp].discard(thread)

    def commit(self, thread: SimulatedThread, partitions: Partitions) -> None:
        """Commit partitions of a thread; the checkers see the commit if it was accepted."""
        if thread.consumer.commit(partitions) is not Reply.NONE:
            return
        for tp in sorted(partitions):
            seen = Committed(
                self.timeline.now_ms - START_MS, tp, thread.name, thread.consumer.generation, thread.grants.get(tp, 0)
            )
            for checker in self._see_committed:
                checker.committed(seen)

    def restored(self, task: TaskId, thread: object, lacking: int) -> None:
        """Report to the checkers that an active task of a thread is restored."""
        assert isinstance(thread, SimulatedThread)
        seen = Restored(self.timeline.now_ms - START_MS, task, thread.name, lacking)
        for checker in self._see_restored:
            checker.restored(seen)

    def thread_failed(self, thread: SimulatedThread, error: Exception) -> None:
        """Record the failure of a thread, and replace the thread."""
        self.note("{} fails: {}: {}", thread.name, type(error).__name__, error)
        self.failures.append((self.timeline.now_ms, f"{thread.name}: {type(error).__name__}: {error}"))
        thread.process.replace_thread(thread)

    def reached(self, hook: str, thread: SimulatedThread) -> None:
        """Run the first action that waits for a thread at this point of a rebalance."""
        for action in self._armed:
            if action.hook == hook:
                self._armed.remove(action)
                self._execute(action, thread)
                return

    def count_assignor_fault(self, behaviour: str) -> None:
        """Count a misbehaviour of the assignor as a fault."""
        for fault, behaviours in ((Fault.ASSIGNOR_RAISES, ("raises", "refuses")), (Fault.ASSIGNOR_HANGS, ("hangs",))):
            if behaviour in behaviours:
                self.ongoing_faults.occurred[fault] += 1
                return
        if behaviour != "good":
            self.ongoing_faults.occurred[Fault.ASSIGNOR_NONSENSE] += 1

    def plant(self, assignments: Mapping[str, MemberAssignment], step: Step) -> Mapping[str, MemberAssignment]:
        """Apply the planted bug, if there is one and it is active now."""
        if self.mutant is None or not self._is_time_for(MUTANTS[self.mutant].when, step):
            return assignments
        return plant(self.mutant, assignments, step.request.members, self.rng)

    def _is_time_for(self, when: When, step: Step) -> bool:
        match when:
            case When.ALWAYS:
                return True
            case When.CHAOS:
                return not self.ongoing_faults.ended
            case When.ASSIGNOR_FAILED:
                return not self.ongoing_faults.ended and step.assignor_error is not None
            case When.NOTHING_NEW:
                return self.nothing_new

    def falsify(self, sums: Mapping[TaskId, int]) -> dict[TaskId, int]:
        """Return wrong offset sums."""
        wild = (-(2**63), -5, -4, -3, -2, 0, 1, 10**9, 2**63 - 1)
        return {task: self.rng.choice(wild) for task in sorted(set(sums) | set(list(self.tasks())[:2]))}

    def corrupt(self, data: bytes) -> bytes:
        """Return damaged user data that is unreadable; a member could not detect other damage."""
        if data and self.rng.random() < 0.5:
            at = self.rng.randrange(len(data))
            damaged = data[:at] + bytes([data[at] ^ (1 << self.rng.randrange(8))]) + data[at + 1 :]
            if sent_assignment(damaged) is None:
                return damaged
        return data[: self.rng.randrange(8)]

    # -- published assignments -------------------------------------------------------------------------------

    def published(
        self,
        thread: SimulatedThread,
        step: Step,
        sent: Mapping[str, MemberAssignment],
        *,
        failure: Exception | None = None,
    ) -> None:
        """Report a finished assign step to the checkers."""
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
            disturbed=self.cluster.occurred > step.occurred_before,
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
        """Run an action, or let it wait for its hook."""
        if self.ongoing_faults.ended:
            return
        if action.hook is not None:
            self._armed.append(action)
        else:
            self._execute(action, None)

    def end_faults(self) -> None:
        """Stop all faults. What is broken stays broken."""
        self.ongoing_faults.end_all()
        self._armed.clear()
        self.assignor_behaviour = "good"
        self.note("faults end")

    def _execute(self, action: Action, thread: SimulatedThread | None) -> None:
        if execute(self, action, thread):
            self.executed[action.fault] += 1

    def new_process(self, *, threads: int, newest: int, upgrade_from: str | None) -> SimulatedProcess | None:
        """Start another process, unless the limit of processes or threads is reached."""
        if sum(p.alive for p in self.processes) >= _PROCESSES_MAX or len(self.threads) >= _THREADS_MAX:
            return None
        process = SimulatedProcess(self, len(self.processes), threads=threads, newest=newest, upgrade_from=upgrade_from)
        self.processes.append(process)
        process.start()
        return process

    def new_hostile(self, *, lies: bool, steady: bool = False) -> HostileMember:
        """Let a hostile member join."""
        self._hostile_born += 1
        member = HostileMember(self, self._hostile_born, lies=lies, steady=steady)
        self.hostile.append(member)
        member.start()
        return member


def _client(name: str, info: SubscriptionInfo | None) -> object:
    """Return the identity of a member as the leader sees it.

    That is its process id, one shared identity for all future members, or its name if it is unreadable.
    """
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
