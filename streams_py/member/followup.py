"""The time at which this member requests the next rebalance.

An assignment may tell a member to rejoin: immediately, because a task is about to move to it, or at a given time,
because the leader wants to check the placement again. This module finds two more reasons. The member has to change its
version. Or a static member restarted with another endpoint and received its previous assignment: it must announce the
new endpoint.
"""

from __future__ import annotations

from streams_protocol import FOLLOW_UP_NOW, NO_FOLLOW_UP, AssignmentInfo
from streams_protocol.types import HostInfo


def next_rebalance_ms(info: AssignmentInfo, *, version_changed: bool, own_host: HostInfo | None) -> int:
    """Return the time of the follow-up rebalance, in ms since the epoch.

    0 means immediately. ``NO_FOLLOW_UP`` means never, and cancels an earlier plan.
    """
    if version_changed:
        return FOLLOW_UP_NOW
    if own_host is not None and info.partitions_by_host and own_host not in info.partitions_by_host:
        return FOLLOW_UP_NOW
    return info.next_rebalance_ms


def is_due(scheduled_ms: int, now_ms: int) -> bool:
    """Whether the scheduled time has passed; 0 ("immediately") always has."""
    return scheduled_ms != NO_FOLLOW_UP and scheduled_ms < now_ms
