"""How many records a task may process before the thread checks for other work.

A stream thread alternates between processing, punctuating, committing and polling. A check for other work costs as much
as a dozen records. So ``n``, the number of records per task and turn, follows the duration of turns. (Kafka's
``StreamThread.runOnce`` adds one at each turn and halves it at each commit. With a commit every 100 ms, it never
exceeds a few dozens.) The object lives as long as the thread.
"""

from __future__ import annotations

_TURN_MS = 10
_SLICE_MS = 5


class BatchSize:
    """The number of records per task and turn, and whether another turn follows before the next poll."""

    def __init__(self, max_poll_interval_ms: int) -> None:
        self.n = 1
        self._poll_limit_ms = max_poll_interval_ms // 2

    def should_continue(self, *, more: bool, took_ms: int, since_poll_ms: int) -> bool:
        """Adapt ``n`` to a finished turn. Return False if it is time to poll.

        Args:
            more: Whether a task processed the maximum number of records, so that it may have more.
            took_ms: Duration of the turn for all tasks together.
            since_poll_ms: Time since the last poll.
        """
        if took_ms > _TURN_MS:
            self.n = max(1, self.n * _TURN_MS // took_ms)
        elif more and 2 * took_ms <= _TURN_MS:
            self.n *= 2
        return more and since_poll_ms <= self._poll_limit_ms


class Slice:
    """The number of records between two checks of the membership, within a turn.

    A process that was frozen, or whose user code took too long, may own no tasks when it continues. It detects this
    after a few milliseconds of work or after one slow record, whichever takes longer, instead of after ``n`` records.
    """

    def __init__(self) -> None:
        self.size = 1

    def adapt(self, *, taken: int, took_ms: int) -> None:
        """Make the next slice last about 5 ms, given that ``taken`` records took ``took_ms``."""
        if took_ms > _SLICE_MS:
            self.size = max(1, min(self.size, taken * _SLICE_MS // took_ms))
        elif taken >= self.size:
            self.size *= 2
