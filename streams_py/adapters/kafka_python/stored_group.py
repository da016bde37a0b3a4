"""Handle groups that are too large for a broker to store, and find the member that causes it.

A broker stores a group as one record, with the subscriptions and assignments of all members. If the record is larger
than ``max.message.bytes`` of ``__consumer_offsets`` (1 MiB by default), the broker answers UNKNOWN_SERVER_ERROR to the
SyncGroup of every member. So one member with a large subscription could stop all others. A member retries with a pause
as long as another member may be the cause. Only the leader receives the subscriptions, so only the leader can name the
largest one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from kafka import errors as kafka_errors

from streams_py.system.printable import printable

_log = logging.getLogger(__name__)

_TOO_LARGE_BYTES: Final = 1_000_000
"""Size of a subscription that a broker with default settings cannot store, in bytes."""
_PAUSE_MS_MAX: Final = 5_000
_DOUBLINGS_MAX: Final = 10


class GroupNotStoredError(kafka_errors.RetriableError):  # type: ignore[misc]  # kafka-python has no type information
    """The broker answered UNKNOWN_SERVER_ERROR to JoinGroup or SyncGroup, and another member may be the cause."""


class StoredGroup:
    """The sizes of subscriptions that one member knows in one rebalance."""

    def __init__(self, group: str, retry_backoff_ms: int) -> None:
        self._group = group
        self._retry_backoff_ms = retry_backoff_ms
        self._failures = 0
        self._own_bytes = 0
        self._leader: str | None = None
        self._sizes: dict[str, int] = {}

    def joining(self, own_bytes: int) -> None:
        """Note that the member sends a JoinGroup with a subscription of this size."""
        self._own_bytes = own_bytes
        self._leader = None
        self._sizes = {}

    def follow(self, leader: str) -> None:
        """Note that another member leads the new generation."""
        self._leader = leader

    def lead(self, members: Iterable[Any]) -> None:
        """Note that this member leads the new generation, which has these members."""
        self._sizes = {member.member_id: len(member.metadata) for member in members}

    def joined(self) -> None:
        """Note that a rebalance was completed."""
        self._failures = 0

    def judge(self, error: Exception) -> Exception:
        """Return the error to raise for a failed join: GroupNotStoredError if another member may be the cause."""
        if not isinstance(error, kafka_errors.UnknownError):
            return error
        if self._own_bytes > _TOO_LARGE_BYTES or len(self._sizes) == 1:
            final: Exception = kafka_errors.UnknownError(
                f"the broker cannot store group {self._group}: this member's own subscription has {self._own_bytes} "
                "bytes. Raise max.message.bytes of __consumer_offsets, or split the application; the broker's log has "
                "the cause"
            )
            return final
        self._failures += 1
        _log.error("group %s: the broker answered UNKNOWN_SERVER_ERROR; %s; joining again", self._group, self._cause())
        return GroupNotStoredError(self._cause())

    def pause_s(self) -> float:
        """Seconds to wait before the next attempt."""
        doublings = min(max(self._failures - 1, 0), _DOUBLINGS_MAX)
        return min(self._retry_backoff_ms * 2.0**doublings, _PAUSE_MS_MAX) / 1000

    def _cause(self) -> str:
        if self._sizes:
            largest = max(self._sizes, key=lambda member: (self._sizes[member], member))
            return (
                f"member {printable(largest)} has the largest subscription, {self._sizes[largest]} of "
                f"{sum(self._sizes.values())} bytes of {len(self._sizes)} members. If the group is too large for "
                "max.message.bytes of __consumer_offsets, stop that member"
            )
        leader = "the leader" if self._leader is None else f"the leader, member {printable(self._leader)},"
        return (
            f"a member's subscription may be too large for the broker (this one has {self._own_bytes} bytes); the log "
            f"of {leader} names the largest"
        )
