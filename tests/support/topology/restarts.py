"""A test driver that restarts in the middle."""

from __future__ import annotations

from collections.abc import Callable

from streams_py.testing.driver import TopologyTestDriver
from tests.support.topology.driver_parts import tasks_of


def restart(driver: TopologyTestDriver, reopen: Callable[[], object] = lambda: None) -> None:
    """Start the task again with only the stored and committed data. ``reopen`` has the same effect on the stores as
    closing and opening them.
    """
    (task,) = tasks_of(driver)
    committed = task.committable_offsets()
    task.suspend()
    reopen()
    task.resume()
    task.complete_restoration(committed)
