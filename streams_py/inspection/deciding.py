"""Decides an assignment for a running group with the leader's own code. Read-only.

This module requests end offsets and topics from the cluster, and creates no topics.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from streams_protocol.types import TaskId, TopicPartition
from streams_py.assignment.explanation import TaskExplanation
from streams_py.errors import IllegalStateError, StreamsError
from streams_py.leader import GroupLeader, run_assign
from streams_py.leader.effects import FailAssign
from streams_py.leader.events import AssignRequested
from streams_py.leader.executor import Executor
from streams_py.leader.observation import Decided, Fact, Gathered
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import Admin, AdminError, AdminErrorKind, MemberAssignment, PartitionInfo, TopicSpec
from streams_py.runtime.group.classic.assignor_runner import AssignorRunner

_ASSIGNOR_TIMEOUT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The assignment that the leader would decide.

    Attributes:
        gathered: Offsets and topics that the decision is based on.
        decided: The decision.
        explanations: Reasons by task. Empty for a custom assignor, because only the assignor itself knows its reasons.
        assignments: Assignment of each member, by member id.
        owners: The member that will run each task, even if the task is withheld from it for now.
        warnings: Warnings of the leader.
    """

    gathered: Gathered
    decided: Decided
    explanations: Mapping[TaskId, TaskExplanation]
    assignments: Mapping[str, MemberAssignment]
    owners: Mapping[TaskId, str]
    warnings: tuple[str, ...]


def decide(admin: Admin, group: str, request: AssignRequested, settings: LeaderSettings) -> Answer:
    """Return the assignment that the leader would decide.

    Raises:
        StreamsError: The leader could not decide, with the reason.
        BrokerUnavailableError: No broker answers.
    """
    executor = _RecordingExecutor(admin, group)
    outcome = run_assign(GroupLeader(settings), request, executor.carry_out)
    if isinstance(outcome, FailAssign):
        if isinstance(outcome.error, StreamsError):
            raise outcome.error
        raise StreamsError(f"the leader of group {group} could not assign: {outcome.error}") from outcome.error
    if outcome.error is not None:
        raise outcome.error
    if executor.gathered is None or executor.decided is None:
        raise IllegalStateError("the leader published an assignment without a decision")
    explained = executor.explanations
    return Answer(
        executor.gathered,
        executor.decided,
        {
            found[0].explanation.task: found[0].explanation
            for t in explained.tasks()
            if (found := explained.explanation(t))
        },
        outcome.assignments,
        {
            task: consumer
            for threads in executor.decided.threads.values()
            for consumer, tasks in threads.active.items()
            for task in tasks
        },
        tuple(executor.warnings),
    )


class _RecordingExecutor(Executor):
    """Executes the leader's effects and keeps its intermediate results."""

    def __init__(self, admin: Admin, group: str) -> None:
        runner = AssignorRunner(timeout_ms=_ASSIGNOR_TIMEOUT_MS)
        super().__init__(_ReadOnly(admin), _Clock(), runner, group=group)
        self.gathered: Gathered | None = None
        self.decided: Decided | None = None
        self.warnings: list[str] = []

    def observe(self, fact: Fact) -> None:
        match fact:
            case Gathered():
                self.gathered = fact
            case Decided():
                self.decided = fact

    def log(self, level: int, text: str) -> None:
        if level >= logging.WARNING:
            self.warnings.append(text)

    def report(self, error: StreamsError) -> None:
        self.warnings.append(str(error))


class _Clock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)


class _ReadOnly:
    """Read-only access to the cluster."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def describe_topics(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        return self._admin.describe_topics(names)

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        refused = AdminError(
            AdminErrorKind.OTHER, "the topic does not exist, and a read-only command does not create it"
        )
        return {spec.name: refused for spec in specs}

    def list_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | AdminError]:
        return self._admin.list_offsets(partitions)

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        return self._admin.committed_offsets(group, partitions)
