"""The view of a group of the streams protocol (KIP-1071).

The coordinator of such a group knows the topology and assigns the tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from streams_protocol import SubscriptionInfo
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.inspection.members import Member
from streams_py.inspection.view import STREAMS, Copy, CopyKind, GroupView, Subtopology, Task
from streams_py.ports.described_groups import DescribedStreamsGroup, DescribedStreamsMember
from streams_py.system.printable import printable


def view_streams_group(described: DescribedStreamsGroup, partition_counts: Mapping[str, int]) -> GroupView:
    """Return the view of the group. ``partition_counts`` are those of all visible topics."""
    ordered = sorted(described.members, key=lambda member: (member.client_id, member.member_id))
    reads: dict[int, dict[str, int]] = {}
    for sub in described.subtopologies:
        topics = (*sub.source_topics, *sub.repartition_topics)
        reads[sub.id] = {topic: partition_counts.get(topic, 0) for topic in topics}
    members = tuple(_member(member, reads) for member in ordered)
    missing = sorted({topic for topics in reads.values() for topic, count in topics.items() if not count})
    return GroupView(
        described.group,
        described.state,
        None,
        described.epoch,
        members,
        _tasks(described, ordered, reads),
        problems=(
            *(f"{member.client_id}: {problem}" for member in members for problem in member.problems),
            *(f"source topic {topic} does not exist, or this user may not see it" for topic in missing),
            *(
                f"sub-topology {name!r:.60} has an id that is not a number, so its tasks are missing here"
                for name in described.unknown
            ),
        ),
        protocol=STREAMS,
    )


def reported_changelogs(
    described: DescribedStreamsGroup, partition_counts: Mapping[str, int]
) -> dict[Subtopology, list[str]]:
    """Return the existing changelog topics of each sub-topology."""
    return {
        ("", sub.id): [topic for topic in sub.changelog_topics if topic in partition_counts]
        for sub in described.subtopologies
    }


def _member(member: DescribedStreamsMember, reads: Mapping[int, Mapping[str, int]]) -> Member:
    def inputs(tasks: frozenset[TaskId]) -> dict[TaskId, frozenset[TopicPartition]]:
        return {task: _inputs(task, reads) for task in sorted(tasks)}

    process = _process(member.process_id)
    return Member(
        member.member_id,
        None if member.instance_id is None else printable(member.instance_id),
        printable(member.client_id),
        printable(member.client_host),
        tuple(sorted({topic for task in member.active for topic in reads.get(task.subtopology, ())})),
        rack=printable(member.rack) if member.rack else None,
        subscription=None
        if process is None
        else SubscriptionInfo(
            process, endpoint=member.endpoint, task_offset_sums=member.offsets, client_tags=member.tags
        ),
        active=inputs(member.active),
        standby=inputs(member.standby | member.warm_up),
        problems=() if process is not None else (f"its process id {member.process_id!r:.60} is not valid",),
        protocol=STREAMS,
    )


def _process(text: str) -> ProcessId | None:
    try:
        return ProcessId.parse(text)
    except ValueError:
        return None


def _inputs(task: TaskId, reads: Mapping[int, Mapping[str, int]]) -> frozenset[TopicPartition]:
    counts = reads.get(task.subtopology, {})
    return frozenset(TopicPartition(topic, task.partition) for topic, count in counts.items() if task.partition < count)


def _tasks(
    described: DescribedStreamsGroup, members: list[DescribedStreamsMember], reads: Mapping[int, Mapping[str, int]]
) -> tuple[Task, ...]:
    owners = {task: member.member_id for member in members for task in member.active}
    targets = {task: member.member_id for member in members for task in member.target}
    copies: defaultdict[TaskId, list[Copy]] = defaultdict(list)
    for member in members:
        for kind, tasks in ((CopyKind.STANDBY, member.standby), (CopyKind.WARM_UP, member.warm_up)):
            for task in tasks:
                at, end = member.offsets.get(task), member.end_offsets.get(task)
                lag = None if at is None or end is None else max(end - at, 0)
                copies[task].append(Copy(member.member_id, kind, at, lag))
    everything = {TaskId(sub, n) for sub, topics in reads.items() for n in range(max(topics.values(), default=0))}
    stateful = {sub.id for sub in described.subtopologies if sub.changelog_topics}
    return tuple(
        Task(
            task,
            _inputs(task, reads),
            owners.get(task),
            None,
            tuple(copies.get(task, ())),
            task.subtopology in stateful,
            heading_to=target if (target := targets.get(task)) != owners.get(task) else None,
        )
        for task in sorted(everything | owners.keys() | copies.keys())
    )
