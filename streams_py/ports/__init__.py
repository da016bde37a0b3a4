"""The interfaces of the core and the runtime to the outside, as typing.Protocol classes.

Adapters implement only these interfaces, and no other module imports a Kafka client. Adapters raise only errors from
:mod:`streams_py.errors`.
"""

from streams_py.ports.admin import (
    EMBEDDED_CLUSTER_ID,
    Admin,
    AdminError,
    AdminErrorKind,
    PartitionInfo,
    TopicCleanup,
    TopicSpec,
)
from streams_py.ports.changelogs import ChangelogPart, ChangelogSorter, SortedPart
from streams_py.ports.clients import Clients
from streams_py.ports.clock import Clock
from streams_py.ports.groups import GroupAdmin
from streams_py.ports.membership import MemberAssignment, Membership, MembershipListener, MemberSubscription
from streams_py.ports.offsets import CommittedOffsets, GroupMetadata, OffsetAndMetadata
from streams_py.ports.records import BEGINNING, END, DirectSend, Headers, RawRecord, RecordConsumer, RecordProducer
from streams_py.ports.transactions import TransactionAdmin, TransactionalProducer

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
    "TopicCleanup",
    "TopicSpec",
    "TransactionAdmin",
    "TransactionalProducer",
]
