"""Where a member stands in the life of a generation."""

from __future__ import annotations

from enum import Enum

__all__ = ["Phase"]


class Phase(Enum):
    """Phases of membership. A rebalance is in progress in JOINING and ASSIGNED."""

    OUTSIDE = "not in a group"
    JOINING = "a subscription was sent, no assignment is there"
    ASSIGNED = "the assignment was read, the rebalance is not complete"
    STABLE = "the rebalance is complete"
    FAILED = "the rebalance is complete, and ended with an error for the thread"
    STOPPING = "the rebalance is complete, and the application is to stop"
