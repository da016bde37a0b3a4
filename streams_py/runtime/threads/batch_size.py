"""How many records a task may process between two looks at the rest of the world.

A stream thread alternates between processing, punctuating, committing and polling. Looking whether there is anything
else to do costs as much as a dozen records, so ``n``, the number of records each task may process per turn, follows the
time that turns take. (Kafka's ``StreamThread.runOnce`` adds one with each turn and halves it with each commit: when
commits come every 100 ms, it never gets beyond some dozens.) It lives as long as the thread.
"""

from __future__ import annotations

__all__ = ["BatchSize", "Slice"]

_TURN_MS = 10
_SLICE_MS = 5


class BatchSize:
    """The number of records per task and turn, and whether to take another turn before polling again."""

    def __init__(self, max_poll_interval_ms: int) -> None:
        self.n = 1
        self._poll_limit_ms = max_poll_interval_ms // 2

    def goes_on(self, *, more: bool, took_ms: int, since_poll_ms: int) -> bool:
        """Adapt ``n`` to a turn that has just ended; False when it is time to poll.

        ``more``: a task has taken as many records as it might, so it may have others. ``took_ms``: all tasks together.
        """
        if took_ms > _TURN_MS:
            self.n = max(1, self.n * _TURN_MS // took_ms)
        elif more and 2 * took_ms <= _TURN_MS:
            self.n *= 2
        return more and since_poll_ms <= self._poll_limit_ms


class Slice:
    """The number of records between two looks at the membership, within a turn.

    A process that was frozen, or whose user code took too long, may own nothing any more when it goes on. It shall find
    out after a few milliseconds of work or after one slow record, whichever is longer, and not after ``n`` records.
    """

    def __init__(self) -> None:
        self.size = 1

    def adapt(self, *, taken: int, took_ms: int) -> None:
        """``taken`` records took this long; make the next slice last about 5 ms."""
        if took_ms > _SLICE_MS:
            self.size = max(1, min(self.size, taken * _SLICE_MS // took_ms))
        elif taken >= self.size:
            self.size *= 2
