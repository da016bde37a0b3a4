"""Size limits of messages.

There are two safeguards. The :class:`~streams_protocol.buffer.Reader` compares every length with the remaining bytes
before it allocates memory. The limits below are for messages whose lengths are correct but too large. The memory of a
decoded message is at most a constant times its bytes, so the limit of the bytes also limits the memory. The limits
apply in both directions: we never write a message that our own reader would reject.
"""

from __future__ import annotations

from typing import Final

from .errors import LimitExceededDecodeError, LimitExceededEncodeError

__all__ = [
    "HOSTS_MAX",
    "INT16_STRING_BYTES_MAX",
    "MUTF_BYTES_MAX",
    "PARTITIONS_MAX",
    "TASKS_MAX",
    "USER_DATA_BYTES_MAX",
    "check_decoded",
    "check_encoded",
]

USER_DATA_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum bytes of one message.

The group coordinator rejects much smaller messages by default, by ``group.max.size`` x ``message.max.bytes`` (1 MiB). 8
MiB leaves room for brokers with higher limits.
"""
TASKS_MAX: Final = 100_000
"""Maximum number of tasks in one list. The largest known applications have about ten thousand."""
HOSTS_MAX: Final = 10_000
"""Maximum number of hosts in one host map: one per process that sets ``application.server``."""
PARTITIONS_MAX: Final = 500_000
"""Maximum number of partitions in one list, more than is recommended for a Kafka cluster.

It also limits the list of active tasks, which has one entry per partition.
"""

INT16_STRING_BYTES_MAX: Final = 32_767
"""Maximum encoded bytes of a string with an int16 length, given by the format."""
MUTF_BYTES_MAX: Final = 65_535
"""Maximum encoded bytes of a string in modified UTF-8, given by the format.

The format is Java's ``DataOutput.writeUTF``.
"""


def check_decoded(count: int, most: int, what: str, offset: int) -> None:
    """Raise LimitExceededDecodeError if a count read at ``offset`` exceeds its limit."""
    if count > most:
        raise LimitExceededDecodeError(
            f"{what}: {count} is more than the limit of {most}",
            offset=offset,
            remedy="find the member that sent it, or split the application into smaller ones",
        )


def check_encoded(count: int, most: int, what: str) -> None:
    """Raise LimitExceededEncodeError if a count exceeds the limit of our own reader."""
    if count > most:
        raise LimitExceededEncodeError(
            f"{what}: {count} is more than the limit of {most}", remedy="split the application into smaller ones"
        )
