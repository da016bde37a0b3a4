"""Counts how many rows of the scenario tables the tests of a run covered (see ``tests/scenarios.py``)."""

from __future__ import annotations

import gc
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.parallel import Distribution
from tests.scenarios import TABLES, rows_played
from tests.secret_search import SecretSearch
from tests.tiers import Tiers

_ROOT = Path(__file__).resolve().parent.parent
_Row = tuple[int, str]
"""(Number of the table, id)."""


class RowCounter:
    """A row ran if one of its tests ran and no test of it failed."""

    def __init__(self) -> None:
        self.rows_of: dict[str, list[_Row]] = {}
        self.passed: set[_Row] = set()
        self.failed: set[_Row] = set()

    @pytest.hookimpl(trylast=True)  # after -m and -k: count only selected tests
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._selected([item.nodeid for item in items])

    @pytest.hookimpl(optionalhook=True)  # in a parallel run, workers collect and the controller counts
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._selected(ids)

    def _selected(self, ids: list[str]) -> None:
        for nodeid in ids:
            path, text = nodeid.partition("::")[0], _text(nodeid)
            rows = [(number, row) for number, table in enumerate(TABLES) for row in rows_played(table, path, text)]
            if rows:
                self.rows_of[nodeid] = rows

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = self.rows_of.get(report.nodeid, ())
        if report.failed:
            self.failed.update(rows)
        elif report.when == "call" and report.passed:
            self.passed.update(rows)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        chosen: dict[int, set[str]] = defaultdict(set)
        for number, row in {row for rows in self.rows_of.values() for row in rows}:
            chosen[number].add(row)
        counts = []
        for number in sorted(chosen):
            table = TABLES[number]
            ran = {row for of, row in self.passed - self.failed if of == number}
            counts.append(f"{table.title} {len(ran)} of {len(table.playable)}")
        if counts:
            terminalreporter.write_line("rows of scenario tables that ran: " + "; ".join(counts))


@cache
def _comments(path: str) -> dict[str, str]:
    """Return the comment at the end of the ``def`` line of each test function of a file."""
    text = (_ROOT / path).read_text(encoding="utf-8")
    pattern = r"^ *def (test_\w+)\((?:[^#]*?)\) -> None:(.*)$"
    return {match[1]: match[2] for match in re.finditer(pattern, text, re.MULTILINE)}


def _text(nodeid: str) -> str:
    """Return all texts in which a test may name rows."""
    path, _, name = nodeid.partition("::")
    function = name.partition("[")[0].rpartition("::")[2]
    return f"{name} {_comments(path).get(function, '')}"


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which would traverse thousands of them again and again."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RowCounter(), "scenario-rows")
    config.pluginmanager.register(Distribution(), "distribution")
    config.pluginmanager.register(Tiers(), "tiers")
    config.pluginmanager.register(SecretSearch(), "secret-search")


@pytest.fixture(autouse=True)
def _logging_is_left_as_it_was() -> Iterator[None]:
    """Fail a test that leaves changed log levels, which would make other tests fail."""
    before = _log_levels()
    yield
    assert _log_levels() == before


@pytest.fixture(autouse=True)
def _no_outage_is_left_over() -> None:
    """Forget outages of clusters that earlier tests stopped; during an outage, lines about waiting are not warnings."""
    outages = sys.modules.get("streams_py.system.outages")
    if outages is not None:
        outages._CONTACTS.clear()  # shared by the whole process


def _log_levels() -> tuple[int, int, int]:
    return (
        logging.root.manager.disable,
        logging.getLogger("streams_py").level,
        logging.getLogger("streams_py.assignment").level,
    )
