"""Subscriptions to clients: the members of the group, grouped by process id.

Members with the same process id are threads of one client. Members newer than this code cannot be decoded. They share
one artificial client: they stay in the group and learn the version that the other members use.

Three deviations from Apache Kafka Streams:

* In Kafka Streams, one member's undecodable user data fails the assign step, and with it the whole group. Here only
  that member receives an error assignment. Its claims on partitions still count, because it may process them until it
  receives the error.
* A member that does not subscribe to all source topics of the leader's topology runs another topology under the same
  ``application.id``. It would reject its assignment and rejoin indefinitely, as it does in Kafka Streams. Here it
  receives an error assignment, and both sides report the reason.
* All members of a client must have the same endpoint. If two members with one process id have different endpoints, one
  of them may want to receive the queries of the other, and the leader cannot tell which. So that client gets no
  endpoint, and no query goes to a wrong address. Kafka Streams uses the endpoint of the first member.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from streams_protocol import (
    LATEST_SUPPORTED_VERSION,
    DecodeError,
    ErrorCode,
    SubscriptionInfo,
    decode_subscription_info,
)
from streams_protocol.types import HostInfo, ProcessId, TaskId, TopicPartition
from streams_py.assignment.java_order import in_hash_order, process_hash
from streams_py.config.endpoint import parse_endpoint
from streams_py.errors import ConfigError
from streams_py.leader.events import AssignRequested
from streams_py.ports import MemberSubscription
from streams_py.system.printable import printable


def consumer_order(member: str) -> bytes:
    """Return the sort key of a member id: its UTF-16 code units, as Java compares strings."""
    return member.encode("utf-16-be", "surrogatepass")


@dataclass(slots=True)
class Client:
    """One application instance. Endpoint, tags and rack come from its first consumer."""

    process_id: ProcessId
    host: HostInfo | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None
    consumers: list[str] = field(default_factory=list)
    """Its members, ascending."""
    owner: dict[TopicPartition, str] = field(default_factory=dict)
    """The consumer that claims each partition."""
    sums: dict[TaskId, int] = field(default_factory=dict)
    """Reported offset sums of all its consumers."""
    reported: dict[str, frozenset[TaskId]] = field(default_factory=dict)
    """Tasks for which each consumer reported an offset sum."""
    racks: dict[str, str | None] = field(default_factory=dict)
    end_points: dict[str, HostInfo | None] = field(default_factory=dict)
    """The endpoint of each consumer. Without ``refuse_garbage``, the first consumer's for all."""


@dataclass(frozen=True, slots=True)
class Group:
    """The whole group. ``clients`` is in Java's hash order, which the sticky assignors need.

    Attributes:
        claimed: all partitions that members claim, including refused members.
        claimed_twice: partitions that more than one member claims.
        refused: the reason for each member whose subscription is not usable.
    """

    clients: Mapping[ProcessId, Client]
    claimed: frozenset[TopicPartition]
    claimed_twice: frozenset[TopicPartition]
    min_received_version: int
    min_supported_version: int
    future_version: int | None
    shutdown_requested: bool
    refused: Mapping[str, str]

    @property
    def members(self) -> list[str]:
        """Every usable member, ascending."""
        return sorted((c for client in self.clients.values() for c in client.consumers), key=consumer_order)


