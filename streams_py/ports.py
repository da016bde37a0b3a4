"""What the core and the runtime need from outside, as typing.Protocol classes.

Adapters implement these and nothing else; no other module imports a Kafka client. Errors cross the border only as
:mod:`streams_py.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.described_groups import DescribedGroup, DescribedMember, DescribedStreamsGroup
from streams_py.described_transactions import OpenTransaction, TransactionInfo
from streams_py.errors import ProductionError

__all__ = [
    "BEGINNING",
    "EMBEDDED_CLUSTER_ID",
    "END",
    "Admin",
    "AdminError",
    "AdminErrorKind",
    "ChangelogPart",
    "ChangelogSorter",
    "Clients",
    "Clock",
    "CommittedOffsets",
    "DirectSend",
    "GroupAdmin",
    "GroupMetadata",
    "Headers",
    "MemberAssignment",
    "MemberSubscription",
    "Membership",
    "MembershipListener",
    "OffsetAndMetadata",
    "PartitionInfo",
    "RawRecord",
    "RecordConsumer",
    "RecordProducer",
    "SortedPart",
    "TopicSpec",
    "TransactionAdmin",
    "TransactionalProducer",
]

Headers = Sequence[tuple[str, bytes | None]]

BEGINNING = -2
"""Position: the first record there is."""
END = -1
"""Position: after the last record there is."""

EMBEDDED_CLUSTER_ID = "embedded-"
"""How the ids of embedded clusters begin: such a cluster never comes back once it has ended."""


class Clock(Protocol):
    """Time in ms: ``now_ms`` since the epoch, ``monotonic_ms`` never goes back. The runtime reads no other clock."""

    def now_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
    def sleep_ms(self, duration_ms: int) -> None: ...


# -- records -------------------------------------------------------------------------------------------------


class RawRecord(Protocol):
    """A record as the consumer delivers it: accessors of confluent-kafka's Message; timestamp: (who gave it, ms)."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class RecordConsumer(Protocol):
    """Reads records of explicitly assigned partitions (main, restore and global consumers). One thread only."""

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Make this the whole assignment. A position is an offset, BEGINNING or END; None keeps the current position
        of an already assigned partition. Partitions that stay are not disturbed."""

    def pause(self, partitions: Collection[TopicPartition]) -> None: ...
    def resume(self, partitions: Collection[TopicPartition]) -> None: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def poll(self, max_records: int, timeout_ms: int) -> list[RawRecord]:
        """Up to ``max_records`` records; empty after ``timeout_ms`` without any. Raises OffsetOutOfRangeError."""

    def position(self, partition: TopicPartition) -> int | None:
        """Offset of the next record to be delivered; None when not known yet."""

    def lag(self, partition: TopicPartition) -> int | None:
        """Cached end offset minus position, no network call; None when unknown."""

    def close(self) -> None: ...


class ChangelogPart(NamedTuple):
    """Offsets of a changelog from ``start`` up to, not including, ``end``, wanted as sorted files in ``folder`` whose
    names begin with ``name``. ``stamped``: with the timestamp of each record in front of its value."""

    changelog: TopicPartition
    start: int
    end: int
    folder: str
    name: str
    stamped: bool


class SortedPart(NamedTuple):
    """Files to be taken in in this order, the offset of the last record in them (None: there was none), and how many
    records and bytes were read."""

    files: tuple[str, ...]
    last: int | None
    records: int
    bytes: int


class ChangelogSorter(Protocol):
    """Reads parts of changelogs beside this process, one at a time. One thread only."""

    def begin(self, part: ChangelogPart) -> None: ...
    @property
    def position(self) -> int | None:
        """How far the part is that was begun last."""

    def outcome(self) -> SortedPart | None:
        """What came of it; None while it is being read. StreamsError when it failed: it is to be read otherwise."""

    def close(self) -> None: ...


class DirectSend(NamedTuple):
    """The client's own function for records of one topic, for callers that send one record after the other.

    ``send(topic, value, key, partition, report, None, timestamp_ms, headers)`` may be called with a timestamp above 0
    and while ``failures`` is empty; the report of a record with headers is ``partial(report, known=(timestamp_ms,
    headers))``, since the client does not keep them. Whatever it raises, the record was not queued: ``produce`` it,
    which then waits for room or says what is wrong.
    """

    send: Callable[..., None]
    report: Callable[..., object] | None
    failures: Sequence[Exception]


class RecordProducer(Protocol):
    """Writes records. ``produce`` takes its arguments by position: it is on the hot path of every record."""

    produce: Callable[..., None]
    """produce(topic, value, key, partition, on_delivery, timestamp_ms, headers); partition -1 = murmur2 of the key,
    timestamp -1 = now. Raises ProductionError for an earlier failed send."""
    blocked: AbstractContextManager[None]
    """Entered while ``produce`` or ``partitions_for`` waits for a broker. Set by whoever wants to know."""

    def direct(self, topic: str, partition: int = -1) -> DirectSend | None:
        """A way past ``produce`` to a topic (to one partition of it when it is tracked); None when there is none."""

    def poll(self, timeout_ms: int = 0) -> int: ...

    def flush(self, timeout_ms: int) -> int:
        """Wait until everything is acknowledged; number of records still waiting after ``timeout_ms``."""

    def overdue(self, timeout_ms: int) -> int:
        """Records not written after ``timeout_ms`` that must not be, now that others may have their tasks. 0 where that
        is no matter: in a transaction, or when the user says how long they wait."""

    def check(self) -> None:
        """Raise the first send error that was not raised before (by ``produce`` or here): each failed record is told
        once, in the order of its partition. BatchRefusedError stands for all records of a batch."""

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """Send ``instead`` (arguments of ``produce``) when the record that ended the transaction is made again."""

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Highest acknowledged offset of every tracked (changelog) partition; valid after ``flush``."""

    def track(self, topics: Collection[str]) -> None:
        """Topics whose acknowledged offsets are wanted."""

    def reset(self) -> None:
        """Nobody owns any more what was written from: drop what waits to be sent, forget what failed, and start over,
        also after an error that no client recovers from. What ``produce`` and ``direct`` gave before is void."""

    def halt(self, reason: str) -> None:
        """From now on every send raises TaskMigratedError with this reason, until :meth:`reset`. Thread-safe, and
        returns at once: the thread that sends may be in the middle of a record that it owned when it took it up."""

    def hold(self, reason: str | None) -> None:
        """As :meth:`halt`, but with BrokerUnavailableError, and until there is no reason (None) any more."""

    def partitions_for(self, topic: str) -> int:
        """Partition count of a topic; BrokerUnavailableError when it cannot be learnt in time."""

    def close(self) -> None: ...


