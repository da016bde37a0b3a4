"""How large a message may be before we refuse to look at it.

The first fence is the :class:`~streams_protocol.buffer.Reader`: it compares every length with the bytes that are left
before it allocates. The caps below are the second one, for messages that are honest about their length and still too
large to hold: what a decoded message occupies is a constant times its bytes, so capping the bytes caps everything.
They hold in both directions: we never write what our own reader would refuse.
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
"""Bytes of one message. The group coordinator refuses more than ``group.max.size`` x ``message.max.bytes`` (1 MiB)
long before; 8 MiB leaves room for brokers that were told to allow more."""
TASKS_MAX: Final = 100_000
"""Tasks in one list. The largest applications known have some ten thousand."""
HOSTS_MAX: Final = 10_000
"""Hosts in one host map; one per application process that sets ``application.server``."""
PARTITIONS_MAX: Final = 500_000
"""Partitions in one list, and entries of the active list, which names a task once per partition. More than a
Kafka cluster is advised to hold."""

INT16_STRING_BYTES_MAX: Final = 32_767
"""Encoded bytes of a string with an int16 length; given by the format."""
MUTF_BYTES_MAX: Final = 65_535
"""Encoded bytes of a string in modified UTF-8; given by the format (Java's ``DataOutput.writeUTF``)."""


def check_decoded(count: int, most: int, what: str, offset: int) -> None:
    """Refuse a count read at ``offset`` that is above its cap."""
    if count > most:
        raise LimitExceededDecodeError(
            f"{what}: {count} is more than the limit of {most}",
            offset=offset,
            remedy="find the member that sent it, or split the application into smaller ones",
        )


def check_encoded(count: int, most: int, what: str) -> None:
    """Refuse to write a count that our own reader would refuse."""
    if count > most:
        raise LimitExceededEncodeError(
            f"{what}: {count} is more than the limit of {most}", remedy="split the application into smaller ones"
        )
