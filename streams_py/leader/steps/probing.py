"""Follow-up rebalances: which member requests the next rebalance, and when.

A placement may not be final: tasks warm up elsewhere, or an assignor wants to check again. Then a *probing rebalance*
follows: one member of a client receives a time at which it rejoins. The built-in assignors only say that they need a
probing rebalance, and the leader's own client requests it. A custom assignor sets times for clients of its choice.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from streams_protocol.types import ProcessId

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def probing_deadlines(
    clients: Collection[ProcessId], leader: ProcessId, *, now_ms: int, interval_ms: int
) -> dict[ProcessId, int]:
    """Return the follow-up time of the leader's client, in ms since the epoch.

    Empty when the leader's client has no usable member in the group.
    """
    return {leader: now_ms + interval_ms} if leader in clients else {}


def epoch_millis(deadline: datetime) -> int:
    """Return milliseconds since the epoch, rounded down. ``deadline`` must have a time zone."""
    return (deadline - _EPOCH) // _MILLISECOND
