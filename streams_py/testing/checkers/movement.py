"""A7: a rebalance without any change moves no active task.

Required of the high-availability assignor, which is the default, and of an assignor of the user. The sticky assignors
are only as sticky as Kafka Streams': a client keeps the share of its threads (tasks divided by threads, rounded down),
and the few remaining tasks are placed again in each rebalance. A2 checks how many warm-up tasks a rebalance may start.
How many tasks may move when one client is lost is a property of each assignor, and is tested there.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome


class Movement(Checker):
    """Checks that tasks do not move without need: every move costs a pause or a restore."""

    promise = "A7"

    def ended(self, seen: Outcome) -> None:
        if not seen.before or not (seen.user_assignor or seen.assignor == "high_availability"):
            return
        self.checks += 1
        for task, placed in sorted(seen.before.items()):
            now = seen.after.get(task)
            if now != placed:
                there = "no thread" if now is None else now.thread
                self.report(seen.at_ms, f"{task} moved from {placed.thread} to {there} although nothing changed")
