"""Fixtures of the membership's tests."""

from __future__ import annotations

import pytest

from streams_py.adapters.kafka_python import quiet_logs
from tests.support.kafka_python.scripted_member import Member


@pytest.fixture(autouse=True)
def _nothing_was_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that another test has logged a moment ago would not be seen again."""
    monkeypatch.setattr(quiet_logs._REPEAT_FILTER, "_passed_at", {})  # one filter for the whole process


@pytest.fixture
def make():
    made = []

    def new(**options):
        made.append(Member(**options))
        return made[-1]

    yield new
    for member in made:
        member.client.close()
