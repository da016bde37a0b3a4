"""A7: a rebalance in which nothing is new moves no active task.

Asked of the high-availability assignor, which is the default, and of an assignor of the user's own. The sticky ones are
only as sticky as Kafka Streams': a client keeps what its threads are due, tasks divided by threads and rounded down,
and the few beyond that are placed anew each time. How many warm-ups a round may start is part of A2; what the loss of
one client may move is a property of each assignor and tested there.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome

__all__ = ["Movement"]


class Movement(Checker):
    """Every move costs a pause or a restore, and buys nothing when nothing has changed."""

    promise = "A7"

    def ended(self, seen: Outcome) -> None:
        if not seen.before or not (seen.own_assignor or seen.assignor == "high_availability"):
            return
        self.looked += 1
        for task, placed in sorted(seen.before.items()):
            now = seen.after.get(task)
            if now != placed:
                there = "nobody" if now is None else now.thread
                self.report(seen.at_ms, f"{task} moved from {placed.thread} to {there} although nothing was new")
