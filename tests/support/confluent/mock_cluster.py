"""Fixtures: a mock cluster in this process, a topic of it, and configurations for it.

No JVM, no server process. A ``conftest.py`` imports the fixtures that its tests use.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.config.streams_config import StreamsConfig

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[MockCluster]:
    mock = MockCluster(brokers=1)
    yield mock
    mock.close()


@pytest.fixture
def topic(cluster: MockCluster) -> str:
    """A new topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    assert cluster.create_topic(name, 3) == 0
    return name


@pytest.fixture
def configure(cluster: MockCluster) -> Callable[..., StreamsConfig]:
    """A configuration for the cluster; dotted keys on top."""

    def configured(extra: dict[str, object] | None = None) -> StreamsConfig:
        return StreamsConfig.of({"application.id": "app", "bootstrap.servers": cluster.bootstrap, **(extra or {})})

    return configured
