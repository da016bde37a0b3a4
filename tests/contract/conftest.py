"""Clusters for the contracts of the ports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.contract.port_kit import Cluster, Opened, open_cluster


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of the kind that the test is parametrised with."""
    folder: Path = tmp_path_factory.mktemp("contract")
    yield from open_cluster(request.param, request, folder)


@pytest.fixture
def opened(cluster: Cluster) -> Iterator[Opened]:
    """Makes clients that are closed with the test."""
    made = Opened(cluster)
    yield made
    made.close()
