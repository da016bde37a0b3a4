"""All kinds of faults, and the state of lasting faults.

An *instant* fault happens at one point in time (a process is killed). A *lasting* fault has a duration (topics cannot
be created). Each schedule excludes a random subset of kinds and gives the others random weights, because some bugs
show only when no other fault interferes.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import Enum


class Fault(Enum):
    """Kinds of events in a schedule; the value is the name in reports."""

    JOIN = "process joins"
    ADD_THREAD = "thread joins"
    LEAVE = "process leaves"
    KILL = "process killed"
    KILL_THREAD = "thread killed"
    RESTART = "process killed and restarted"
    WIPE = "killed, state lost, restarted"
    FREEZE = "process frozen"
    SLOW = "thread does not poll"
    LOSE_GENERATION = "generation lost"
    REBALANCE = "rebalance requested"
    UPGRADE = "process bounced to the next release"
    LAG_JUMP = "records arrive in bulk"
    CLOCK_JUMP = "wall clock of a process jumps"
    GARBAGE_MEMBER = "hostile member: garbage"
    LYING_MEMBER = "hostile member: lies"
    FALSE_OFFSETS = "member reports false offsets"
    CORRUPT_ASSIGNMENT = "assignment corrupted in transit"
    DESCRIBE_FAILS = "topics cannot be described"
    CREATE_FAILS = "topics cannot be created"
    OFFSETS_FAIL = "end offsets cannot be listed"
    COMMITTED_FAIL = "committed offsets cannot be fetched"
    SOURCE_MISSING = "source topic missing"
    PARTITIONS_ADDED = "partitions added"
    SLOW_NETWORK = "slow network"
    REPLIES_LOST = "replies lost"
    COORDINATOR_MOVES = "group coordinator moves"
    OFFSETS_MADE_UP = "end offsets invented by the client library"
    RESTORE_UNANSWERED = "request for end offsets of a restore unanswered"
    RESTORE_MADE_UP = "end offsets of a restore invented by the client library"
    CHECKPOINT_TORN = "killed while checkpoints are written"
    ASSIGNOR_RAISES = "assignor raises"
    ASSIGNOR_HANGS = "assignor hangs"
    ASSIGNOR_NONSENSE = "assignor returns nonsense"
    EVICTIONS = "dead members removed"
    EVICTED_LATE = "killed, members removed late"
    EVICTED_TWICE = "killed, members removed several times"
    EVICTED_ALIVE = "members of a living process removed"
    EVICTED_BY_LIAR = "members removed by a liar"


class OngoingFaults:
    """Lasting faults: which are active, their likelihood, and the number of occurrences of each kind."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._on: dict[Fault, list[float]] = {}
        self.occurred: Counter[Fault] = Counter()
        self.ended = False
        """Whether all faults have ended; no fault starts after that."""

    def start(self, fault: Fault, likelihood: float) -> None:
        """Start a fault, which occurs with this likelihood until :meth:`stop`."""
        if not self.ended:
            self._on.setdefault(fault, []).append(likelihood)

    def stop(self, fault: Fault) -> None:
        """Stop the oldest active fault of this kind."""
        likelihoods = self._on.get(fault)
        if likelihoods:
            likelihoods.pop(0)
            if not likelihoods:
                del self._on[fault]

    def end_all(self) -> None:
        """Stop all faults, and allow no new ones."""
        self._on.clear()
        self.ended = True

    def on(self, fault: Fault) -> bool:
        """Return whether a fault of this kind is active."""
        return fault in self._on

    def occurs(self, fault: Fault, rng: random.Random | None = None) -> bool:
        """Decide whether an active fault occurs now, and count it. ``rng`` replaces the world's generator."""
        likelihoods = self._on.get(fault)
        if not likelihoods or (rng or self._rng).random() >= max(likelihoods):
            return False
        self.occurred[fault] += 1
        return True
