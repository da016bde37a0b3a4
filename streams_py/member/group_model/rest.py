"""Whether a group that goes on rebalancing comes to rest, and after how many rounds.

A group that has not come to rest after so many rounds may be going round in circles: its last decisions repeat. A
circle of length 1 is a group whose decisions stay the same, and which rebalances all the same. When every round of it
leads to the next, the circle is *endless*; otherwise somebody changes his mind whenever he is asked, but leaves the
group alone in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Rest", "Round", "follow"]


class Round(NamedTuple):
    """One rebalance. ``goes_on``: another one follows by itself. ``changed``: it is not the last one for another
    reason. ``decision`` may be anything that can be compared."""

    decision: object
    goes_on: bool
    changed: bool = False


class Rest(NamedTuple):
    """``rounds`` that were looked at; ``stable`` when the last one brought rest. ``cycle`` is the length of the circle,
    None when there is none; ``endless`` whether the group is never left alone."""

    rounds: int
    stable: bool
    cycle: int | None = None
    endless: bool = False


def follow(rounds: Iterable[Round], rounds_max: int) -> Rest:
    """Look at rounds until one brings rest, there are no more, or it is enough. No more are taken than needed."""
    decisions: list[object] = []
    goes_on: list[bool] = []
    for round in rounds:
        decisions.append(round.decision)
        goes_on.append(round.goes_on)
        if not round.goes_on and not round.changed:
            return Rest(len(decisions), stable=True)
        if len(decisions) == rounds_max:
            cycle = _cycle(decisions)
            endless = cycle is not None and all(goes_on[len(goes_on) // 2 :])
            return Rest(rounds_max, stable=False, cycle=cycle, endless=endless)
    return Rest(len(decisions), stable=False)


def _cycle(decisions: Sequence[object]) -> int | None:
    """The smallest length by which the second half of the decisions repeats itself."""
    tail = decisions[len(decisions) // 2 :]
    for length in range(1, len(tail) // 2 + 1):
        if all(tail[at] == tail[at - length] for at in range(length, len(tail))):
            return length
    return None
