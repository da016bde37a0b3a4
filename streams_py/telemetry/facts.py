"""Lookups in a recorded rebalance: end offsets, lags, and copies of clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from streams_protocol.types import TaskId
from streams_py.events.model import ClientPart, SubtopologySlice
from streams_py.events.parts import WholeRebalance
from streams_py.telemetry.ownership import lag_of

_ACCEPTABLE_LAG: Final = "acceptable.recovery.lag"
_DEFAULT_ACCEPTABLE_LAG: Final = 10_000


class Facts:
    """A read-only view of one rebalance."""

    def __init__(self, whole: WholeRebalance) -> None:
        self.whole = whole
        self.parts: Mapping[str, ClientPart] = {part.client: part for part in whole.clients}
        self._slices = {piece.sub: piece for piece in whole.slices}
        self._sums = {part.client: dict(zip(part.sums.tasks, part.sums.v, strict=True)) for part in whole.clients}
        self._copies = {part.client: frozenset(part.prev_standby) for part in whole.clients}
        self._actives = {part.client: frozenset(part.prev_active) for part in whole.clients}
        given = whole.header.configs.get(_ACCEPTABLE_LAG)
        self.acceptable_lag = given if isinstance(given, int) else _DEFAULT_ACCEPTABLE_LAG

    def tasks(self) -> Iterator[TaskId]:
        """Yield every task that had to be assigned, ascending within its sub-topology."""
        for piece in self.whole.slices:
            name, _, number = piece.sub.rpartition("__")
            for partition in range(piece.first, piece.first + piece.count):
                yield TaskId(int(number), partition, name or None)

    def slice_of(self, task: TaskId) -> SubtopologySlice | None:
        """Return the sub-topology of a task; None for a task that no longer exists."""
        piece = self._slices.get(f"{task.name}__{task.subtopology}" if task.name else str(task.subtopology))
        return None if piece is None or not 0 <= task.partition - piece.first < piece.count else piece

    def is_stateful(self, task: TaskId) -> bool:
        """Whether the task has a store."""
        piece = self.slice_of(task)
        return piece is not None and piece.stateful

    def end_of(self, task: TaskId) -> int | None:
        """Return the sum of end offsets; None without a changelog, -3 if it is unknown."""
        piece = self.slice_of(task)
        return None if piece is None or piece.end is None else piece.end[task.partition - piece.first]

    def lag(self, client: str, task: TaskId) -> int | None:
        """Return the lag before the rebalance, see :func:`~streams_py.telemetry.ownership.lag_of`."""
        return lag_of(self.parts.get(client), self._sums.get(client, {}), task, self.end_of(task))

    def had_copy(self, client: str, task: TaskId) -> bool:
        """Whether the client had the task as standby or warm-up, or its state on disk."""
        return task in self._copies.get(client, ())

    def previous_role(self, client: str, task: TaskId) -> str | None:
        """Return the role of the task on the client before the rebalance; None without one."""
        if task in self._actives.get(client, ()):
            return "active"
        return "standby" if self.had_copy(client, task) else None
