"""How parallel test runs are shared out: who gets which tests, in which order.

A file goes to one worker as a whole, so that what its tests share is made once. All Spark tests go to one worker: there
is one session for all of them. Each worker has a broker of its own, because tests stop and kill theirs. Long files come
first: the many short ones at the end keep every worker busy until all are done.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = ["Sharing", "place_of", "turn_of"]

_TURNS = ("tests/spark/", "tests/broker/", "tests/contract/", "tests/embedded/", "")


def place_of(nodeid: str) -> str:
    """What is given to one worker as a whole."""
    return "tests/spark" if nodeid.startswith("tests/spark/") else nodeid.partition("::")[0]


def turn_of(nodeid: str) -> int:
    """Which come first: those that wait for other processes."""
    return next(turn for turn, folder in enumerate(_TURNS) if nodeid.startswith(folder))


class _Scheduler(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return place_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """As in the base class, but the test in which a worker died is not dealt out again, to kill the next one."""
        work = self.assigned_work.pop(node)
        left = [(tests, nodeid) for tests in work.values() for nodeid, done in tests.items() if not done]
        if not left:
            return None
        tests, died_in = left[0]
        tests[died_in] = True
        self.workqueue.update({place: tests for place, tests in work.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in


class Sharing:
    """pytest plugin."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> _Scheduler:
        config.option.loadscopereorder = False  # files with many tests are not those that take long
        return _Scheduler(config, log)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if hasattr(config, "workerinput"):
            items.sort(key=lambda item: turn_of(item.nodeid))
