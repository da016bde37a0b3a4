"""Who has which task of a group, which tasks nobody has, and what happens next: a fold over the members' bytes.

The protocol does not say which sub-topology reads which topics; the members' assignments do, because they pair each
active task with its partitions. Tasks that nobody was given are found by the partitions of those topics.
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
from streams_py.inspection.members import Member

__all__ = [
    "CLASSIC",
    "STREAMS",
    "Copy",
    "CopyKind",
    "FollowUp",
    "GroupView",
    "Subtopology",
    "Task",
    "subtopology_topics",
    "view_group",
]

Subtopology: TypeAlias = tuple[str, int]
"""Name of the topology ("" when it has none), number of the sub-topology."""

CLASSIC: Final = "classic"
STREAMS: Final = "streams"

_PARTITIONS_MAX = 1_000_000  # of one sub-topology: a damaged assignment must not make us list the numbers up to 2^31


class CopyKind(Enum):
    """What a second copy of a task is for."""

    STANDBY = "standby"
    WARM_UP = "warm-up"


@dataclass(frozen=True, slots=True)
class Copy:
    """A standby or warm-up of a task at a member.

    ``reported`` is the offset sum, in records, that the member's process gave for it when it last joined; None when it
    had no state. ``lag`` is how far that was behind the changelogs' present end; None when that is not known.
    """

    member_id: str
    kind: CopyKind
    reported: int | None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A task and where it is. ``owner`` None: nobody runs it; ``coming_from`` then says who still held its partitions
    when the group last joined, so that it had to be withheld for a round (KIP-429). ``input_lag`` in records."""

    id: TaskId
    partitions: frozenset[TopicPartition]
    owner: str | None
    coming_from: str | None
    copies: tuple[Copy, ...] = ()
    is_stateful: bool = False
    input_lag: int | None = None
    heading_to: str | None = None
    """Who is to run it instead of ``owner``, where the coordinator says so (streams protocol)."""

    @property
    def subtopology(self) -> Subtopology:
        """Whose partition it is."""
        return self.id.name, self.id.subtopology


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A member was told to ask for another rebalance. ``at_ms``: epoch, 0 = at once."""

    member_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its coordinator knows it. ``generation`` is exact with an election, else the least it can be."""

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
    protocol: str = CLASSIC
    """``streams`` (KIP-1071): the coordinator decides, nobody leads, and ``generation`` is the group's epoch."""


def subtopology_topics(members: Iterable[Member]) -> dict[Subtopology, frozenset[str]]:
    """Sub-topology -> the topics that its tasks read, as far as assignments tell."""
    topics: defaultdict[Subtopology, set[str]] = defaultdict(set)
    for member in members:
        for given in (member.active, member.standby):
            for task, partitions in given.items():
                topics[task.name, task.subtopology].update(topic for topic, _ in partitions)
    return {key: frozenset(names) for key, names in topics.items()}


def view_group(
    group: str, state: str, members: Collection[Member], partition_counts: Mapping[str, int], election: Election | None
) -> GroupView:
    """Put the members together. ``partition_counts``: of the topics they subscribe to, as far as these exist."""
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
    """Standbys and warm-ups.

    They look the same on the wire. Warm-ups exist only while a follow-up rebalance is planned for them, and are copies
    beyond ``num.standby.replicas``; that number is at most what the task with the fewest copies has. Of a task with
    more, those that are furthest behind are taken for the warm-ups.
    """
    sums: defaultdict[str, dict[TaskId, int]] = defaultdict(dict)  # by process: the state directory is shared
    for member in members:
        if member.subscription is not None:
            sums[member.process] |= member.subscription.task_offset_sums
    found: defaultdict[TaskId, list[tuple[int, str, int | None]]] = defaultdict(list)
    for member in members:
        for task in member.standby:
            reported = sums[member.process].get(task)
            rank = -1 if reported is None else 2**63 if reported < 0 else reported  # negative: it ran there
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
            yield f"{member.client_id}: its leader answered with an error: {name}"
    for topic in sorted({topic for topics in subscriptions for topic in topics} - partition_counts.keys()):
        yield f"topic {topic} is subscribed to and does not exist"
    if len({frozenset(topics) for topics in subscriptions}) > 1:
        yield "members subscribe to different topics: more than one topology runs under this application.id"
    versions = {m.assignment.version for m in members if m.assignment is not None}
    if len(versions) > 1:
        yield f"assignments have different versions ({', '.join(map(str, sorted(versions)))}): releases are mixed"
