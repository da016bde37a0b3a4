"""Distribution of tests to the workers of a parallel run.

A file goes to one worker as a whole, so that its shared fixtures are created once. All Spark tests go to one worker,
because they share one session. Each worker has a separate broker, because tests stop and kill brokers. Long files come
first, so that many short ones are left at the end to keep every worker busy.

"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_TURNS = (
    "tests/spark/",
    "tests/broker/",
    "tests/contract/",
    "tests/embedded/",
    "tests/docs/",
    "tests/unit/testing/simulator/",
    "",
)


def place_of(nodeid: str) -> str:
    """Return the key of the unit that is given to one worker as a whole."""
    return "tests/spark" if nodeid.startswith("tests/spark/") else nodeid.partition("::")[0]


def turn_of(nodeid: str) -> int:
    """Return the sort key: units that wait for other processes come first, then those with long files."""
    return next(turn for turn, folder in enumerate(_TURNS) if nodeid.startswith(folder))


class _Scheduler(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return place_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Do the same as the base class, but do not repeat a test in which a worker crashed."""
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


class Distribution:
    """The pytest plugin that distributes tests."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> _Scheduler:
        config.option.loadscopereorder = False  # files with many tests are usually not the ones that take long
        return _Scheduler(config, log)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if hasattr(config, "workerinput"):
            items.sort(key=lambda item: turn_of(item.nodeid))