class TransactionalProducer(RecordProducer, Protocol):
    """Writes records that become visible with :meth:`commit_transaction`, or never. The first record begins the
    transaction. ``reset`` leaves it to the broker, and starts over.
    Every call may raise TaskMigratedError (another producer has taken its place), or TaskCorruptedError that names no
    task: all tasks that write with it go back to the last commit, and it is to be reset."""

    @property
    def is_ready(self) -> bool:
        """True when :meth:`initialize` is done."""

    @property
    def in_transaction(self) -> bool:
        """True when something was sent since the last commit."""

    def initialize(self, timeout_ms: int) -> None:
        """Take the place of whoever had the transactional id, and end its transaction: before anything that it may
        have written is read. BrokerUnavailableError when that has to be asked for again."""

    def commit_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMetadata, timeout_ms: int
    ) -> None:
        """Commit what was sent and the input offsets it was made from, all or nothing, provided that ``member`` is
        still in the group's generation (KIP-447). Without an answer in time the outcome is unknown, and that is a
        TaskCorruptedError, too."""


class TransactionAdmin(Protocol):
    """Transactions seen from outside. One thread at a time. BrokerUnavailableError, or StreamsError with what was
    refused."""

    def check_brokers(self) -> None:
        """UnsupportedOperationError when the brokers do not know transactions that are fenced by a group's generation
        (KIP-447): such a transaction would be taken from a member that is none any more."""

    def open_transactions(self, partitions: Collection[TopicPartition]) -> Sequence[OpenTransaction]:
        """Those of partitions that cannot be asked are left out."""

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """By producer id, as far as they are known."""

    def describe(self, transactional_id: str) -> TransactionInfo | None:
        """None for an id that nobody has used."""

    def take_over(self, transactional_id: str, transaction_timeout_ms: int) -> tuple[int, int]:
        """Fence whoever uses the id, which ends its ongoing transaction; producer id and new epoch."""

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        group: str | None,
        commit: bool,
    ) -> None:
        """End what is open in these partitions and in the offsets of ``group``, as the producer that took over."""

    def close(self) -> None: ...


