"""Draining: other instances take over the tasks of an instance that stops permanently, while it continues to work.

:mod:`streams_py.assignment.assignors.draining` has the assignment. This module has the client's side: whether waiting
helps, how long it may take, and the wait itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from streams_py.runtime.thread.states import ThreadState

if TYPE_CHECKING:
    from streams_py.ports import Clock
    from streams_py.runtime.thread.stream_thread import StreamThread

_log = logging.getLogger("streams_py")

_POLL_MS: Final = 20
_PART: Final = 3
_USUAL_S: Final = 60.0


def part_for_hand_over(timeout: float | None) -> float:
    """Return the part of a close, in seconds, that may be spent on the hand-over.

    That is a third of the time-out, or a third of a minute without one. A leader that ignores the request (Java) uses
    up all of it.
    """
    return (_USUAL_S if timeout is None else timeout) / _PART


def would_help(threads: Collection[StreamThread]) -> bool:
    """Whether waiting for a hand-over shortens the downtime of any task.

    It does if these threads process tasks with state and another instance may take them over. A task without state
    pauses for a rebalance either way, and a task that restores is not processed yet.
    """
    return any(thread.processes_state for thread in threads) and have_successors(threads)


def have_successors(threads: Collection[StreamThread]) -> bool:
    """Whether other processes may take tasks over.

    False if one of these threads leads the group and has seen no other process that stays. If another member leads,
    the group has other members.
    """
    return not any(thread.leads_alone for thread in threads if thread.state is not ThreadState.DEAD)


def await_hand_over(
    name: str,
    threads: Callable[[], Collection[StreamThread]],
    clock: Clock,
    should_wait: Callable[[], bool],
    timeout: float | None,
) -> bool:
    """Wait until all threads are drained.

    Returns:
        False, after a warning with the remaining tasks, if ``should_wait`` turns false first, or after ``timeout``
        seconds (None: no limit).
    """
    began_ms = clock.monotonic_ms()
    while not all(thread.is_drained for thread in threads()):
        spent_ms = clock.monotonic_ms() - began_ms
        if not should_wait() or (timeout is not None and spent_ms > 1000 * timeout):
            left = sorted(task.id for thread in threads() for task in thread.tasks if task.is_active)
            names = ", ".join(map(str, left)) or "no active tasks"
            _log.warning("%s: not drained after %.1f s: still has %s", name, spent_ms / 1000, names)
            return False
        clock.sleep_ms(_POLL_MS)
    _log.info("%s: drained", name)
    return True
