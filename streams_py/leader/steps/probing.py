"""Follow-ups: who asks the group to rebalance again, and when.

A placement that is not the desired one yet (tasks warm up elsewhere, an assignor wants to look again) ends with a
*probing rebalance*: one member of a client is told an instant, and rejoins then. The built-in assignors only say that
they want one; it goes to the leader's own client. A custom assignor gives instants to clients of its choice.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from streams_protocol.types import ProcessId

__all__ = ["epoch_millis", "probing_deadlines"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def probing_deadlines(
    clients: Collection[ProcessId], leader: ProcessId, *, now_ms: int, interval_ms: int
) -> dict[ProcessId, int]:
    """Deadline (ms since the epoch) of the leader's client; nothing when it has no usable member in the group."""
    return {leader: now_ms + interval_ms} if leader in clients else {}


def epoch_millis(deadline: datetime) -> int:
    """Milliseconds since the epoch, rounded down. A copied answer's deadlines have a time zone."""
    return (deadline - _EPOCH) // _MILLISECOND
