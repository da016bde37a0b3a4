"""The leader's assign step in virtual time: the real leader, with delayed effects of which some fail.

Between any two effects the leading thread may be killed or frozen, or lose its membership. The published assignments
are passed to the checkers, with a function that repeats the step.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from streams_protocol import decode_assignment_info
from streams_py.adapters.kafka_python.classic.payloads import assignments_to_send, readable_members
from streams_py.assignment.api import ApplicationState, TaskAssignment
from streams_py.assignment.assignors.registry import assignor_name
from streams_py.assignment.assignors.static import STATIC_TASKS_SPILL
from streams_py.errors import AssignorError, BrokerUnavailableError, StreamsError
from streams_py.leader import GroupLeader, LeaderSettings
from streams_py.leader.effects import (
    Ask,
    Effect,
    EnterStep,
    FailAssign,
    NotifyAssignor,
    PublishAssignments,
    Question,
    RunAssignor,
    Wait,
)
from streams_py.leader.events import AssignRequested, Event
from streams_py.leader.executor import Executor
from streams_py.ports import MemberAssignment, MemberSubscription
from streams_py.testing.simulator.assignors import ASSIGNOR_BEHAVIOUR, ASSIGNOR_CLASS
from streams_py.testing.simulator.mutants import CRASH_ON_GARBAGE, GIVE_UP_FOR_NOTHING
from streams_py.testing.simulator.releases import ReleaseLeader

if TYPE_CHECKING:
    from streams_py.testing.simulator.thread import SimulatedThread

_HANG_MS = 30_000  # time limit of the runtime for an assignor

Done: TypeAlias = Callable[[Mapping[str, bytes]], None]
Failed: TypeAlias = Callable[[Exception], None]


@dataclass(slots=True)
class Step:
    """The inputs and answers of one assign step, enough to repeat it."""

    request: AssignRequested
    members: Mapping[str, MemberSubscription]
    """Subscriptions as the coordinator had them; ``request`` has them as converted for the leader's release."""
    generation: int
    settings: LeaderSettings
    release: ReleaseLeader
    occurred_before: int = 0
    answers: list[Event] = field(default_factory=list)
    assignor_error: Exception | None = None
    spoiled: bool = False
    """Whether the simulator made the assignor fail."""
    callback_error: Exception | None = None
    source_missing: bool = False
    error_code: int = 0
    """Error code sent to all members instead of tasks; 0 if tasks were assigned."""

    def again(self, rng: random.Random) -> Mapping[str, MemberAssignment] | None:
        """Repeat the step with a new leader, the same answers, and members and topics in another order.

        Returns its assignments, or None if it published none.
        """
        members, topics = list(self.request.members.items()), list(self.request.topics.items())
        rng.shuffle(members)
        rng.shuffle(topics)
        request = AssignRequested(self.request.now_ms, dict(members), dict(topics), self.request.topology)
        leader = GroupLeader(self.settings)
        effects = leader.handle(request)
        for answer in self.answers:
            if any(isinstance(effect, PublishAssignments) for effect in effects):
                break
            effects = leader.handle(answer)
        for effect in effects:
            if isinstance(effect, PublishAssignments):
                return effect.assignments
        return None