# -- administration ------------------------------------------------------------------------------------------


class PartitionInfo(NamedTuple):
    """One partition in the cluster's metadata. ``racks`` has the racks of the replicas that have one."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    racks: frozenset[str]
    topic_id: str | None = None  # another one when a topic was deleted and created anew; None from old brokers


class AdminErrorKind(Enum):
    """Why an administrative request failed, as far as somebody reacts differently."""

    UNKNOWN_TOPIC = "unknown topic"
    LEADER_NOT_AVAILABLE = "leader not available"
    TIMED_OUT = "timed out"
    ALREADY_EXISTS = "already exists"
    UNSUPPORTED = "not supported by the broker"
    NOT_ALLOWED = "not allowed"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class AdminError:
    """A failure of one item of an administrative request."""

    kind: AdminErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. ``replication_factor`` -1 = the broker's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


class TopicCleanup(NamedTuple):
    """What brokers remove from a topic."""

    policy: frozenset[str]
    """``cleanup.policy``: "compact", "delete", both or neither."""
    retention_ms: int
    """``retention.ms``; -1 = no limit."""
    retention_bytes: int
    """``retention.bytes`` of each partition; -1 = no limit."""


class Admin(Protocol):
    """Administrative requests. Thread-safe. A request that fails as a whole raises BrokerUnavailableError.

    Everything asked for is in the answer: with what a broker said, or with an AdminError. What a client library makes
    up when a broker dies (negative offsets, topics without partitions, nothing at all) is never passed on.
    """

    def cluster_id(self) -> str | None:
        """What the cluster calls itself; None when it has no name. Waits a few seconds at most."""

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        """Partitions of the named topics (None: all that exist), ascending by number."""

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]: ...

    def list_offsets(
        self, partitions: Collection[TopicPartition], *, earliest: bool = False
    ) -> Mapping[TopicPartition, int | AdminError]:
        """End (or first) offsets, read uncommitted; never negative."""

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]: ...

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete everything below these offsets; failures are only logged."""

    def delete_retention_ms(self, topics: Collection[str]) -> Mapping[str, int | AdminError | None]:
        """How long topics keep a deletion at least after compaction has seen it (``delete.retention.ms``): who has read
        up to before it must read on by then. None for a topic that is not compacted."""

    def cleanup(self, topics: Collection[str]) -> Mapping[str, TopicCleanup | AdminError]:
        """What brokers remove from topics, in one request. An AdminError of the kind NOT_ALLOWED without the right
        DESCRIBE_CONFIGS."""

    def remove_member(self, group: str, instance_id: str, member_id: str) -> None: ...  # only this one, unless it is ""
    def close(self) -> None: ...


# -- groups, seen from outside -------------------------------------------------------------------------------


class GroupAdmin(Protocol):
    """What operators' tools ask for, without joining a group. BrokerUnavailableError, or StreamsError with what was
    refused."""

    def list_groups(self) -> Mapping[str, str]:
        """Group -> its type (classic, consumer, streams, share), or its protocol type on brokers that know no types."""

    def describe_group(self, group: str) -> DescribedGroup: ...
    def find_group(self, group: str) -> DescribedGroup | None: ...

    def describe_streams_group(self, group: str) -> DescribedStreamsGroup | None:
        """A group of the streams protocol; None when there is none of that name, or brokers know no such groups."""

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int | None]:
        """Offset of the first record with this timestamp or a later one; None where there is none."""

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Commit positions for a group without members, in one request."""

    def remove_members(self, group: str, members: Collection[DescribedMember]) -> None: ...
    def delete_topics(self, topics: Collection[str]) -> None: ...
    def close(self) -> None: ...


# -- group membership ----------------------------------------------------------------------------------------


class GroupMetadata(NamedTuple):
    """Who this member is in its group right now (KIP-447)."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class OffsetAndMetadata(NamedTuple):
    """A committed position and its metadata text."""

    offset: int
    metadata: str = ""


CommittedOffsets: TypeAlias = "Mapping[TopicPartition, OffsetAndMetadata | None]"
"""Committed positions by partition, None where there is none."""


