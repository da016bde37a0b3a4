"""One simulated stream thread: a real member, its tasks, and a leader in case it is elected.

The runtime is simulated as far as it affects the protocol. Tasks are opened and closed, and reported as running or with
an offset sum. Their directories are locked during a rebalance, and offsets are committed before partitions are revoked.
A thread can be frozen (nothing runs, no heartbeats), slow (only heartbeats), or dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from streams_protocol import LATEST_OFFSET, NO_FOLLOW_UP
from streams_protocol.types import TaskId, TopicPartition
from streams_py.member import MemberSettings
from streams_py.member.effects import Effect
from streams_py.member.events import Event, LoopTurned
from streams_py.member.group_model.member import ModelMember
from streams_py.member.group_model.ownership import Partitions
from streams_py.state.directory.member_record import RecordedMember
from streams_py.testing.simulator.faults.faults import Fault
from streams_py.testing.simulator.leader_executor import SimulatedLeaderExecutor
from streams_py.testing.simulator.models.consumer import SimulatedConsumer
from streams_py.testing.simulator.releases import ReleaseMember

if TYPE_CHECKING:
    from streams_py.testing.simulator.process import SimulatedProcess


class ThreadEnded(Exception):  # noqa: N818  # not an error: unwinds the stack of a killed thread
    """The current thread was killed and must not continue."""


class SimulatedThread(ModelMember):
    """A stream thread of a process; see the module's text."""

    def __init__(self, process: SimulatedProcess, index: int, name: str) -> None:
        self.process = process
        self.world = process.world
        self.index = index
        self.name = name
        shape = self.world.shape
        self.release = ReleaseMember(
            MemberSettings(
                process.process_id,
                endpoint=process.end_point,
                client_tags=process.tags,
                upgrade_from=process.upgrade_from,
            ),
            process.newest,
        )
        super().__init__(self.release.member)
        self.dead = False
        self.frozen = False
        self.slow = False
        self.failure: Exception | None = None
        self.stopped = False
        self.grants: dict[TopicPartition, int] = {}
        self.doomed = False
        """Whether it stays frozen or slow until the end."""
        self._poll_expired = False
        self._backlog: list[Callable[[], None]] = []
        self._wake_at: int | None = None
        self._commits_planned = False
        self.leader_executor = SimulatedLeaderExecutor(self)
        self._instance_id = f"{process.name}-{index}" if shape.static_members else None
        self.consumer = SimulatedConsumer(
            self.world,
            self,
            client_id=name,
            instance_id=self._instance_id,
            cooperative=self.release.cooperative,
            rack=process.rack,
            topics=shape.metadata.source_topics,
            session_timeout_ms=shape.session_timeout_ms,
            max_poll_interval_ms=shape.max_poll_interval_ms,
        )

    # -- life ----------------------------------------------------------------------------------------------------

    @property
    def responsive(self) -> bool:
        """Whether its client sends heartbeats."""
        return not (self.dead or self.frozen or self._poll_expired)

    @property
    def healthy(self) -> bool:
        """Whether it runs, neither frozen nor slow."""
        return not (self.dead or self.frozen or self.slow)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run ``action`` after a delay, unless the thread is dead. A frozen or slow thread runs it when it resumes."""
        self.world.timeline.after(delay_ms, self._do, action)

    def _do(self, action: Callable[[], None]) -> None:
        if self.dead:
            return
        if self.frozen or self.slow:
            self._backlog.append(action)
            return
        with suppress(ThreadEnded):
            action()

    def reached(self, hook: str) -> None:
        """Report a point of a rebalance. Raises ThreadEnded if an action at this point killed the thread."""
        self.world.reached(hook, self)
        if self.dead:
            raise ThreadEnded

    def freeze(self) -> None:
        """Stop immediately, at any point; the session expires later."""
        if not self.dead and not self.frozen:
            self.frozen = True
            self._fall_silent()

    def stall(self) -> None:
        """Stop polling. Heartbeats continue until the poll interval expires.

        Then a dynamic member leaves the group, and a static one stops its heartbeats.
        """
        if not self.dead and not self.slow and not self.frozen:
            self.slow = True
            self.world.timeline.after(self.world.shape.max_poll_interval_ms, self._poll_interval_over)

    def _poll_interval_over(self) -> None:
        if self.slow and not self.dead and not self.frozen:
            self._fall_silent()
            self._poll_expired = True
            self.consumer.lose_membership(leave=not self.world.shape.static_members)

    def resume(self) -> None:
        """Continue with everything that arrived meanwhile. In half of the cases first try to commit, as a zombie."""
        if self.dead or self.doomed or not (self.frozen or self.slow):
            return
        self.frozen = self.slow = self._poll_expired = False
        backlog, self._backlog = self._backlog, []
        if self.world.rng.random() < 0.5:
            self.commit(self.consumer.owned)
        for action in backlog:
            self.later(0, action)
        self.consumer.told_to_rejoin()
        self._plan_wake()

    def end(self, *, clean: bool, leave: bool = False, torn: bool = False) -> None:
        """Stop the thread: closed (``clean``) or killed. ``torn``: killed while it wrote its checkpoints."""
        if self.dead:
            return
        member_id = self.consumer.member_id
        if clean and self.healthy:
            self.commit(self.consumer.owned)
        self.dead = True
        state = self.process.state
        wiped = not clean and self.world.shape.wipe_when_killed
        torn = torn and not wiped
        for task in self.active:
            if wiped:
                state.lose_checkpoint(task)
            elif torn:
                state.tear_checkpoint(task, self)
        state.release_everything(self, clean=not (wiped or torn))
        self.world.disown(self)
        if leave and member_id:  # without a member id it cannot leave
            self.world.coordinator.leave(member_id)
        else:
            self._fall_silent()

    def _fall_silent(self) -> None:
        since_ms = self.world.rng.randrange(self.world.shape.heartbeat_interval_ms)
        self.world.coordinator.silent(self.consumer, since_ms=since_ms)

    # -- ThreadSide: methods for the consumer -----------------------------------------------------------------------

    def joining(self, member_id: str, generation: int) -> None:
        """Put the member on record."""
        self.process.on_record.joining(RecordedMember(self.index, member_id, generation, self._instance_id))

    def user_data(self) -> bytes:
        """Return the subscription, with the offset sums of this thread."""
        sums = self._offset_sums()
        if self.world.ongoing_faults.occurs(Fault.FALSE_OFFSETS):
            sums = self.world.falsify(sums)
        return self.release.outgoing(self.subscribe(sums))

    def lead(
        self,
        members: Mapping[str, bytes],
        done: Callable[[Mapping[str, bytes]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Compute the assignment of the whole group."""
        self.reached("assign begins")
        self.leader_executor.start(members, done, failed)

    def on_revoked(self, partitions: Partitions) -> None:
        """Commit, then revoke the partitions."""
        self.commit(partitions)
        super().on_revoked(partitions)
        self.reached("revoked")

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        """Handle an assignment of the leader."""
        if self.world.ongoing_faults.occurs(Fault.CORRUPT_ASSIGNMENT):
            user_data = self.world.corrupt(user_data)
        data, rejoin = self.release.incoming(user_data)
        super().on_assignment(partitions, data)
        if rejoin:
            self.consumer.request_rejoin()

    def on_owned(self, before: Partitions, now: Partitions) -> None:
        """Record that the consumer's partitions changed."""
        self.world.owned(self, before, now)

    def on_assigned(self, added: Partitions) -> None:
        """Complete the rebalance."""
        super().on_assigned(added)
        self._plan_wake()
        if not self._commits_planned and not self.world.ongoing_faults.ended:
            self._commits_planned = True
            self.later(self.world.rng.randrange(1_000, 20_000), self._commit_and_plan)

    def fail(self, error: Exception) -> None:
        """Fail the thread; it is replaced after a delay."""
        if self.failure is None:
            self.failure = error
            self.world.thread_failed(self, error)

    # -- the member ------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """Pass an event to the member and execute its effects."""
        self.world.activity += 1
        return super().handle(event)

    def complete_rebalance(self) -> None:
        """Unlock the directories that were locked during the rebalance, and open the tasks."""
        self.process.state.unlock(self)
        self._open_tasks()

    def request_rejoin(self) -> None:
        """Let the consumer join again."""
        self.consumer.request_rejoin()

    def fail_thread(self, error: Exception) -> None:
        """Fail the thread after the current action, as the runtime does."""
        self.later(0, partial(self.fail, error))

    def stop_application(self) -> None:
        """Stop every thread of the process."""
        self.stopped = True
        self.later(0, self.process.stop)

    def turn_loop(self) -> None:
        """Run one iteration of the thread's loop, which checks whether a follow-up rebalance is due."""
        self._wake_at = None
        self.handle(LoopTurned(self.process.clock_ms))
        self._plan_wake()

    def _plan_wake(self) -> None:
        due_ms = self.member.next_rebalance_ms
        if due_ms == NO_FOLLOW_UP or self.member.rebalance_in_progress:
            return
        at_ms = max(self.world.timeline.now_ms, due_ms - self.process.skew_ms) + 1
        if self._wake_at is None or at_ms < self._wake_at:
            self._wake_at = at_ms
            self.later(at_ms - self.world.timeline.now_ms, self.turn_loop)

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _stateful(self, task: TaskId) -> bool:
        return self.world.shape.metadata.subtopologies[task.subtopology].is_logged

    def apply_tasks(self, active: dict[TaskId, Partitions], standby: set[TaskId]) -> None:
        """Close, keep, recycle and open tasks."""
        state = self.process.state
        for task in (self.active.keys() | self.standby) - (active.keys() | standby):
            state.close(task, self, clean=True)
        for task in standby & self.active.keys():
            state.stop_running(task, self)
        super().apply_tasks(active, standby)
        self._open_tasks()

    def _open_tasks(self) -> None:
        for task in (*self.active, *self.standby):
            if task.subtopology in self.world.shape.metadata.subtopologies and self._stateful(task):
                self.process.state.open(task, self)

    def close_active(self, tasks: tuple[TaskId, ...], *, lost: bool) -> None:
        """Close active tasks and their state.

        Lost tasks leave no checkpoint if the state of a killed process is lost.
        """
        super().close_active(tasks, lost=lost)
        clean = not (lost and self.world.shape.wipe_when_killed)
        for task in tasks:
            if task not in self.standby:
                self.process.state.close(task, self, clean=clean)

    def observe_running(self) -> None:
        """Update which active tasks are restored."""
        for task in self.active:
            self.process.state.runs(task, self)

    def _offset_sums(self) -> dict[TaskId, int]:
        state = self.process.state
        sums: dict[TaskId, int] = {}
        for task in self.active:
            if self._known(task):
                if state.runs(task, self):
                    sums[task] = LATEST_OFFSET
                elif (position := state.position(task)) is not None:
                    sums[task] = position
        for task in self.standby:
            if self._known(task) and task not in sums:
                sums[task] = state.position(task) or 0
        for task in state.lock_free_directories(self):
            if task not in sums:
                sums[task] = state.position(task) or 0
        return sums

    def _known(self, task: TaskId) -> bool:
        return task.subtopology in self.world.shape.metadata.subtopologies and self._stateful(task)

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit(self, partitions: Partitions) -> None:
        """Commit offsets; the checkers see accepted commits."""
        if partitions and not self.dead:
            self.world.commit(self, partitions)

    def _commit_and_plan(self) -> None:
        self._commits_planned = False
        if self.consumer.stable and not self.member.rebalance_in_progress:
            self.commit(self.consumer.owned)
        if not self.world.ongoing_faults.ended:
            self._commits_planned = True
            self.later(self.world.rng.randrange(5_000, 30_000), self._commit_and_plan)
