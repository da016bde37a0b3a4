"""The tasks of a group with their members, and its expected rebalances.

The view is computed from the members' bytes. The protocol does not carry the topics of a sub-topology. The members'
assignments show them, because they contain the partitions of each active task. Tasks without a member are found by the
partitions of those topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from streams_protocol import NO_FOLLOW_UP, ErrorCode
from streams_protocol.types import TaskId, TopicPartition
from streams_py.inspection.election import Election
from streams_py.inspection.ended_processes import EndedProcess
from streams_py.inspection.members import Member

Subtopology: TypeAlias = tuple[str, int]
"""Name of the topology ("" for an unnamed one) and number of the sub-topology."""

CLASSIC: Final = "classic"
STREAMS: Final = "streams"

_PARTITIONS_MAX = 1_000_000  # per sub-topology: a damaged assignment must not create up to 2^31 tasks


class CopyKind(Enum):
    """The purpose of a copy of a task."""

    STANDBY = "standby"
    WARM_UP = "warm-up"


@dataclass(frozen=True, slots=True)
class Copy:
    """A standby or warm-up task at a member.

    ``reported`` is the offset sum, in records, that the member's process reported when it last joined, or None without
    state. ``lag`` is its distance from the present end of the changelogs, or None if unknown.
    """

    member_id: str
    kind: CopyKind
    reported: int | None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A task and its place.

    If ``owner`` is None, no member runs the task. ``coming_from`` is then the member that still owned its partitions at
    the last rebalance, so that the task had to be withheld for one rebalance (KIP-429). ``input_lag`` is in records.
    """

    id: TaskId
    partitions: frozenset[TopicPartition]
    owner: str | None
    coming_from: str | None
    copies: tuple[Copy, ...] = ()
    is_stateful: bool = False
    input_lag: int | None = None
    heading_to: str | None = None
    """The member that will run the task next, if the coordinator reports it (streams protocol)."""

    @property
    def subtopology(self) -> Subtopology:
        """The sub-topology of the task."""
        return self.id.name, self.id.subtopology


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A member that will request another rebalance. ``at_ms``: epoch, 0 = immediately."""

    member_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its coordinator knows it.

    ``generation`` is exact if there is an election. Otherwise it is a lower bound.
    """

    group: str
    state: str
    election: Election | None
    generation: int | None
    members: tuple[Member, ...]
    tasks: tuple[Task, ...]
    follow_ups: tuple[FollowUp, ...] = ()
    topics_without_tasks: tuple[str, ...] = ()
    """Subscribed topics that no assignment of this generation mentions."""
    problems: tuple[str, ...] = field(default=())
    ended: tuple[EndedProcess, ...] = ()
    """Processes of this host that have ended, and whose members the group still has."""
    protocol: str = CLASSIC
    """The group protocol.

    For ``streams`` (KIP-1071), the coordinator decides without a leader, and ``generation`` is the group's epoch.
    """


def subtopology_topics(members: Iterable[Member]) -> dict[Subtopology, frozenset[str]]:
    """Return the source topics of each sub-topology, as far as assignments show them."""
    topics: defaultdict[Subtopology, set[str]] = defaultdict(set)
    for member in members:
        for given in (member.active, member.standby):
            for task, partitions in given.items():
                topics[task.name, task.subtopology].update(topic for topic, _ in partitions)
    return {key: frozenset(names) for key, names in topics.items()}


def view_group(
    group: str, state: str, members: Collection[Member], partition_counts: Mapping[str, int], election: Election | None
) -> GroupView:
    """Return the view of the members.

    ``partition_counts`` are those of the subscribed topics that exist.
    """
    ordered = tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))
    topics = subtopology_topics(ordered)
    tasks = _tasks(ordered, topics, partition_counts)
    subscribed = {topic for member in ordered for topic in member.topics}
    known = frozenset().union(*topics.values())
    return GroupView(
        group,
        state,
        election,
        _generation(ordered, election),
        ordered,
        tasks,
        tuple(_follow_ups(ordered)),
        tuple(sorted(subscribed - known)),
        tuple(_problems(ordered, partition_counts)),
    )


def _generation(members: Iterable[Member], election: Election | None) -> int | None:
    if election is not None:
        return election.generation
    before = [member.generation for member in members if member.generation is not None]
    return max(before) + 1 if before else None