class MemberSubscription(NamedTuple):
    """What one member sent in JoinGroup, decoded as far as the consumer protocol goes."""

    topics: tuple[str, ...]
    user_data: bytes | None
    owned: tuple[TopicPartition, ...]
    generation: int
    rack: str | None


class MemberAssignment(NamedTuple):
    """What the leader sends to one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes


class MembershipListener(Protocol):
    """Called by a Membership, on its own polling thread unless it says otherwise."""

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """User data for the JoinGroup that is being built; called once for each one built."""

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """The leader's step. May block (creates topics, lists offsets). BrokerUnavailableError: back off and rejoin."""

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        """A new assignment arrived."""

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Blocks until processing of these partitions has stopped and is flushed; the offsets to commit."""

    def on_revoked_committed(self, error: Exception | None) -> None:
        """The offsets of ``on_revoked`` are committed, or could not be."""

    def on_stuck(self) -> None:
        """The member, which owns partitions, is about to leave: its thread was busy for ``max.poll.interval.ms``. What
        that thread still sends would follow the next owner's records. On any thread; must not wait. ``on_lost`` comes
        when the thread shows up again."""

    def on_doubt(self, in_doubt: bool) -> None:
        """The member, which owns partitions, may be none any more: :meth:`Membership.is_member` has become False. Or,
        after that, it is one again for certain (False). On any thread; must not wait."""

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Membership is gone: these belong to somebody else already."""

    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None:
        """End of a rebalance; called also when nothing was added."""


class Membership(Protocol):
    """Membership of one stream thread in the group. Thread-safe."""

    def start(self) -> None: ...
    def subscribe(self, topics: frozenset[str], pattern: str | None = None) -> None: ...
    def request_rejoin(self, reason: str) -> None: ...
    def rejoin_as_new_member(self) -> None: ...  # unsubscribe and subscribe again, after tasks were found migrated
    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit; raises TaskMigratedError when not a member any more, BrokerUnavailableError on time-out."""

    def committed(self, partitions: Collection[TopicPartition], *, timeout_ms: int) -> Future[CommittedOffsets]:
        """Ask for committed positions; returns at once. The answer, or BrokerUnavailableError, comes with the
        future."""

    def group_metadata(self) -> GroupMetadata | None:
        """None while this is no member: no generation, no member id, or heartbeats silent."""

    def forming(self) -> GroupMetadata | None:
        """Of the generation that the broker named last: in a rebalance, of the one being formed. None without one."""

    def is_member(self) -> bool:
        """True while nobody else can own what this member owns. False as soon as the clock says that the group may have
        dropped it: no heartbeat that was sent within the last ``session.timeout.ms`` has been answered, or no
        :meth:`check` within ``max.poll.interval.ms``. May become True again without a loss, when an answer comes."""

    @property
    def member_id(self) -> str: ...  # the last that it was given; "" before that, and when the group has dropped it
    def check(self) -> None: ...  # raises what the polling thread failed with
    def leave_and_close(self, *, leave_group: bool, timeout_ms: int) -> None:
        """Stop. By default members do not leave: the broker notices after the session time-out."""


class Clients(Protocol):
    """Makes the clients of one application instance; names follow Kafka Streams (``<thread>-consumer`` and so on)."""

    def check_connection(self) -> None: ...  # ConfigError says why the cluster lets nobody in; none when it is away
    def main_consumer(self, thread_name: str) -> RecordConsumer: ...
    def restore_consumer(self, thread_name: str) -> RecordConsumer: ...
    def changelog_sorter(self, thread_name: str) -> ChangelogSorter | None: ...  # None: there can be none now
    def global_consumer(self, client_id: str) -> RecordConsumer: ...
    def producer(self, thread_name: str) -> RecordProducer: ...
    def global_producer(self, thread_name: str) -> RecordProducer: ...
    def transactional_producer(self, thread_name: str, transactional_id: str) -> TransactionalProducer: ...
    def admin(self) -> Admin: ...
    def transaction_admin(self) -> TransactionAdmin: ...  # under exactly-once only; connects when it is used
    def group_admin(self) -> GroupAdmin: ...
    def membership(self, thread_name: str, thread_index: int, listener: MembershipListener) -> Membership: ...
    def close(self) -> None: ...  # frees what they share; each is closed by whoever asked for it
