"""One decoded member of a group.

Undecodable bytes result in a sentence about the member, not in an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streams_protocol import (
    AssignmentInfo,
    DecodeError,
    RepeatedTagDecodeError,
    SubscriptionInfo,
    decode_assignment,
    decode_assignment_info,
    decode_subscription,
    decode_subscription_info,
    partitions_by_task,
)
from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports.described_groups import DescribedMember
from streams_py.system.printable import printable


@dataclass(frozen=True, slots=True)
class Member:
    """A member as it described itself when it last joined, with its assignment.

    ``problems`` has a sentence for each part that could not be decoded. Such a part is empty.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] = ()
    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = None
    """Generation in which the member owned ``owned``. It is older than the present generation."""
    rack: str | None = None
    subscription: SubscriptionInfo | None = None
    assignment: AssignmentInfo | None = None
    active: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    """Standby and warm-up tasks, which the protocol does not distinguish."""
    problems: tuple[str, ...] = ()
    protocol: str = "classic"
    """For ``streams``, the versions of the classic protocol's messages have no meaning."""

    @property
    def process(self) -> str:
        """Id of the process, or the member's own id if the process is unknown."""
        return self.member_id if self.subscription is None else str(self.subscription.process_id)

    @property
    def tags(self) -> dict[str, str]:
        """The client tags, safe to print. Empty if they are unknown, or if a key is repeated."""
        try:
            tags = {} if self.subscription is None else self.subscription.client_tags
            return {printable(key): printable(value) for key, value in tags.items()}
        except RepeatedTagDecodeError:
            return {}


def decode_member(member: DescribedMember, *, is_rebalancing: bool = False) -> Member:
    """Decode the coordinator's description of a member. Never raises, for any bytes.

    While the group ``is_rebalancing``, the coordinator omits subscriptions.
    """
    problems: list[str] = []
    topics: tuple[str, ...] = ()
    owned: tuple[TopicPartition, ...] = ()
    generation = rack = subscription = None
    try:
        if member.subscription or not is_rebalancing:
            sent = decode_subscription(member.subscription)
            topics, owned, generation, rack = sent.topics, sent.owned_partitions, sent.generation_id, sent.rack_id
            subscription = decode_subscription_info(sent.user_data)
    except DecodeError as error:
        problems.append(f"its subscription cannot be read: {error}")
    assignment, active, standby = None, {}, {}
    if member.assignment:  # empty while the group is rebalancing
        try:
            given = decode_assignment(member.assignment)
            if given.user_data:
                assignment = decode_assignment_info(given.user_data)
                active = {
                    task: frozenset(partitions)
                    for task, partitions in partitions_by_task(given.partitions, assignment.active_tasks).items()
                }
                standby = {task: frozenset(partitions) for task, partitions in assignment.standby_tasks.items()}
        except DecodeError as error:
            problems.append(f"its assignment cannot be read: {error}")
    return Member(
        member.member_id,
        None if member.instance_id is None else printable(member.instance_id),
        printable(member.client_id),
        printable(member.client_host),
        tuple(map(printable, topics)),
        owned,
        generation,
        None if rack is None else printable(rack),
        subscription,
        assignment,
        active,
        standby,
        tuple(problems),
    )
