"""The tiers of the suite: which tests ``python3 run.py test`` runs, which ``--all`` adds, and which run weekly.

- Default: what a contributor needs to trust a change, in a few minutes. The tests without a real broker, Spark or
  browser, plus one test of each area on a real broker, with the mark ``smoke``.
- ``slow`` (``--all``): tests on a real broker, on Spark or in a browser get this mark here. Other tests that take long
  have it in their source.
- ``weekly`` (``--weekly``): campaigns of minutes to hours, marked in their source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

OPTIONS: Final = {"--all": "not weekly", "--rest": "slow and not weekly", "--weekly": "weekly"}
"""The options of ``run.py test`` that choose a tier, each with its expression for pytest's ``-m``."""

_SLOW_FOLDERS: Final = ("tests/spark/", "tests/browser/")


def is_slow(nodeid: str, marks: Sequence[str]) -> bool:
    """Whether a test with these marks belongs to ``--all`` because of what it needs."""
    return "smoke" not in marks and ("broker" in marks or nodeid.startswith(_SLOW_FOLDERS))


class Tiers:
    """Pytest plugin that marks tests as slow by what they need."""

    @pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if is_slow(item.nodeid, [mark.name for mark in item.iter_markers()]):
                item.add_marker(pytest.mark.slow)
