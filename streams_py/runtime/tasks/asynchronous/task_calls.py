"""Asynchronous calls of one task, over all of its starts."""

from __future__ import annotations

from collections.abc import Callable

from streams_py.errors import IllegalStateError
from streams_py.ports import Clock, RawRecord
from streams_py.runtime.tasks.asynchronous.async_calls import AsyncNode
from streams_py.runtime.tasks.asynchronous.batch_calls import BatchNode
from streams_py.runtime.tasks.asynchronous.event_loop import Background
from streams_py.runtime.tasks.asynchronous.in_flight import InFlight, InFlightLimit
from streams_py.topology.declare.nodes import AsyncCalls, BatchCalls, NodeContext, Process, RecordContext


class TaskCalls:
    """The asynchronous calls of a task. Most tasks have no nodes that make calls.

    Args:
        background: Runs the calls. None: the task cannot make any.
        current_raw: Returns the input record that the record loop is processing, if there is one.
    """

    def __init__(
        self,
        record: RecordContext,
        background: Background | None,
        clock: Clock,
        current_raw: Callable[[], RawRecord | None],
    ) -> None:
        self._record = record
        self._background = background
        self._clock = clock
        self._current_raw = current_raw
        self._limit = InFlightLimit()
        self.in_flight: InFlight | None = None
        """Records in calls since the task started; None if no node makes calls."""

    def one_by_one(self, calls: AsyncCalls, node: NodeContext) -> Process:
        """Return the function of a node that calls a coroutine function for its records."""
        in_flight = self._in_flight_of(node)
        return in_flight.add(AsyncNode(calls, node, in_flight))

    def in_batches(self, calls: BatchCalls, node: NodeContext) -> Process:
        """Return the function of a node that calls a function with lists of its records."""
        in_flight = self._in_flight_of(node)
        return in_flight.add(BatchNode(calls, node, in_flight))

    def _in_flight_of(self, node: NodeContext) -> InFlight:
        if self.in_flight is None:
            if self._background is None:
                raise IllegalStateError(
                    f"task {node.task_id} cannot run asynchronous calls: it has no event loop", task_id=node.task_id
                )
            self.in_flight = InFlight(self._record, self._background, self._clock, self._current_raw, self._limit)
        return self.in_flight

    def forget(self) -> None:
        """Forget all calls: the task starts over, and its nodes are bound again."""
        self.in_flight = None

    def current_raw(self) -> RawRecord | None:
        """Return the input record in process, also while the answer of its call is being forwarded."""
        return (self.in_flight and self.in_flight.current_raw()) or self._current_raw()

    def cancel(self) -> None:
        """Cancel running calls. Commits of the task still don't pass their records."""
        if self.in_flight is not None:
            self.in_flight.cancel()

    @property
    def are_running(self) -> bool:
        """Whether a record is in a call."""
        return self.in_flight is not None and bool(self.in_flight.live)

    @property
    def need_commit(self) -> bool:
        """Whether a record is in a call, or was since the last commit."""
        return self.in_flight is not None and self.in_flight.needs_commit

    @property
    def are_draining(self) -> bool:
        """Whether the task processes no new records, so that a commit becomes possible."""
        return self.in_flight is not None and self.in_flight.draining

    @property
    def are_drained(self) -> bool:
        """Whether the task stopped processing to make a commit possible, and the commit is possible now."""
        return self.are_draining and not self.are_running

    def drain(self, *, drains: bool) -> bool:
        """Stop processing until the next commit, or continue. False if nothing changes."""
        return self.in_flight is not None and self.in_flight.drain(drains=drains)

    def take_fewer(self) -> int:
        """Limit the number of running calls once the task starts over, because they exceed the transaction's timeout.

        Return for how many ms the task has been starting over for this reason.
        """
        return 0 if self.in_flight is None else self.in_flight.take_fewer()

    def note_committed(self) -> None:
        """Note a commit of the task."""
        if self.in_flight is not None:
            self.in_flight.note_committed()
