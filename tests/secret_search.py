"""Searches for the secrets of the tests in everything that the tests print and log.

Each password that a test gives to a client, a service or a command contains one of :data:`MARKS`. If the product writes
it to output that pytest captures, the test fails, also if it tests something else.

"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import pytest

MARKS: Final = ("5ecret", "hunter2", "s3cret", "secret-word")


class SecretSearch:
    """The pytest plugin."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        where = [title for title, text in report.sections if any(mark in text for mark in MARKS)]
        if where and report.when == "teardown" and report.passed:  # it contains the sections of all phases
            report.outcome = "failed"
            report.longrepr = f"a secret of the suite is shown: {', '.join(where).lower()}"
        return report
