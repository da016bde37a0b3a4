"""An instance that is to go for good has the others take its tasks over while it goes on working.

What the group does about it is in :mod:`streams_py.assignment.assignors.draining`. Here is the client's side: whether
that would gain anything, how long it may take, and the wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from streams_py.runtime.states import ThreadState

if TYPE_CHECKING:
    from streams_py.ports import Clock
    from streams_py.runtime.threads.stream_thread import StreamThread

__all__ = ["await_hand_over", "have_successors", "part_for_hand_over", "would_gain"]

_log = logging.getLogger("streams_py")

_POLL_MS: Final = 20
_PART: Final = 3
_USUAL_S: Final = 60.0


def part_for_hand_over(timeout: float | None) -> float:
    """Seconds of a close that may go by until others have the tasks: a third of its time-out, or of a minute when it
    has none. A leader that does not know what is asked (one in Java) lets all of it go by."""
    return (_USUAL_S if timeout is None else timeout) / _PART


def would_gain(threads: Collection[StreamThread]) -> bool:
    """Whether anything goes on longer if these wait for a hand-over: they process state, and somebody may take it over.

    Tasks without state stand still for a rebalance either way, and tasks that restore are not processed yet.
    """
    return any(thread.processes_state for thread in threads) and have_successors(threads)


def have_successors(threads: Collection[StreamThread]) -> bool:
    """False when one of these leads the group and has seen no other process that stays. Who does not lead has others
    beside it."""
    return not any(thread.leads_alone for thread in threads if thread.state is not ThreadState.DEAD)


def await_hand_over(
    name: str,
    threads: Callable[[], Collection[StreamThread]],
    clock: Clock,
    goes_on: Callable[[], bool],
    timeout: float | None,
) -> bool:
    """Wait until all threads are drained; False, and a word about what is left, when ``goes_on`` says no or ``timeout``
    seconds are over first (None: never)."""
    began_ms = clock.monotonic_ms()
    while not all(thread.is_drained for thread in threads()):
        spent_ms = clock.monotonic_ms() - began_ms
        if not goes_on() or (timeout is not None and spent_ms > 1000 * timeout):
            left = sorted(task.id for thread in threads() for task in thread.tasks if task.is_active)
            names = ", ".join(map(str, left)) or "nothing"
            _log.warning("%s: not drained after %.1f s: it has %s", name, spent_ms / 1000, names)
            return False
        clock.sleep_ms(_POLL_MS)
    _log.info("%s: drained", name)
    return True
