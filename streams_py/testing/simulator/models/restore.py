"""What a state updater asks before it believes that a store is complete: where the changelogs end. And who answers.

An active task runs when its stores have reached the ends it was told. So whatever is told there decides whether a store
is whole: brokers that do not answer, and a client library that fills in values of its own when a broker dies while it
is asked (offset -1001, reported as success), are faults like any other. Answers are read by what reads them in earnest,
:func:`streams_py.adapters.confluent.answers.offset_of`; an end before the position is no answer either.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from streams_protocol.types import TaskId
from streams_py.adapters.confluent.answers import offset_of
from streams_py.ports import AdminError
from streams_py.testing.simulator.faults.faults import Fault, Spells
from streams_py.testing.simulator.models.cluster import MADE_UP_OFFSETS, LibraryAnswer, SimulatedCluster
from streams_py.testing.simulator.mutants import BELIEVE_EVERY_ANSWER, CHECKPOINT_FIRST

__all__ = ["RESTORE_RETRY_MS", "SimulatedRestore", "ToldEnd"]

RESTORE_RETRY_MS: Final = 1_000


class ToldEnd(NamedTuple):
    """Where a task's changelogs are believed to end; ``lacking`` records behind that are not known of."""

    offset: int
    lacking: int


class SimulatedRestore:
    """Asks for the ends of changelogs, for one process, and writes its checkpoints when it dies."""

    def __init__(self, cluster: SimulatedCluster, spells: Spells, rng: random.Random, mutant: str | None) -> None:
        self._cluster = cluster
        self._spells = spells
        self._rng = rng
        self._mutant = mutant

    def end_of(self, task: TaskId, position: int) -> ToldEnd | None:
        """Where the changelogs of the task end; None when that is not known yet: ask again."""
        truth = self._cluster.end_of_task(task)
        if self._spells.strikes(Fault.RESTORE_UNANSWERED, self._rng):
            return None
        end = truth
        if self._spells.strikes(Fault.RESTORE_MADE_UP, self._rng):
            end = self._rng.choice((*MADE_UP_OFFSETS, position // 2 if position else -1))
        if self._mutant == BELIEVE_EVERY_ANSWER:
            return ToldEnd(end, max(0, truth - max(end, position)))
        answer = offset_of(LibraryAnswer(end))
        if isinstance(answer, AdminError) or answer < position:
            return None
        return ToldEnd(answer, truth - answer)

    def torn(self, position: int, before: int | None) -> tuple[int | None, int]:
        """(what the checkpoint says, how many of these records the store lacks) after a kill in the middle: first the
        store is flushed, then the checkpoint is written."""
        if self._mutant == CHECKPOINT_FIRST:
            return position, position - (before or 0)
        return (position if self._rng.random() < 0.5 else before), 0
