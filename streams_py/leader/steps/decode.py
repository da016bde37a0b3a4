"""From subscriptions to clients: who is in the group, with what.

Members with one process id are threads of one client. Members newer than this code cannot be read, so they share one
made-up client: they take part, and get the version the others speak.

Apache Kafka Streams lets one member's undecodable user data fail the assign step, and with it the whole group. Here
that member alone is refused (it gets an error assignment) while its claims on partitions still count: it may be
processing them until it learns of the error.

A member that does not subscribe to what the leader's topology reads runs another topology under the same
``application.id``. It could not process what it is given: it would reject the assignment and rejoin, for ever. It is
refused in the same way, and both sides say why. (Kafka Streams rebalances for ever.)

All members of one client have the same end point. If two members with one process id name different end points, one of
them may want the queries of the other, and nothing shows which one. So that client gets no end point: no query goes to
a wrong address. (Kafka Streams takes the end point of the first member.)
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
from streams_py.endpoint import parse_endpoint
from streams_py.errors import ConfigError
from streams_py.leader.events import AssignRequested
from streams_py.ports import MemberSubscription
from streams_py.printable import printable

__all__ = ["Client", "Group", "consumer_order", "decode_group", "doubtful_end_points", "unread_topics"]


def consumer_order(member: str) -> bytes:
    """Sort key of member ids: by UTF-16 code unit, as Java compares text."""
    return member.encode("utf-16-be", "surrogatepass")


@dataclass(slots=True)
class Client:
    """One application instance. End point, tags and rack are those of its first consumer."""

    process_id: ProcessId
    host: HostInfo | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None
    consumers: list[str] = field(default_factory=list)
    """Its members, ascending."""
    owner: dict[TopicPartition, str] = field(default_factory=dict)
    """Consumer that claims a partition."""
    sums: dict[TaskId, int] = field(default_factory=dict)
    """Reported offset sums, merged over the consumers."""
    reported: dict[str, frozenset[TaskId]] = field(default_factory=dict)
    """Tasks that each consumer has an offset sum for."""
    racks: dict[str, str | None] = field(default_factory=dict)
    end_points: dict[str, HostInfo | None] = field(default_factory=dict)
    """End point that each consumer names. Without ``refuse_garbage`` only that of the first."""


@dataclass(frozen=True, slots=True)
class Group:
    """The whole group. ``clients`` iterate in Java's hash order, which the sticky assignors depend on.

    ``refused`` maps members whose user data is unusable to the reason. ``claimed`` are all claimed partitions, theirs
    included; ``claimed_twice`` those that more than one member claims.
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

    With ``refuse_garbage`` undecodable members end up in ``refused``; without it their DecodeError (or ConfigError, for
    a bad end point) is raised, as in Kafka. Members that do not subscribe to all of ``named_topics`` are refused, too.
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
    """Warnings: topics that members subscribe to, but that the leader's topology does not read, so that nobody does."""
    if not request.named_topics:
        return []
    read = request.topology.source_topics
    return [
        f"member {member} also reads {_listed(unread)}, which the leader's topology does not: nobody processes that "
        "until a member with the larger topology leads. Run the same code everywhere"
        for member in sorted(request.members, key=consumer_order)
        if request.named_topics.issubset(request.members[member].topics)
        and (unread := frozenset(request.members[member].topics) - read)
    ]


def doubtful_end_points(group: Group) -> list[str]:
    """Warnings: members with one process id and different end points, and end points of several process ids."""
    warnings = []
    owners: dict[HostInfo, list[ProcessId]] = {}
    for process_id, client in group.clients.items():
        if len(set(client.end_points.values())) > 1:
            named = ", ".join(f"{printable(member)} names {_shown(host)}" for member, host in client.end_points.items())
            warnings.append(
                f"members with process id {process_id} name different end points ({named}): none is used, so queries "
                "of that client's stores find no host. One of the members may claim a process id that is not its own; "
                "stop it, or give all members of the client the same application.server"
            )
        elif client.host is not None:
            owners.setdefault(client.host, []).append(process_id)
    warnings += [
        f"process ids {', '.join(map(str, same))} name the same end point {_shown(host)}, so queries find the stores "
        "of the last one only; give every instance its own application.server"
        for host, same in owners.items()
        if len(same) > 1
    ]
    return warnings


def _shown(host: HostInfo | None) -> str:
    return "no end point" if host is None else printable(f"{host.host}:{host.port}", 200)


def _other_topology(topics: Collection[str], missing: frozenset[str], named: frozenset[str]) -> str:
    return (
        f"two topologies run under one application.id: this member reads {_listed(topics)}, and not "
        f"{_listed(missing)}, which the leader's topology reads (all of it: {_listed(named)}). Give one of the two "
        "applications another application.id, or run the same code everywhere"
    )


def _listed(topics: Collection[str]) -> str:
    return ", ".join(sorted(topics)) or "nothing"


def _new_client(process_id: ProcessId, info: SubscriptionInfo, subscription: MemberSubscription) -> Client:
    if info.is_future:
        return Client(process_id, rack=subscription.rack)
    return Client(process_id, host=parse_endpoint(info.endpoint), tags=dict(info.client_tags), rack=subscription.rack)