class SimulatedLeaderExecutor:
    """Runs the assign steps of one thread. A new request abandons an unfinished one."""

    def __init__(self, thread: SimulatedThread) -> None:
        self._thread = thread
        self._world = thread.world
        self._leader: GroupLeader | None = None
        self._number = 0
        self._effects: deque[Effect] = deque()
        self._step: Step | None = None
        self._executor = _SimulatedExecutor(self)
        self._done: Done = lambda assignments: None
        self._failed: Failed = lambda error: None

    def start(self, raw: Mapping[str, bytes], done: Done, failed: Failed) -> None:
        """Start an assign step. Calls ``done`` or ``failed`` at its end, unless another step starts before."""
        self._number += 1
        self._done, self._failed = done, failed
        world, process = self._world, self._thread.process
        members = readable_members(raw.items())
        release = ReleaseLeader(process.newest)
        topics = world.shape.metadata.source_topics | {t for sent in members.values() for t in sent.topics}
        occurred_before = world.cluster.occurred
        known = world.cluster.metadata(topics)
        settings = LeaderSettings(
            process_id=process.process_id,
            future_process_id=process.future_process_id,
            assignment=world.shape.configs,
            internal_assignor=world.internal_assignor,
            task_assignor=world.task_assignor_of(process.newest),
            original_configs={
                **world.shape.settings,
                ASSIGNOR_BEHAVIOUR: world.assignor_behaviour,
                ASSIGNOR_CLASS: world.shape.assignor_class,
                STATIC_TASKS_SPILL: True,
            },
            topic_setup_timeout_ms=world.shape.max_poll_interval_ms // 2,
            reference_behaviour=world.mutant == CRASH_ON_GARBAGE,
        )
        request = AssignRequested(process.clock_ms, release.incoming(members), known, world.shape.metadata)
        self._step = Step(request, members, self._thread.consumer.generation, settings, release, occurred_before)
        self._step.source_missing = bool(world.shape.partitions.keys() - known.keys())
        self._leader = GroupLeader(settings)
        self._raw = raw
        self._effects.clear()
        self._handle(request)

    def _handle(self, event: Event) -> None:
        assert self._leader is not None
        self._effects.extend(self._leader.handle(event))
        self._leader.validate_state()
        self._next()

    def _next(self) -> None:
        """Execute effects up to the first one that needs an answer, and schedule that answer."""
        assert self._step is not None
        while self._effects:
            effect = self._effects.popleft()
            match effect:
                case PublishAssignments():
                    self._publish(effect)
                    return
                case FailAssign(error):
                    self._world.published(self._thread, self._step, {}, failure=error)
                    self._failed(error)
                    return
                case EnterStep():
                    self._hand_in(effect)
                    return
                case Ask():
                    self._thread.later(self._delay_ms(effect), partial(self._answer, self._number, effect))
                    return
                case _:
                    self._executor.notice(effect)

    def _delay_ms(self, effect: Question) -> int:
        if isinstance(effect, Wait):
            return effect.duration_ms
        if isinstance(effect, RunAssignor) and self._world.assignor_behaviour == "hangs":
            return _HANG_MS
        return self._world.latency_ms()

    def _answer(self, number: int, effect: Question) -> None:
        if number != self._number or self._step is None:
            return
        self._thread.reached("effect")
        if self._thread.frozen:
            self._thread.later(0, lambda: self._answer(number, effect))
            return
        self._hand_in(effect)

    def _hand_in(self, effect: Question) -> None:
        assert self._step is not None
        event: Event = effect.asked_of(self._executor)
        self._step.answers.append(event)
        self._handle(event)

    # -- the clock and the assignor of the executor ---------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the time of the process's wall clock."""
        return self._thread.process.clock_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Do nothing: the delay has already elapsed when the answer is due."""

    def ask(self, chosen: object, configs: Mapping[str, object], state: ApplicationState) -> TaskAssignment:
        """Run the assignor as the runtime does, except that a simulated assignor hangs in virtual time."""
        behaviour = str(configs.get(ASSIGNOR_BEHAVIOUR))
        self._world.count_assignor_fault(behaviour)
        assert self._step is not None
        self._step.spoiled = behaviour != "good"
        if behaviour == "hangs":
            raise AssignorError(f"task assignor {assignor_name(chosen)} did not return in time (simulated)")
        return self._world.runner.ask(chosen, configs, state)

    def notify(self, notice: NotifyAssignor) -> None:
        """Call the callback of the same assignor instance."""
        assert self._step is not None
        try:
            self._world.runner.notify(notice)
        except AssignorError as error:
            self._step.callback_error = error

    def note_error(self, error: StreamsError) -> None:
        """Record an error of the assignor."""
        assert self._step is not None
        self._step.assignor_error = error

    def _publish(self, effect: PublishAssignments) -> None:
        assert self._step is not None
        step, world = self._step, self._world
        if world.mutant == GIVE_UP_FOR_NOTHING and not world.ongoing_faults.ended and step.generation % 5 == 0:
            error = BrokerUnavailableError("failure without a reason (a planted bug)")
            world.published(self._thread, step, {}, failure=error)
            self._failed(error)
            return
        if effect.error is not None:
            first = next(iter(effect.assignments.values()))
            step.error_code = decode_assignment_info(first.user_data).error_code
        assignments = world.plant(effect.assignments, step)
        sent = step.release.outgoing(assignments, step.members)
        world.published(self._thread, step, sent)
        self._thread.reached("assigned")
        encoded = assignments_to_send(sent, self._raw, lambda data: None)
        self._done(encoded)


class _SimulatedExecutor(Executor):
    def __init__(self, leading: SimulatedLeaderExecutor) -> None:
        super().__init__(leading._world.cluster, leading, leading, group="")
        self._leading = leading

    def report(self, error: StreamsError) -> None:
        self._leading.note_error(error)
