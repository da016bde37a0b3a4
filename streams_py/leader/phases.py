"""Phases of the leader's assign step."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Phases of one assign step, in order. The next request is accepted after DONE or FAILED."""

    IDLE = "waiting for the first request"
    DECODE = "reading the members' subscriptions"
    REPARTITION_TOPICS = "making repartition topics ready"
    CHANGELOG_TOPICS = "making changelog topics ready"
    OFFSETS = "reading end offsets and committed offsets"
    RACKS = "looking up the racks of internal topics"
    ASSIGNOR = "waiting for the application's task assignor"
    DONE = "assignments published"
    FAILED = "failed without assignments"
