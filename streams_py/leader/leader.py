"""The group leader's assign step, without I/O (KIP-441, KIP-429, KIP-924).

A request goes through these steps: decode, shutdown check, repartition topics, tasks, version check, changelog topics,
end offsets and lags, assignor, threads, assignments. When a step needs the outside world, :meth:`GroupLeader.handle`
returns effects, and the next event continues the step. All steps are one generator, so the code reads in that order.
Source: Kafka Streams' ``StreamsPartitionAssignor.assign``.

How a request ends:

* A member requests a shutdown, a source topic is missing, or the group cannot be assigned: *all* members receive an
  error assignment with code 4, 1 or 3.
* Internal topics cannot be set up, or co-partitioned topics do not match: FailAssign, and the leader's thread fails.
* Internal topics are not ready in time: FailAssign with a retriable error, and the leader rejoins.
* End offsets are unknown: no error. Tasks stay where they are (fallback assignor), and a probing rebalance follows.
* The application's assignor fails: no error for the group, see :mod:`streams_py.leader.steps.keep_current`. Kafka
  Streams fails the leader or all members instead.
* One member's user data cannot be decoded: that member receives an error assignment. Kafka Streams fails the leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from streams_protocol import EARLIEST_PROBEABLE_VERSION, DecodeError, ErrorCode
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.api import AssignmentError, GroupAssignment, GroupSubscription
from streams_py.assignment.assignors.draining import DrainingAssignor, is_draining
from streams_py.assignment.assignors.registry import assignor_name, public_built_in
from streams_py.assignment.configs import STRATEGY_NONE
from streams_py.assignment.problem import Placement, RackOptimiser, sentences
from streams_py.errors import (
    AssignorError,
    ConfigError,
    IllegalStateError,
    MissingSourceTopicError,
    StreamsError,
    TaskAssignmentError,
)
from streams_py.leader.effects import (
    DescribeTopics,
    Effect,
    EnterStep,
    FailAssign,
    FetchCommittedOffsets,
    ListEndOffsets,
    Log,
    NotifyAssignor,
    Observe,
    PublishAssignments,
    Remember,
    ReportError,
    RunAssignor,
    Steps,
    ask,
)
from streams_py.leader.events import AssignorFailed, AssignRequested, Event
from streams_py.leader.observation import AssignStep, Decided, Gathered, RacksDescribed
from streams_py.leader.phases import Phase
from streams_py.leader.settings import FOLLOW_UP_FLOOR_MS, LeaderSettings
from streams_py.leader.steps.application_state import application_state, undescribed_topics
from streams_py.leader.steps.custom import read_assignment
from streams_py.leader.steps.decode import Group, decode_group, doubtful_end_points, unread_topics
from streams_py.leader.steps.encode import encode_assignments, error_assignments, spread_over_threads
from streams_py.leader.steps.internal import ReplayedAssignor, internal_assignor, uses_custom_assignor
from streams_py.leader.steps.internal_topics import TopicSetup
from streams_py.leader.steps.keep_current import keep_current
from streams_py.leader.steps.probing import probing_deadlines
from streams_py.leader.steps.racks import rack_question
from streams_py.leader.steps.repartition import (
    missing_source_topics,
    partition_counts,
    repartition_counts,
    repartition_topics,
    with_repartition,
)
from streams_py.leader.steps.state import EndOffsets, asked_partitions, client_histories, end_offset_sums, problem_of
from streams_py.leader.steps.tasks import TaskTable, changelog_inputs, changelog_specs, repartition_inputs, task_table
from streams_py.ports import AdminError, MemberAssignment, PartitionInfo, TopicSpec

_INFO, _WARNING, _ERROR = 20, 30, 40  # levels of the standard library's logging

_Effects: TypeAlias = tuple[Effect, ...]


class GroupLeader:
    """Runs one assign step at a time; a new request abandons an unfinished one.

    Callers use :func:`streams_py.leader.drive.run_assign`, or carry out the effects that :meth:`handle` returns, in
    order, and pass their answers to :meth:`handle`.
    """

    def __init__(self, settings: LeaderSettings) -> None:
        self._settings = settings
        self._phase = Phase.IDLE
        self._steps: Steps[_Effects] | None = None
        self._notices: list[Effect] = []
        self._now_ms = 0

    @property
    def process_id(self) -> ProcessId:
        """Process id of the client that this leader is a thread of."""
        return self._settings.process_id

    def handle(self, event: Event) -> _Effects:
        """Process one event and return the next effects. Raises IllegalStateError if unexpected."""
        self._now_ms = event.now_ms
        try:
            if isinstance(event, AssignRequested):
                self._notices.clear()
                self._steps = self._assign(event)
                effects = next(self._steps)
            elif self._steps is None:
                raise IllegalStateError(
                    f"the leader has no assign request in progress, but received {type(event).__name__}"
                )
            else:
                effects = self._steps.send(event)
        except StopIteration as stop:
            self._steps = None
            effects = stop.value
        notices, self._notices = tuple(self._notices), []
        return notices + effects

    def validate_state(self) -> None:
        """Raise AssertionError if the leader's state is inconsistent. For tests, after every event."""
        waiting = self._phase not in (Phase.IDLE, Phase.DONE, Phase.FAILED)
        assert waiting == (self._steps is not None), (self._phase, self._steps)
        assert not self._notices, self._notices

    # -- the steps -------------------------------------------------------------------------------------------------

    def _assign(self, request: AssignRequested) -> Steps[_Effects]:
        settings = self._settings
        self._phase = Phase.DECODE
        yield from ask(EnterStep(AssignStep.DECODE))
        try:
            group = decode_group(
                request.members,
                future_process_id=settings.future_process_id,
                refuse_garbage=not settings.reference_behaviour,
                named_topics=frozenset() if settings.reference_behaviour else request.named_topics,
            )
        except (DecodeError, ConfigError) as error:
            return self._fail(error)
        self._log_group(group)
        self._warn(unread_topics(request))
        self._warn(doubtful_end_points(group))
        try:
            if group.shutdown_requested:
                return self._publish_error(
                    request, ErrorCode.SHUTDOWN_REQUESTED, StreamsError("a member asked the whole application to stop")
                )
            if not group.clients:
                raise TaskAssignmentError("no member of the group sent usable user data")
            step = yield from self._gather(request, group)
            if uses_custom_assignor(settings):
                return (yield from self._assign_custom(step))
            return (yield from self._assign_internal(step))
        except MissingSourceTopicError as error:
            return self._publish_error(request, ErrorCode.INCOMPLETE_SOURCE_TOPIC_METADATA, error)
        except TaskAssignmentError as error:
            return self._publish_error(request, ErrorCode.ASSIGNMENT_ERROR, error)
        except StreamsError as error:
            return self._fail(error)

    def _gather(self, request: AssignRequested, group: Group) -> Steps[Gathered]:
        settings = self._settings
        yield from ask(EnterStep(AssignStep.TOPICS))
        topics = yield from self._prepare_repartition_topics(request)
        table = task_table(request.topology, topics, hash_sizing=settings.hash_sizing)
        self._warn(table.warnings)
        if group.future_version is not None and group.min_received_version < EARLIEST_PROBEABLE_VERSION:
            raise TaskAssignmentError(
                f"members with versions {group.future_version} and {group.min_received_version} cannot share a group: "
                f"versions below {EARLIEST_PROBEABLE_VERSION} cannot agree on a common version. Upgrade in two steps"
            )
        self._phase = Phase.CHANGELOG_TOPICS
        specs = changelog_specs(request.topology, table, replication_factor=settings.replication_factor)
        created = yield from self._make_ready(specs, changelog_inputs(request.topology, table))
        yield from ask(EnterStep(AssignStep.END_OFFSETS))
        ends = yield from self._fetch_end_offsets(table, created)
        yield from ask(EnterStep(AssignStep.ASSIGN))
        better = not settings.reference_behaviour
        histories, warnings = client_histories(group, table, ends, tolerate_unknown=better, owned_first=better)
        self._warn(warnings)
        problem = problem_of(
            group, histories, table, ends, configs=settings.assignment, hash_sizing=settings.hash_sizing
        )
        step = Gathered(request, group, table, topics, ends, histories, problem)
        self._notices.append(Observe(step))
        return step

    def _prepare_repartition_topics(self, request: AssignRequested) -> Steps[Mapping[str, tuple[PartitionInfo, ...]]]:
        self._phase = Phase.REPARTITION_TOPICS
        counts = partition_counts(request.topics)
        missing = missing_source_topics(request.topology, counts)
        if missing:
            raise MissingSourceTopicError(
                f"source topics {', '.join(missing)} do not exist; create them, then restart the application"
            )
        reference = self._settings.reference_behaviour
        needed = repartition_counts(request.topology, counts, reference_behaviour=reference)
        if not needed:
            return request.topics
        internal = repartition_topics(request.topology)
        yield from self._make_ready(
            {
                name: TopicSpec(name, count, self._settings.replication_factor, dict(internal[name].config))
                for name, count in needed.items()
            },
            repartition_inputs(request.topology, request.topics),
        )
        return with_repartition(request.topics, needed)

    def _make_ready(
        self, specs: Mapping[str, TopicSpec], inputs: Mapping[str, Collection[TopicPartition]]
    ) -> Steps[Collection[str]]:
        """Create or check the topics and return the newly created ones.

        ``inputs`` has, by topic, the partitions whose committed offsets show that the topic's records were needed
        before.
        """
        setup = TopicSetup(
            specs,
            now_ms=self._now_ms,
            timeout_ms=self._settings.topic_setup_timeout_ms,
            retry_backoff_ms=self._settings.retry_backoff_ms,
            before_creating=partial(self._check_missing, inputs),
        )
        yield from setup.run()
        return frozenset(setup.newly_created)

    def _check_missing(self, inputs: Mapping[str, Collection[TopicPartition]], missing: Collection[str]) -> Steps[None]:
        """Report internal topics that do not exist although the group has committed offsets.

        Raises:
            StreamsError: ``recreated.internal.topics`` is set to stop the application in this case.
        """
        asked = {partition for name in missing for partition in inputs.get(name, ())}
        if not asked or self._settings.missing_topics == "ignore":
            return
        fetched = yield from ask(FetchCommittedOffsets(tuple(sorted(asked))))
        if fetched.error is not None:
            self._say(_WARNING, f"cannot check whether {', '.join(missing)} existed before: {fetched.error.message}")
            return
        for name in sorted(missing):
            committed = [at for at in sorted(inputs.get(name, ())) if (fetched.offsets.get(at) or 0) > 0]
            if not committed:
                continue
            text = (
                f"internal topic {name} does not exist, but the group has committed offset "
                f"{fetched.offsets[committed[0]]} of {committed[0]}. If the topic was deleted, its records are lost: "
                "stores that are not on a disk start empty, and unprocessed records will not be processed. Stop the "
                "application and reset it (streams-py reset) to process its input again. If a new version of the "
                "application added the topic, this is expected"
            )
            if self._settings.missing_topics == "fail":
                raise StreamsError(
                    f"{text}: set recreated.internal.topics to stop (the default) or continue for its first start"
                )
            self._say(_ERROR, f"{text}. Creating it")

    def _fetch_end_offsets(self, table: TaskTable, created: Collection[str]) -> Steps[EndOffsets]:
        self._phase = Phase.OFFSETS
        ends, committed = asked_partitions(table, created)
        listed = (yield from ask(ListEndOffsets(ends))) if ends else None
        fetched = (yield from ask(FetchCommittedOffsets(committed))) if committed else None
        result = end_offset_sums(table, created, listed, fetched)
        if result.failed is not None:
            self._say(
                _WARNING, f"lags are unknown ({result.failed}); tasks stay where they are until the next rebalance"
            )
        return result

    # -- placing and publishing --------------------------------------------------------------------------------------

    def _assign_internal(self, step: Gathered) -> Steps[_Effects]:
        lags_known = step.ends.failed is None
        racks = (yield from self._look_up_racks(step)) if lags_known else None
        problem = replace(step.problem, racks=racks)
        assignor = internal_assignor(self._settings, lags_known=lags_known)
        if lags_known and not self._settings.reference_behaviour and any(map(is_draining, problem.clients)):
            assignor = DrainingAssignor(assignor)
        decision = assignor.decide(problem)
        self._notices.append(Remember(self._now_ms, problem, assignor))
        for text in sentences(decision.notes):
            self._say(_WARNING, text)
        deadlines = {}
        if decision.probing:
            deadlines = probing_deadlines(
                step.group.clients,
                self._settings.process_id,
                now_ms=self._now_ms,
                interval_ms=self._settings.assignment.probing_rebalance_interval_ms,
            )
        assignments, stable = yield from self._encode(
            step, decision.placements, deadlines, custom=False, warmups=decision.warmups
        )
        return self._publish(step, assignments, stable=stable)

    def _look_up_racks(self, step: Gathered) -> Steps[RackOptimiser | None]:
        self._phase = Phase.RACKS
        question, obstacle = rack_question(step.group, step.table, step.topics, self._settings.assignment)
        optimiser: RackOptimiser | None = None
        if question is not None:
            described: Mapping[str, tuple[PartitionInfo, ...] | AdminError] = {}
            if question.topics:
                described = (yield from ask(DescribeTopics(question.topics))).topics
                self._notices.append(Observe(RacksDescribed(described)))
            optimiser, obstacle = question.answer(described, self._settings.rack_optimiser)
        if obstacle:
            self._say(_WARNING, f"racks are not taken into account: {obstacle}")
        return optimiser

    def _assign_custom(self, step: Gathered) -> Steps[_Effects]:
        """Run the application's assignor; continue without its answer if that is not usable."""
        settings = self._settings
        name = assignor_name(settings.task_assignor)
        self._phase = Phase.ASSIGNOR
        state = application_state(step.problem, step.table, step.topics, (yield from self._describe_internal(step)))
        event = yield from ask(RunAssignor(settings.task_assignor, settings.original_configs, state))
        if isinstance(event, AssignorFailed):
            return (yield from self._assignor_failed(step, event.error))
        try:
            answer = read_assignment(event.assignment, state, name, reference_behaviour=settings.reference_behaviour)
        except AssignorError as error:
            return (yield from self._assignor_failed(step, error))
        subscription = GroupSubscription(dict(step.request.members))
        if answer.error in (AssignmentError.UNKNOWN_PROCESS_ID, AssignmentError.UNKNOWN_TASK_ID):
            self._notices.append(NotifyAssignor(GroupAssignment(), subscription, answer.error))
            return (yield from self._assignor_failed(step, answer.as_error(name)))
        deadlines = answer.deadlines if self._is_trusted() else self._with_floor(answer.deadlines, name)
        try:
            assignments, stable = yield from self._encode(step, answer.placements, deadlines, custom=True)
        except TaskAssignmentError as error:
            return (yield from self._assignor_failed(step, error))
        everybody = self._with_refused(step, assignments)
        self._notices.append(NotifyAssignor(GroupAssignment(everybody), subscription, answer.error))
        if answer.error is not AssignmentError.NONE:
            return (yield from self._assignor_failed(step, answer.as_error(name)))
        again = ReplayedAssignor.if_ours(
            settings, partial(application_state, table=step.table, topics=step.topics), answer.placements
        )
        if again is not None:
            self._notices.append(Remember(self._now_ms, step.problem, again))
        self._warn_of_idle(step, [task for placed in answer.placements.values() for task in placed.active], name)
        return self._publish(step, assignments, stable=stable)

    def _describe_internal(self, step: Gathered) -> Steps[Mapping[str, tuple[PartitionInfo, ...] | AdminError]]:
        """Describe internal topics for their racks.

        The application's own assignor may request racks at any time. Built-in assignors need them only with a rack
        strategy.
        """
        settings = self._settings
        ours = public_built_in(settings.task_assignor) is not None
        wanted = undescribed_topics(step.table, step.topics)
        if not wanted or (ours and settings.assignment.rack_aware_assignment_strategy == STRATEGY_NONE):
            return {}
        return (yield from ask(DescribeTopics(wanted))).topics

    def _is_trusted(self) -> bool:
        """Whether a follow-up time in the past is intended.

        That is the case for built-in assignors, and when the leader must behave exactly like Kafka Streams.
        """
        settings = self._settings
        return settings.reference_behaviour or public_built_in(settings.task_assignor) is not None

    def _with_floor(self, deadlines: Mapping[ProcessId, int], name: str) -> dict[ProcessId, int]:
        """Return the follow-up times, none earlier than ``FOLLOW_UP_FLOOR_MS`` from now.

        An assignor with a wrong clock or calculation would otherwise make the group rebalance without a pause.
        """
        earliest_ms = self._now_ms + FOLLOW_UP_FLOOR_MS
        early = sorted(client for client, deadline_ms in deadlines.items() if deadline_ms < earliest_ms)
        if early:
            self._say(
                _WARNING,
                f"task assignor {name} wants a follow-up rebalance in the past or in less than {FOLLOW_UP_FLOOR_MS} ms "
                f"from client {', '.join(map(str, early))}; using {FOLLOW_UP_FLOOR_MS} ms from now instead",
            )
        return {client: max(deadline_ms, earliest_ms) for client, deadline_ms in deadlines.items()}

    def _warn_of_idle(self, step: Gathered, placed: Collection[TaskId], name: str) -> None:
        idle = sorted(set(step.table.tasks).difference(placed))
        if idle:
            self._say(
                _WARNING,
                f"task {', '.join(map(str, idle))} is not assigned to any client: no member reads "
                f"{', '.join(str(tp) for task in idle for tp in step.table.inputs[task])} until task assignor {name} "
                "places it",
            )

    def _assignor_failed(self, step: Gathered, error: StreamsError) -> Steps[_Effects]:
        """Keep all tasks with their members and report the error to the application.

        With ``reference_behaviour`` the error is raised, as in Kafka Streams.
        """
        if self._settings.reference_behaviour:
            raise error
        self._notices.append(ReportError(error))
        threads = keep_current(
            step.group,
            step.histories,
            step.table,
            step.request.members,
            standbys_max=self._settings.assignment.num_standby_replicas,
        )
        deadlines = probing_deadlines(
            step.group.clients,
            self._settings.process_id,
            now_ms=self._now_ms,
            interval_ms=self._settings.assignor_retry_ms,
        )
        owned = [task for each in threads.values() for mine in each.active.values() for task in mine]
        self._warn_of_idle(step, owned, assignor_name(self._settings.task_assignor))
        self._notices.append(Observe(Decided(None, threads, deadlines)))
        yield from ask(EnterStep(AssignStep.ENCODE))
        assignments, stable = encode_assignments(step.group, step.histories, step.table, threads, deadlines)
        return self._publish(step, assignments, stable=stable)

    def _encode(
        self,
        step: Gathered,
        placements: Mapping[ProcessId, Placement],
        deadlines: Mapping[ProcessId, int],
        *,
        custom: bool,
        warmups: tuple[tuple[TaskId, ProcessId], ...] = (),
    ) -> Steps[tuple[dict[str, MemberAssignment], bool]]:
        yield from ask(EnterStep(AssignStep.THREADS))
        threads = spread_over_threads(step.group, step.histories, step.table, placements, custom=custom)
        self._notices.append(Observe(Decided(placements, threads, deadlines, warmups)))
        yield from ask(EnterStep(AssignStep.ENCODE))
        return encode_assignments(step.group, step.histories, step.table, threads, deadlines)

    def _publish(self, step: Gathered, assignments: dict[str, MemberAssignment], *, stable: bool) -> _Effects:
        self._phase = Phase.DONE
        return (PublishAssignments(self._with_refused(step, assignments), stable and not step.group.refused),)

    @staticmethod
    def _with_refused(step: Gathered, assignments: dict[str, MemberAssignment]) -> dict[str, MemberAssignment]:
        return assignments | error_assignments(sorted(step.group.refused), ErrorCode.ASSIGNMENT_ERROR)

    def _publish_error(self, request: AssignRequested, code: ErrorCode, error: StreamsError) -> _Effects:
        self._phase = Phase.DONE
        self._say(_ERROR, f"all members receive error assignment {code.value} ({code.name}): {error}")
        return (PublishAssignments(error_assignments(sorted(request.members), code), None, error),)

    def _fail(self, error: Exception) -> _Effects:
        self._phase = Phase.FAILED
        return (FailAssign(error),)

    # -- log lines ----------------------------------------------------------------------------------------------------

    def _say(self, level: int, text: str) -> None:
        self._notices.append(Log(level, text))

    def _warn(self, texts: Collection[str]) -> None:
        for text in texts:
            self._say(_WARNING, text)

    def _log_group(self, group: Group) -> None:
        for member, reason in group.refused.items():
            self._say(
                _ERROR, f"member {member} receives an error assignment, the other members are not affected: {reason}"
            )
        if group.claimed_twice:
            claims = ", ".join(map(str, sorted(group.claimed_twice)))
            self._say(_WARNING, f"partitions claimed by more than one member: {claims}")
        if group.future_version is not None:
            self._say(_INFO, f"a member uses version {group.future_version}; this leader answers it in its own version")
