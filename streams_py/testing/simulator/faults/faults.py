"""Every kind of misfortune, and which of them are going on.

A *blow* happens at one instant (a process is killed); a *spell* lasts a while (topics cannot be created). A schedule
turns a random subset of kinds off altogether and weighs the others at random: some bugs show only when nothing else
disturbs them.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import Enum

__all__ = ["Fault", "Spells"]


class Fault(Enum):
    """Kinds of events in a schedule; the value is what reports call them."""

    JOIN = "process joins"
    ADD_THREAD = "thread joins"
    LEAVE = "process leaves"
    KILL = "process killed"
    KILL_THREAD = "thread killed"
    RESTART = "killed and restarted at once"
    WIPE = "killed, state lost, restarted"
    FREEZE = "process frozen"
    SLOW = "thread does not poll"
    LOSE_GENERATION = "generation lost"
    REBALANCE = "rebalance asked for"
    UPGRADE = "process bounced to the next release"
    LAG_JUMP = "records arrive in bulk"
    CLOCK_JUMP = "wall clock of a process jumps"
    GARBAGE_MEMBER = "hostile member: garbage"
    LYING_MEMBER = "hostile member: lies"
    FALSE_OFFSETS = "member reports false offsets"
    CORRUPT_ASSIGNMENT = "assignment corrupted on its way"
    DESCRIBE_FAILS = "topics cannot be described"
    CREATE_FAILS = "topics cannot be created"
    OFFSETS_FAIL = "end offsets cannot be listed"
    COMMITTED_FAIL = "committed offsets cannot be fetched"
    SOURCE_MISSING = "source topic missing"
    PARTITIONS_ADDED = "partitions added"
    SLOW_NETWORK = "slow network"
    REPLIES_LOST = "replies lost"
    COORDINATOR_MOVES = "group coordinator moves"
    OFFSETS_MADE_UP = "end offsets made up by the client library"
    RESTORE_UNANSWERED = "end offsets for a restore not answered"
    RESTORE_MADE_UP = "end offsets for a restore made up"
    CHECKPOINT_TORN = "killed while checkpoints are written"
    ASSIGNOR_RAISES = "assignor raises"
    ASSIGNOR_HANGS = "assignor hangs"
    ASSIGNOR_NONSENSE = "assignor returns nonsense"


class Spells:
    """Faults that last: which are on, how likely each one strikes, and how often each kind did."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._on: dict[Fault, list[float]] = {}
        self.struck: Counter[Fault] = Counter()
        self.ended = False
        """True once all faults have ended for good."""

    def start(self, fault: Fault, likelihood: float) -> None:
        """From now on the fault strikes with this likelihood, until :meth:`stop`."""
        if not self.ended:
            self._on.setdefault(fault, []).append(likelihood)

    def stop(self, fault: Fault) -> None:
        """One spell of this kind is over."""
        spells = self._on.get(fault)
        if spells:
            spells.pop(0)
            if not spells:
                del self._on[fault]

    def end_all(self) -> None:
        """No fault ever again."""
        self._on.clear()
        self.ended = True

    def on(self, fault: Fault) -> bool:
        """Whether a spell of this kind is going on."""
        return fault in self._on

    def strikes(self, fault: Fault, rng: random.Random | None = None) -> bool:
        """Whether it strikes now; counted. ``rng`` decides, for those who have one of their own."""
        spells = self._on.get(fault)
        if not spells or (rng or self._rng).random() >= max(spells):
            return False
        self.struck[fault] += 1
        return True
