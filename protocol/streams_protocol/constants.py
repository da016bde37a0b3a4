"""Numbers and names that all members of a Kafka Streams group must agree on.

Source: Kafka Streams' ``StreamsAssignmentProtocolVersions``, ``Task``, ``AssignorError`` and ``ConsumerProtocol``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "CONSUMER_PROTOCOL_VERSION",
    "EARLIEST_PROBEABLE_VERSION",
    "FOLLOW_UP_NOW",
    "LATEST_OFFSET",
    "LATEST_SUPPORTED_VERSION",
    "MIN_VERSION_NAMED_TOPOLOGY",
    "MIN_VERSION_OFFSET_SUMS",
    "NO_FOLLOW_UP",
    "OFFSET_UNKNOWN",
    "PROTOCOL_NAME",
    "PROTOCOL_TYPE",
    "UNKNOWN_OFFSET_SUM",
    "UNKNOWN_VERSION",
    "ErrorCode",
]

PROTOCOL_TYPE: Final = "consumer"
"""``protocol_type`` of the JoinGroup request."""
PROTOCOL_NAME: Final = "stream"
"""Name of the only protocol (assignor) that a Streams member offers."""
CONSUMER_PROTOCOL_VERSION: Final = 3
"""Version of Subscription and Assignment that we write. Newer versions are read as this one."""

LATEST_SUPPORTED_VERSION: Final = 11
"""Newest version of SubscriptionInfo and AssignmentInfo that we read and write."""
EARLIEST_PROBEABLE_VERSION: Final = 3
"""First version in which members send their newest supported version.

With it a group can find its common version by probing.
"""
MIN_VERSION_OFFSET_SUMS: Final = 7
"""First version with offset sums (KIP-441); older subscriptions have two sets of tasks."""
MIN_VERSION_NAMED_TOPOLOGY: Final = 10
"""First version with a topology name in task ids."""
UNKNOWN_VERSION: Final = -1
"""Value of the supported versions in messages of versions 1 and 2, which do not contain them."""

LATEST_OFFSET: Final = -2
"""Offset sum of a running active task, which no other copy can exceed."""
UNKNOWN_OFFSET_SUM: Final = -3
"""Offset sum of a task that has state but whose progress is unknown."""
OFFSET_UNKNOWN: Final = -4
"""Marks an unknown offset in a checkpoint file. Never sent: the partition adds 0 to a sum."""

NO_FOLLOW_UP: Final = 2**63 - 1
"""``next_rebalance_ms`` of an assignment without a follow-up rebalance."""
FOLLOW_UP_NOW: Final = 0
"""``next_rebalance_ms`` of an assignment whose receiver must rejoin immediately."""


class ErrorCode(IntEnum):
    """Error codes in SubscriptionInfo and AssignmentInfo.

    Decoded values are plain ints, because a newer member may send a code that is not listed. Every unlisted code is
    fatal.
    """

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    """Not sent by current leaders; not fatal."""
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4
    """Sent by the member that requests the shutdown, then by the leader to all members."""
