"""Random order of tests, repeatable by a seed, so that a test that depends on another one soon fails.

Files are shuffled, then the classes and functions of a file, and the tests of a class. The seed alone decides whether
one test comes before another. A smaller selection with the same seed therefore keeps its order, which helps to find the
test that disturbs another one:

    python3 run.py test --shuffle=SEED tests/unit/spark

"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

_OPTION = "--shuffle"


def order_of(seed: int, *names: str) -> tuple[bytes, ...]:
    """Return the sort key of a test, for the names of its file, its class and itself."""
    return tuple(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest() for name in names)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=int, metavar="SEED", help="random order; one seed, one order")


def pytest_configure(config: pytest.Config) -> None:
    seed = config.getoption(_OPTION)
    if seed is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Announcement(seed), "shuffling-announcement")


@pytest.hookimpl(tryfirst=True)  # afterwards pytest groups tests that share a parameter of a module or session
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption(_OPTION)
    if seed is not None:
        items.sort(key=lambda item: order_of(seed, *_names(item)))


def _names(item: pytest.Item) -> Sequence[str]:
    file = item.nodeid.partition("::")[0]
    group = item.nodeid if item.parent is None or isinstance(item.parent, pytest.Module) else item.parent.nodeid
    return file, group, item.nodeid


class _Announcement:
    """Prints the seed at the start of a run and, because a long run scrolls away, at its end."""

    def __init__(self, seed: int) -> None:
        self._line = f"order of the tests: {_OPTION}={seed} repeats it"

    @pytest.hookimpl(trylast=True)  # pytest creates its reporter in the same hook
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(self._line)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(self._line)
