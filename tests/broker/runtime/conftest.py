"""Applications for tests, ended whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.testing.broker import Broker

from .kit import Application


@pytest.fixture
def application(kafka_broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Application]]:
    """Makes applications on the session's broker."""
    made: list[Application] = []

    def make(**settings: Any) -> Application:
        made.append(Application(kafka_broker, tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
