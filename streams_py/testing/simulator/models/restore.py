"""A model of the requests for end offsets of a restore, and of their answers.

An active task runs when its stores have reached the end offsets that the state updater received. A wrong end offset
would leave a store incomplete. So two faults are injected: brokers that do not answer, and a client library that
returns invented offsets when a broker fails during the request (offset -1001, reported as success). The real function
:func:`streams_py.adapters.confluent.answers.offset_of` reads the answers. An end offset below the position is rejected.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from streams_protocol.types import TaskId
from streams_py.adapters.confluent.answers import offset_of
from streams_py.ports import AdminError
from streams_py.testing.simulator.faults.faults import Fault, OngoingFaults
from streams_py.testing.simulator.models.cluster import MADE_UP_OFFSETS, LibraryAnswer, SimulatedCluster
from streams_py.testing.simulator.mutants import BELIEVE_EVERY_ANSWER, CHECKPOINT_FIRST

RESTORE_RETRY_MS: Final = 1_000


class ToldEnd(NamedTuple):
    """End offset of a task's changelogs as reported; ``lacking`` is the number of records after it."""

    offset: int
    lacking: int


class SimulatedRestore:
    """Answers requests for end offsets of one process, and determines its checkpoints when it is killed."""

    def __init__(
        self, cluster: SimulatedCluster, ongoing_faults: OngoingFaults, rng: random.Random, mutant: str | None
    ) -> None:
        self._cluster = cluster
        self._ongoing_faults = ongoing_faults
        self._rng = rng
        self._mutant = mutant

    def end_of(self, task: TaskId, position: int) -> ToldEnd | None:
        """Return the end of the task's changelogs; None if it is unknown and the request must be repeated."""
        truth = self._cluster.end_of_task(task)
        if self._ongoing_faults.occurs(Fault.RESTORE_UNANSWERED, self._rng):
            return None
        end = truth
        if self._ongoing_faults.occurs(Fault.RESTORE_MADE_UP, self._rng):
            end = self._rng.choice((*MADE_UP_OFFSETS, position // 2 if position else -1))
        if self._mutant == BELIEVE_EVERY_ANSWER:
            return ToldEnd(end, max(0, truth - max(end, position)))
        answer = offset_of(LibraryAnswer(end))
        if isinstance(answer, AdminError) or answer < position:
            return None
        return ToldEnd(answer, truth - answer)

    def torn(self, position: int, before: int | None) -> tuple[int | None, int]:
        """Return (checkpoint, number of its records that the store lacks) after a kill during a checkpoint.

        The store is flushed before the checkpoint is written, so a correct checkpoint never claims too much.
        """
        if self._mutant == CHECKPOINT_FIRST:
            return position, position - (before or 0)
        return (position if self._rng.random() < 0.5 else before), 0
