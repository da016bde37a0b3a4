"""A stream thread that counts words of two partitions, on a simulated Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runtime.world import Steps, World, counting


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app-counts-changelog": 2})


@pytest.fixture
def steps(world: World, tmp_path: Path) -> Steps:
    return Steps(world, counting(), tmp_path)
