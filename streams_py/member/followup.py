"""When this member asks for the next rebalance.

An assignment may tell a member to come back: at once, because a task is on its way to it, or at an instant, because
the leader wants to look again. Two more reasons are found here: the member has to change its version, and a static
member that came back with another end point and was handed its old assignment must make the new one known.
"""

from __future__ import annotations

from streams_protocol import FOLLOW_UP_NOW, NO_FOLLOW_UP, AssignmentInfo
from streams_protocol.types import HostInfo

__all__ = ["is_due", "next_rebalance_ms"]


def next_rebalance_ms(info: AssignmentInfo, *, version_changed: bool, own_host: HostInfo | None) -> int:
    """Instant of the follow-up in ms since the epoch: 0 at once, ``NO_FOLLOW_UP`` never (which ends an older plan)."""
    if version_changed:
        return FOLLOW_UP_NOW
    if own_host is not None and info.partitions_by_host and own_host not in info.partitions_by_host:
        return FOLLOW_UP_NOW
    return info.next_rebalance_ms


def is_due(scheduled_ms: int, now_ms: int) -> bool:
    """Whether the instant has passed; "at once" has, always."""
    return scheduled_ms != NO_FOLLOW_UP and scheduled_ms < now_ms
