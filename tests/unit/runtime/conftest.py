"""Fixtures shared by the tests of the runtime: a client, a changelog, and a stream thread on a simulated Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runtime.fake_threads import Client
from tests.support.runtime.fakes import FakeLog
from tests.support.runtime.world import Steps, World, counting


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path, num_stream_threads=2)


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app-counts-changelog": 2})


@pytest.fixture
def steps(world: World, tmp_path: Path) -> Steps:
    """A stream thread that counts words of two partitions."""
    return Steps(world, counting(), tmp_path)