def decode_group(
    members: Mapping[str, MemberSubscription],
    *,
    future_process_id: ProcessId,
    refuse_garbage: bool,
    named_topics: frozenset[str] = frozenset(),
) -> Group:
    """Decode all subscriptions.

    Members that do not subscribe to all of ``named_topics`` are refused.

    Args:
        refuse_garbage: collect members whose user data is not usable in ``refused``. Otherwise their error is raised,
            as in Kafka.

    Raises:
        DecodeError: a member's user data cannot be decoded.
        ConfigError: a member's endpoint is not valid.
    """
    clients: dict[ProcessId, Client] = {}
    claimed: set[TopicPartition] = set()
    twice: set[TopicPartition] = set()
    refused: dict[str, str] = {}
    received = supported = LATEST_SUPPORTED_VERSION
    future: int | None = None
    shutdown = False
    for member in sorted(members, key=consumer_order):
        subscription = members[member]
        owned = set(subscription.owned)
        twice |= owned & claimed
        claimed |= owned
        try:
            info = decode_subscription_info(subscription.user_data)
            process_id = future_process_id if info.is_future else info.process_id
            known = clients.get(process_id)
            client = known or _new_client(process_id, info, subscription)
            host = client.host
            if known is not None and refuse_garbage and not info.is_future:
                host = parse_endpoint(info.endpoint)
        except (DecodeError, ConfigError) as error:
            if not refuse_garbage:
                raise
            refused[member] = str(error)
            continue
        missing = named_topics - frozenset(subscription.topics)
        if missing:
            refused[member] = _other_topology(subscription.topics, missing, named_topics)
            continue
        clients[process_id] = client
        shutdown |= info.error_code == ErrorCode.SHUTDOWN_REQUESTED
        received = min(received, info.version)
        supported = min(supported, info.latest_supported_version)
        future = info.version if info.is_future else future
        client.consumers.append(member)
        client.racks[member] = subscription.rack
        client.owner.update(dict.fromkeys(owned, member))
        client.sums.update(info.task_offset_sums)
        client.reported[member] = frozenset(info.task_offset_sums)
        client.end_points[member] = host
    for client in clients.values():
        if len(set(client.end_points.values())) > 1:
            client.host = None
    return Group(
        clients={process_id: clients[process_id] for process_id in in_hash_order(clients, process_hash)},
        claimed=frozenset(claimed),
        claimed_twice=frozenset(twice),
        min_received_version=received,
        min_supported_version=supported,
        future_version=future,
        shutdown_requested=shutdown,
        refused=refused,
    )


def unread_topics(request: AssignRequested) -> list[str]:
    """Return warnings about subscribed topics that the leader's topology does not read.

    No member processes these topics.
    """
    if not request.named_topics:
        return []
    read = request.topology.source_topics
    return [
        f"member {member} also reads {_listed(unread)}, which the leader's topology does not: no member processes them "
        "until a member with the larger topology becomes the leader. Run the same code on all instances"
        for member in sorted(request.members, key=consumer_order)
        if request.named_topics.issubset(request.members[member].topics)
        and (unread := frozenset(request.members[member].topics) - read)
    ]


def doubtful_end_points(group: Group) -> list[str]:
    """Return warnings about endpoints that are ambiguous.

    Either members with one process id have different endpoints, or several process ids have the same endpoint.
    """
    warnings = []
    owners: dict[HostInfo, list[ProcessId]] = {}
    for process_id, client in group.clients.items():
        if len(set(client.end_points.values())) > 1:
            named = ", ".join(f"{printable(member)}: {_shown(host)}" for member, host in client.end_points.items())
            warnings.append(
                f"members with process id {process_id} have different endpoints ({named}): none of them is used, so "
                "queries of that client's stores find no host. One of the members may claim another client's process "
                "id; stop it, or set the same application.server for all members of the client"
            )
        elif client.host is not None:
            owners.setdefault(client.host, []).append(process_id)
    warnings += [
        f"process ids {', '.join(map(str, same))} have the same endpoint {_shown(host)}, so queries find only the "
        "stores of the last one; give every instance a different application.server"
        for host, same in owners.items()
        if len(same) > 1
    ]
    return warnings


def _shown(host: HostInfo | None) -> str:
    return "no endpoint" if host is None else printable(f"{host.host}:{host.port}", 200)


def _other_topology(topics: Collection[str], missing: frozenset[str], named: frozenset[str]) -> str:
    return (
        f"two topologies run under one application.id: this member reads {_listed(topics)}, but not "
        f"{_listed(missing)}, which the leader's topology reads (all of its topics: {_listed(named)}). Give one of the "
        "two applications another application.id, or run the same code on all instances"
    )


def _listed(topics: Collection[str]) -> str:
    return ", ".join(sorted(topics)) or "nothing"


def _new_client(process_id: ProcessId, info: SubscriptionInfo, subscription: MemberSubscription) -> Client:
    if info.is_future:
        return Client(process_id, rack=subscription.rack)
    return Client(process_id, host=parse_endpoint(info.endpoint), tags=dict(info.client_tags), rack=subscription.rack)
