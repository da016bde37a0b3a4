"""Fixtures shared by tests of clients and of restores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runtime.fake_threads import Client
from tests.support.runtime.fakes import FakeLog


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path, num_stream_threads=2)


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()
