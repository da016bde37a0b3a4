"""Phases of a member within one generation."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Phases of membership. A rebalance is in progress in JOINING and ASSIGNED."""

    OUTSIDE = "not in a group"
    JOINING = "subscription sent, no assignment received yet"
    ASSIGNED = "the assignment was read, the rebalance is not complete"
    STABLE = "the rebalance is complete"
    FAILED = "the rebalance is complete, and ended with an error for the thread"
    STOPPING = "the rebalance is complete, and the application is to stop"
