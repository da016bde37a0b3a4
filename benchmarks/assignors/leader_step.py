"""The leader's assign step in a large group, from the bytes of JoinGroup to the bytes of SyncGroup.

Every client has one member and its offsets, and every task has a changelog. The cluster answers immediately from
prepared tables. Messages are encoded and decoded as in production, where every message is decoded again before it is
sent.

With an end point on every client (``application.server``), each member receives the location of all tasks. So the
answer is a thousand times as long: 264 MB for 10,000 tasks and 1,000 members. Brokers accept 100 MB
(``socket.request.max.bytes``). In that case nothing is decoded again, and at most one member's bytes exist twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from benchmarks.assignors.scenarios import Scenario, problem_of
from streams_protocol import (
    Assignment,
    SubscriptionInfo,
    decode_assignment_info,
    encode_assignment,
    encode_subscription_info,
)
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.adapters.kafka_python.classic.payloads import (
    assignments_to_send,
    readable_members,
    subscription_to_send,
)
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import ClientInput
from streams_py.events.observers import AssignObserver
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import PublishAssignments
from streams_py.leader.events import AssignRequested
from streams_py.leader.executor import Executor
from streams_py.leader.leader import GroupLeader
from streams_py.leader.observation import Fact
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import AdminError, MemberAssignment, PartitionInfo, TopicSpec
from streams_py.runtime.group.classic.assignor_runner import AssignorRunner
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

_NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class LeaderStep:
    """The input of one assign step."""

    settings: LeaderSettings
    topology: TopologyMetadata
    topics: Mapping[str, tuple[PartitionInfo, ...]]
    ends: Mapping[TopicPartition, int]
    members: list[tuple[str, bytes]]
    end_points: bool

    def run(self) -> int:
        """Run the step; return the number of bytes to send."""
        members = readable_members(self.members)
        inputs = {name: infos for name, infos in self.topics.items() if name in self.topology.source_topics}
        request = AssignRequested(_NOW_MS, members, inputs, self.topology)
        result = run_assign(GroupLeader(self.settings), request, StepExecutor(self, AssignObserver()).carry_out)
        if not isinstance(result, PublishAssignments):
            raise result.error
        if not self.end_points:
            return sum(map(len, assignments_to_send(result.assignments, members, decode_assignment_info).values()))
        return sum(len(encode_assignment(Assignment(*given))) for given in map(_fields, result.assignments.values()))

    # -- the cluster and the clock of the executor, with prepared answers -----------------------------

    def describe_topics(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...]]:
        """Answer from the prepared tables."""
        return {name: self.topics[name] for name in names}

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        """Not used: all topics exist."""
        raise NotImplementedError

    def list_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Answer from the prepared tables."""
        return self.ends

    def committed_offsets(self, group: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, None]:
        """Answer that nothing is committed."""
        return dict.fromkeys(partitions)

    def now_ms(self) -> int:
        """Return a fixed time."""
        return _NOW_MS

    def sleep_ms(self, duration_ms: int) -> None:
        """Do nothing."""


class StepExecutor(Executor):
    """Executes the effects of a step, with an observer."""

    def __init__(self, step: LeaderStep, watch: AssignObserver) -> None:
        super().__init__(step, step, AssignorRunner(timeout_ms=60_000), group="app")
        self._watch = watch

    def observe(self, fact: Fact) -> None:
        """Pass the fact to the observer."""
        self._watch.observe(fact)


def leader_step(scenario: Scenario, *, end_points: bool) -> LeaderStep:
    """Return the step for a scenario's group."""
    problem = problem_of(replace(scenario, assignor="high_availability"), HashSizing.JDK_19_AND_NEWER)
    numbers = sorted({task.subtopology for task in problem.tasks})
    topology = TopologyMetadata({number: _subtopology(number) for number in numbers})
    topics = {}
    for number in numbers:
        partitions = sum(task.subtopology == number for task in problem.tasks)
        for name in (_input(number), _changelog(number)):
            topics[name] = tuple(
                PartitionInfo(name, p, p % 3, (p % 3, (p + 1) % 3), frozenset()) for p in range(partitions)
            )
    ends = {
        TopicPartition(_changelog(task.subtopology), task.partition): end
        for task, end in problem.end_offset_sums.items()
    }
    members = [
        (
            f"app-{client.process_id}-StreamThread-1-consumer-{uuid.UUID(int=number)}",
            _member(topology, client, ends, end_points),
        )
        for number, client in enumerate(problem.clients)
    ]
    leader = problem.clients[0].process_id
    settings = LeaderSettings(leader, ProcessId(uuid.UUID(int=1)), problem.configs)
    return LeaderStep(settings, topology, topics, ends, members, end_points)


def _member(
    topology: TopologyMetadata, client: ClientInput, ends: Mapping[TopicPartition, int], end_point: bool
) -> bytes:
    sums = {task: lag if lag < 0 else ends[_changelog_of(task)] - lag for task, lag in client.lags.items()}
    info = SubscriptionInfo(
        client.process_id,
        endpoint=f"{client.process_id}.example.com:8080" if end_point else None,
        task_offset_sums=sums,
    )
    return subscription_to_send(
        topics=sorted(topology.source_topics),
        user_data=encode_subscription_info(info),
        owned=[TopicPartition(_input(task.subtopology), task.partition) for task in client.previous_active],
        generation=1,
        rack=None,
        check=bytes,
    )


def _fields(given: MemberAssignment) -> tuple[tuple[TopicPartition, ...], bytes]:
    return given.partitions, given.user_data


def _subtopology(number: int) -> SubtopologyTopics:
    changelog = InternalTopic(_changelog(number), InternalTopicKind.CHANGELOG, None, {"cleanup.policy": "compact"})
    return SubtopologyTopics(
        source_topics=frozenset((_input(number),)),
        sink_topics=frozenset(),
        repartition_sources={},
        changelogs={changelog.name: changelog},
        stores=frozenset((f"store-{number}",)),
    )


def _input(number: int) -> str:
    return f"input-{number}"


def _changelog(number: int) -> str:
    return f"app-store-{number}-changelog"


def _changelog_of(task: TaskId) -> TopicPartition:
    return TopicPartition(_changelog(task.subtopology), task.partition)
