"""Users, topics and rights of one test on the session's secured broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streams_py.testing.broker import SecuredBroker
from tests.support.broker.site import Site


@pytest.fixture
def site(secured_kafka_broker: SecuredBroker, tmp_path: Path) -> Callable[[], Site]:
    """Makes sites."""
    return lambda: Site(secured_kafka_broker, tmp_path)
