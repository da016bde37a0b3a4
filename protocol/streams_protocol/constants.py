"""Numbers and names that every member of a Kafka Streams group must agree on.

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
"""Name of the one protocol (assignor) that a Streams member offers."""
CONSUMER_PROTOCOL_VERSION: Final = 3
"""Version of Subscription and Assignment that we write; newer ones are read as this one."""

LATEST_SUPPORTED_VERSION: Final = 11
"""Newest SubscriptionInfo and AssignmentInfo that we read and write."""
EARLIEST_PROBEABLE_VERSION: Final = 3
"""From here on members tell what they support, so that a group can find its common version by probing."""
MIN_VERSION_OFFSET_SUMS: Final = 7
"""Older subscriptions carry two sets of tasks instead of offset sums (KIP-441)."""
MIN_VERSION_NAMED_TOPOLOGY: Final = 10
"""Older versions have no place for a topology name in a task id."""
UNKNOWN_VERSION: Final = -1
"""What "latest supported" and "commonly supported" read as in versions 1 and 2, which do not carry them."""

LATEST_OFFSET: Final = -2
"""Offset sum of a running active task: nobody can be further than that."""
UNKNOWN_OFFSET_SUM: Final = -3
"""Offset sum of a task whose state exists but whose progress is not known."""
OFFSET_UNKNOWN: Final = -4
"""Marks an unknown offset in a checkpoint file. Never send it; such a partition adds 0 to a sum."""

NO_FOLLOW_UP: Final = 2**63 - 1
"""``next_rebalance_ms`` of an assignment that asks for no follow-up rebalance."""
FOLLOW_UP_NOW: Final = 0
"""``next_rebalance_ms`` of an assignment that asks its receiver to rejoin at once."""


class ErrorCode(IntEnum):
    """Error codes in SubscriptionInfo and AssignmentInfo.

    Decoded values are plain ints, because a newer member may send a code that is not listed; every such code is fatal.
    """

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    """Not sent by current leaders; not fatal."""
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4
    """First from the member that wants the whole application to stop, then from the leader to everybody."""
