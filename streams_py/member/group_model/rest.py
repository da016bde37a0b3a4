"""Whether a group stops rebalancing, and after how many rounds.

A group that still rebalances after the maximum number of rounds may repeat the same decisions in a cycle. In a cycle of
length 1 the decisions stay the same, and the group rebalances nevertheless. A cycle is *endless* when each of its
rounds causes the next one. Otherwise the decision changes with every rebalance, but no round causes another
rebalances.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Round(NamedTuple):
    """One rebalance.

    ``continues``: it causes another rebalance. ``changed``: it is not the last one for another reason. ``decision`` is
    any value that supports ``==``.
    """

    decision: object
    continues: bool
    changed: bool = False


class Rest(NamedTuple):
    """The result of :func:`follow`.

    ``rounds`` is the number of rounds examined. ``stable``: the last round causes no other one. ``cycle`` is the length
    of the cycle of decisions, None without a cycle. ``endless``: every round of the cycle causes the next one.
    """

    rounds: int
    stable: bool
    cycle: int | None = None
    endless: bool = False


def follow(rounds: Iterable[Round], rounds_max: int) -> Rest:
    """Examine rounds until one is stable, the iterable ends, or ``rounds_max`` were examined.

    Takes only as many rounds from the iterable as needed.
    """
    decisions: list[object] = []
    continued: list[bool] = []
    for round in rounds:
        decisions.append(round.decision)
        continued.append(round.continues)
        if not round.continues and not round.changed:
            return Rest(len(decisions), stable=True)
        if len(decisions) == rounds_max:
            cycle = _cycle(decisions)
            endless = cycle is not None and all(continued[len(continued) // 2 :])
            return Rest(rounds_max, stable=False, cycle=cycle, endless=endless)
    return Rest(len(decisions), stable=False)


def _cycle(decisions: Sequence[object]) -> int | None:
    """Return the smallest period of the second half of the decisions, or None."""
    tail = decisions[len(decisions) // 2 :]
    for length in range(1, len(tail) // 2 + 1):
        if all(tail[at] == tail[at - length] for at in range(length, len(tail))):
            return length
    return None
