"""Fixtures of all unit tests."""

from __future__ import annotations

import pytest

from streams_py.runtime.wiring.shared import SharedResources


@pytest.fixture(autouse=True)
def _no_sibling_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no thread that watches other instances: many unit tests leave their clients open.

    Its own tests start it themselves. Tests with real processes use it.
    """
    monkeypatch.setattr(SharedResources, "_watch_siblings", lambda *_: None)  # it starts a thread that reads the disk
