"""Rebuilds the request to assign of a running group's leader.

The bytes that the coordinator keeps are the source. The *last* question is the request of the last rebalance: what the
members sent when they joined. The *next* question is what they would send if they joined again now: they own their
assigned tasks, and the stores of running tasks are restored. The progress of their copies since the last rebalance is
not visible from outside. So there are two next questions. In the first, the copies have made no progress. In the
second, they have caught up. If both get the same answer, the progress does not matter.

The last question has the same gap, because the end offsets at that time are no longer known. With the current end
offsets, lags are the largest possible. With ``end_sums``, :func:`last_question` makes them the smallest possible.

Sub-topologies, stores and settings are not part of the protocol. Sub-topologies and stores are derived from assignments
and topics (:mod:`.changelogs`), and settings from the tasks of the members. Each assumption is returned as a sentence.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from streams_protocol import (
    LATEST_OFFSET,
    DecodeError,
    RepeatedTagDecodeError,
    SubscriptionInfo,
    decode_subscription,
    encode_subscription_info,
)
from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.draining import DRAINING_TAG
from streams_py.assignment.assignors.registry import INTERNAL_TASK_ASSIGNOR_CLASS
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.errors import StreamsError
from streams_py.inspection.changelogs import Changelogs, changelogs_of
from streams_py.inspection.gather import Reading
from streams_py.inspection.members import Member
from streams_py.inspection.view import CopyKind, GroupView, subtopology_topics
from streams_py.leader.events import AssignRequested
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import MemberSubscription
from streams_py.ports.described_groups import DescribedGroup, DescribedMember, DescribedStreamsGroup
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

Assumptions = tuple[str, ...]
"""Sentences about assumptions that nothing confirms."""

_TOPIC_SETUP_TIMEOUT_MS: Final = 2_000  # no topics are created here; only waits for leaders of partitions
_TAG_KEYS_MAX: Final = 5


def topology_of(reading: Reading) -> tuple[TopologyMetadata, Assumptions]:
    """Return the sub-topologies, as far as assignments show them.

    Raises:
        StreamsError: No assignment mentions a task, or the group uses named topologies.
    """
    view = reading.view
    read = subtopology_topics(view.members)
    named = sorted({name for name, _ in read if name})
    if named:
        raise StreamsError(
            f"group {view.group} runs named topologies ({', '.join(named)}): assignments for them cannot be computed"
        )
    if not read:
        raise StreamsError(f"no assignment of group {view.group} mentions a task; try again after its next rebalance")
    changelogs = changelogs_of(view, reading.partition_counts, groups=reading.groups)
    stateful = {task.subtopology for task in view.tasks if task.is_stateful}
    subs, assumed = {}, list(_guesses(changelogs))
    for key, topics in sorted(read.items()):
        sources = frozenset(topic for topic in topics if topic in reading.topics)
        own = changelogs.of(key)
        shared = frozenset[str]()
        if key in stateful and not own and sources:
            shared = frozenset({min(sources)})
            assumed.append(
                f"sub-topology {key[1]} has state but no changelog topic: source topic {min(sources)} is taken as one"
            )
        subs[key[1]] = SubtopologyTopics(
            source_topics=sources,
            sink_topics=frozenset(),
            repartition_sources={},
            changelogs={topic: InternalTopic(topic, InternalTopicKind.CHANGELOG) for topic in own},
            source_changelogs=shared,
            stores=frozenset(topic.removeprefix(f"{view.group}-").removesuffix("-changelog") for topic in own) | shared,
        )
    if view.topics_without_tasks:
        assumed.append(
            f"no assignment mentions {', '.join(view.topics_without_tasks)}, so tasks that read it are missing here"
        )
    return TopologyMetadata(subs), tuple(assumed)


def _guesses(changelogs: Changelogs) -> list[str]:
    return [
        f"{', '.join(topics)} may belong to another sub-topology; taken as a changelog of sub-topology {number}"
        for (_, number), topics in sorted(changelogs.guessed.items())
    ]


# -- settings ------------------------------------------------------------------------------------------------


def observed_configs(view: GroupView) -> dict[str, object]:
    """Return the settings that are visible in the group, with Kafka's keys and values."""
    standbys = warm_ups = 0
    for task in view.tasks:
        lasting = sum(copy.kind is CopyKind.STANDBY for copy in task.copies)
        standbys = max(standbys, lasting)
        warm_ups += len(task.copies) - lasting
    found: dict[str, object] = {"num.standby.replicas": standbys}
    if warm_ups > AssignmentConfigs().max_warmup_replicas:
        found["max.warmup.replicas"] = warm_ups
    keys = [_tag_keys(member) for member in view.members if member.subscription is not None]
    common = sorted(frozenset.intersection(*keys) - {DRAINING_TAG})[:_TAG_KEYS_MAX] if keys else []
    if common:
        found["rack.aware.assignment.tags"] = common
    return found


def _tag_keys(member: Member) -> frozenset[str]:
    try:
        return frozenset(member.subscription.client_tags) if member.subscription is not None else frozenset()
    except RepeatedTagDecodeError:
        return frozenset()


