"""Where the leader's assign step stands: which answer it waits for."""

from __future__ import annotations

from enum import Enum

__all__ = ["Phase"]


class Phase(Enum):
    """Phases of one assign, in order; after DONE (or FAILED) the leader accepts the next request."""

    IDLE = "waiting for the first request"
    DECODE = "reading the members' subscriptions"
    REPARTITION_TOPICS = "making repartition topics ready"
    CHANGELOG_TOPICS = "making changelog topics ready"
    OFFSETS = "reading end offsets and committed offsets"
    RACKS = "looking up the racks of internal topics"
    ASSIGNOR = "waiting for the application's task assignor"
    DONE = "assignments published"
    FAILED = "failed without assignments"
