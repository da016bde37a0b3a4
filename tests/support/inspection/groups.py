"""Groups of bytes as a coordinator would keep them, and a cluster that answers about them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from streams_protocol import (
    Assignment,
    Subscription,
    SubscriptionInfo,
    encode_assignment,
    encode_subscription,
    encode_subscription_info,
)
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.inspection.deciding import Answer, decide
from streams_py.leader.events import AssignRequested
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import AdminError, AdminErrorKind, MemberSubscription, PartitionInfo, TopicSpec
from streams_py.ports.described_groups import DescribedGroup, DescribedMember
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

GROUP = "app"
NOW_MS = 1_800_000_000_000


def process(number: int) -> ProcessId:
    return ProcessId(uuid.UUID(int=number + 1))


class FakeCluster:
    """Admin, group admin and consumer in one. All partitions of a topic have the same end offset."""

    def __init__(
        self, topics: Mapping[str, int], ends: Mapping[str, int], *, groups: Collection[str] = (GROUP,)
    ) -> None:
        self.topics = dict(topics)
        self.ends = dict(ends)
        self.all_groups = tuple(groups)
        self.described = DescribedGroup(GROUP, "Empty", "consumer", "", ())
        self.created: list[TopicSpec] = []

    @property
    def admin(self) -> Any:
        return self

    @property
    def groups(self) -> Any:
        return self

    def consumer(self) -> Any:
        raise AssertionError("no __consumer_offsets to read")

    def describe_group(self, group: str) -> DescribedGroup:
        return self.described

    def list_groups(self) -> Mapping[str, str]:
        return dict.fromkeys(self.all_groups, "classic")

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        wanted = self.topics if names is None else names
        return {
            name: tuple(PartitionInfo(name, n, 0, (0,), frozenset()) for n in range(self.topics[name]))
            if name in self.topics
            else AdminError(AdminErrorKind.UNKNOWN_TOPIC, "unknown")
            for name in wanted
        }

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        self.created += specs
        return {spec.name: None for spec in specs}

    def list_offsets(
        self, partitions: Collection[TopicPartition], *, earliest: bool = False
    ) -> Mapping[TopicPartition, int | AdminError]:
        return {at: 0 if earliest else self.ends.get(at.topic, 0) for at in partitions}

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        return {at: self.ends.get(at.topic, 0) for at in partitions}


def topology(partitions: int) -> TopologyMetadata:
    """0 reads "in" and counts (store "counts"); 1 reads "out" and has no state."""
    return TopologyMetadata(
        {
            0: SubtopologyTopics(
                frozenset({"in"}),
                frozenset({"out"}),
                {},
                {"app-counts-changelog": InternalTopic("app-counts-changelog", InternalTopicKind.CHANGELOG)},
                stores=frozenset({"counts"}),
            ),
            1: SubtopologyTopics(frozenset({"out"}), frozenset(), {}, {}),
        }
    )


def topics(partitions: int) -> dict[str, int]:
    return {"in": partitions, "out": partitions, "app-counts-changelog": partitions, "another-x-changelog": partitions}


def said(
    number: int,
    *,
    owned: Collection[TaskId] = (),
    sums: Mapping[TaskId, int] | None = None,
    generation: int = 6,
    tags: Mapping[str, str] | None = None,
) -> MemberSubscription:
    """What the member of process ``number`` sends when it joins."""
    info = SubscriptionInfo(process(number), task_offset_sums=dict(sums or {}), client_tags=dict(tags or {}))
    partitions = sorted(TopicPartition(("in", "out")[task.subtopology], task.partition) for task in owned)
    return MemberSubscription(("in", "out"), encode_subscription_info(info), tuple(partitions), generation, None)


def rebalanced(
    cluster: FakeCluster,
    members: Mapping[str, MemberSubscription],
    partitions: int,
    configs: AssignmentConfigs = AssignmentConfigs(),  # noqa: B008 (frozen)
) -> Answer:
    """Have the group's own leader assign; the cluster then keeps its answer, as the coordinator does."""
    infos = {name: found for name, found in cluster.describe_topics().items() if not isinstance(found, AdminError)}
    read = {name: infos[name] for name in ("in", "out")}
    settings = LeaderSettings(process(0), process(999), configs)
    answer = decide(cluster.admin, GROUP, AssignRequested(NOW_MS, members, read, topology(partitions)), settings)
    described = tuple(
        DescribedMember(
            name,
            None,
            f"client-{name}",
            "10.0.0.1",
            encode_subscription(
                Subscription(sent.topics, sent.user_data, sent.owned, generation_id=sent.generation, rack_id=sent.rack)
            ),
            encode_assignment(Assignment(answer.assignments[name].partitions, answer.assignments[name].user_data)),
        )
        for name, sent in members.items()
    )
    cluster.described = DescribedGroup(GROUP, "Stable", "consumer", "stream", described)
    return answer