def leader_settings(view: GroupView, configs: Mapping[str, object], assignor: str | None) -> LeaderSettings:
    """Return settings with which the group's leader would decide.

    Args:
        view: The group.
        configs: All settings, with Kafka's keys.
        assignor: As in ``task.assignor.class``. None for the group's internal assignor.

    Raises:
        ConfigError: A value is not valid.
    """
    leader = None if view.election is None else view.election.leader
    processes = {m.member_id: m.subscription.process_id for m in view.members if m.subscription is not None}
    unknown = ProcessId(uuid.uuid5(uuid.NAMESPACE_URL, view.group))
    return LeaderSettings(
        process_id=processes.get(leader or "") or min(processes.values(), default=unknown),
        future_process_id=unknown,
        assignment=AssignmentConfigs.of(configs),
        internal_assignor=configs.get(INTERNAL_TASK_ASSIGNOR_CLASS),
        task_assignor=assignor,
        original_configs=configs,
        topic_setup_timeout_ms=_TOPIC_SETUP_TIMEOUT_MS,
    )


# -- questions -----------------------------------------------------------------------------------------------


def last_question(
    reading: Reading, topology: TopologyMetadata, now_ms: int, end_sums: Mapping[TaskId, int] | None = None
) -> AssignRequested:
    """Return the request of the last rebalance, with the members' data when they joined.

    Args:
        reading: The group.
        topology: Its sub-topologies.
        now_ms: Time of the request (epoch).
        end_sums: Present sum of the changelogs' end offsets of each stateful task. If given, the most advanced copy of
            a task counts as caught up, and the lags of the other copies are relative to it.
    """
    members = {raw.member_id: _subscription(raw) for raw in classic_group(reading).members}
    if end_sums is not None:
        members = _with_smallest_lags(reading, members, end_sums)
    return AssignRequested(now_ms, members, reading.topics, topology)


def _with_smallest_lags(
    reading: Reading, members: Mapping[str, MemberSubscription], end_sums: Mapping[TaskId, int]
) -> dict[str, MemberSubscription]:
    said = {
        member.member_id: member.subscription
        for member in reading.view.members
        if member.subscription is not None and not member.subscription.is_future
    }
    furthest: defaultdict[TaskId, int] = defaultdict(int)
    for info in said.values():
        for task, offset in info.task_offset_sums.items():
            furthest[task] = max(furthest[task], offset)
    near = dict(members)
    for member_id, info in said.items():
        sums = {
            task: offset if offset < 0 else max(offset, offset + end_sums.get(task, 0) - furthest[task])
            for task, offset in info.task_offset_sums.items()
        }
        if sums != info.task_offset_sums:
            user_data = encode_subscription_info(replace(info, task_offset_sums=sums))
            near[member_id] = members[member_id]._replace(user_data=user_data)
    return near


def classic_group(reading: Reading) -> DescribedGroup:
    """Return the members' bytes.

    Raises:
        StreamsError: The group uses the streams protocol, in which members do not assign tasks.
    """
    if isinstance(reading.described, DescribedStreamsGroup):
        raise StreamsError(
            f"group {reading.view.group} uses the streams protocol (KIP-1071): its coordinator, a broker, assigns the "
            "tasks and gives no reasons; streams-py inspect shows the tasks of each member"
        )
    return reading.described


def _subscription(raw: DescribedMember) -> MemberSubscription:
    """Return the decoded subscription, or an empty one if it cannot be decoded.

    The leader refuses an empty subscription, as it would in the group.
    """
    try:
        sent = decode_subscription(raw.subscription)
    except DecodeError:
        return MemberSubscription((), None, (), -1, None)
    return MemberSubscription(
        sent.topics,
        sent.user_data,
        sent.owned_partitions,
        -1 if sent.generation_id is None else sent.generation_id,
        sent.rack_id,
    )


def next_question(
    reading: Reading,
    topology: TopologyMetadata,
    now_ms: int,
    end_sums: Mapping[TaskId, int],
    *,
    caught_up: bool = False,
) -> AssignRequested:
    """Return the request of a rebalance now, as the members would describe themselves.

    Args:
        reading: The group.
        topology: Its sub-topologies.
        now_ms: Time of the request (epoch).
        end_sums: Present sum of the changelogs' end offsets of each stateful task.
        caught_up: Whether all standby and warm-up tasks have caught up. Otherwise they have made no progress since the
            last rebalance.
    """
    last = last_question(reading, topology, now_ms)
    members = {member.member_id: member for member in reading.view.members}
    running: defaultdict[str, set[TaskId]] = defaultdict(set)
    for member in members.values():
        running[member.process].update(member.active)
    generation = reading.view.generation
    joining = {}
    for member_id, said in last.members.items():
        member = members[member_id]
        if member.assignment is None or member.subscription is None or member.subscription.is_future:
            joining[member_id] = said
            continue
        sums = _sums_now(member, member.subscription, running[member.process], end_sums)
        if caught_up:
            sums |= {task: max(end_sums.get(task, 0), sums[task], 0) for task in member.standby}
        info = replace(member.subscription, task_offset_sums=sums, running_and_standby=frozenset())
        owned = tuple(sorted(partition for partitions in member.active.values() for partition in partitions))
        joining[member_id] = said._replace(
            user_data=encode_subscription_info(info),
            owned=owned,
            generation=said.generation if generation is None else generation,
        )
    return replace(last, members=joining)


def _sums_now(
    member: Member, said: SubscriptionInfo, running: set[TaskId], end_sums: Mapping[TaskId, int]
) -> dict[TaskId, int]:
    sums = {task: offset for task, offset in said.task_offset_sums.items() if task not in running}
    for task, offset in sums.items():
        if offset == LATEST_OFFSET:  # the task ran here, and its state is still on disk
            sums[task] = max(end_sums.get(task, 0), 0)
    for task in member.standby:
        sums.setdefault(task, 0)
    return sums | {task: LATEST_OFFSET for task in member.active if task in end_sums}