def _follow_ups(members: Iterable[Member]) -> Iterable[FollowUp]:
    for member in members:
        if member.assignment is not None and member.assignment.next_rebalance_ms != NO_FOLLOW_UP:
            yield FollowUp(member.member_id, member.assignment.next_rebalance_ms)


def _tasks(
    members: Collection[Member], topics: Mapping[Subtopology, frozenset[str]], partition_counts: Mapping[str, int]
) -> tuple[Task, ...]:
    owners = {task: member.member_id for member in members for task in member.active}
    partitions: dict[TaskId, frozenset[TopicPartition]] = {}
    for member in members:
        partitions |= member.standby
        partitions |= member.active
    for (name, subtopology), read in topics.items():
        counts = {topic: partition_counts.get(topic, 0) for topic in read}
        for partition in range(min(max(counts.values(), default=0), _PARTITIONS_MAX)):
            task = TaskId(subtopology, partition, name)
            if task not in partitions:
                partitions[task] = frozenset(
                    TopicPartition(topic, partition) for topic, count in counts.items() if partition < count
                )
    holders = {tp: member.member_id for member in members for tp in member.owned}
    copies = _copies(members)
    reported = {task for member in members if member.subscription for task in member.subscription.task_offset_sums}
    stateful = {(task.name, task.subtopology) for task in (*copies, *reported)}
    return tuple(
        Task(
            task,
            read,
            owners.get(task),
            None if task in owners else next((holders[tp] for tp in sorted(read) if tp in holders), None),
            copies.get(task, ()),
            (task.name, task.subtopology) in stateful,
        )
        for task, read in sorted(partitions.items(), key=lambda item: item[0])
    )


def _copies(members: Collection[Member]) -> dict[TaskId, tuple[Copy, ...]]:
    """Return standby and warm-up tasks.

    Both look the same in the protocol. Warm-up tasks exist only while a follow-up rebalance is planned. They are copies
    beyond ``num.standby.replicas``, which is at most the number of copies of the task with the fewest copies. If a task
    has more copies, those with the lowest offsets are taken as warm-up tasks.
    """
    # By process, because its threads share the state directory.
    sums: defaultdict[str, dict[TaskId, int]] = defaultdict(dict)
    for member in members:
        if member.subscription is not None:
            sums[member.process] |= member.subscription.task_offset_sums
    found: defaultdict[TaskId, list[tuple[int, str, int | None]]] = defaultdict(list)
    for member in members:
        for task in member.standby:
            reported = sums[member.process].get(task)
            rank = -1 if reported is None else 2**63 if reported < 0 else reported  # negative: the task ran there
            found[task].append((rank, member.member_id, reported))
    warming = any(True for _ in _follow_ups(members))
    stateful = {(task.name, task.subtopology) for task in found}
    at_work = [t for m in members for t in m.active if (t.name, t.subtopology) in stateful]
    replicas = min((len(found.get(task, ())) for task in at_work), default=0) if warming else 2**31
    return {
        task: tuple(
            Copy(member_id, CopyKind.STANDBY if place < replicas else CopyKind.WARM_UP, reported)
            for place, (_, member_id, reported) in enumerate(sorted(copies, key=lambda copy: (-copy[0], copy[1])))
        )
        for task, copies in found.items()
    }


def _problems(members: Collection[Member], partition_counts: Mapping[str, int]) -> Iterable[str]:
    subscriptions = {member.topics for member in members if member.topics}
    for member in members:
        for problem in member.problems:
            yield f"{member.client_id}: {problem}"
        code = 0 if member.assignment is None else member.assignment.error_code
        if code:
            name = ErrorCode(code).name if code in {known.value for known in ErrorCode} else f"code {code}"
            yield f"{member.client_id}: the leader sent it an error: {name}"
    for topic in sorted({topic for topics in subscriptions for topic in topics} - partition_counts.keys()):
        yield f"subscribed topic {topic} does not exist"
    if len({frozenset(topics) for topics in subscriptions}) > 1:
        yield "members subscribe to different topics: several topologies use this application.id"
    versions = {m.assignment.version for m in members if m.assignment is not None}
    if len(versions) > 1:
        listed = ", ".join(map(str, sorted(versions)))
        yield f"assignments have different versions ({listed}): several releases are running"
