"""Applications for tests, ended whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.testing.broker import Broker
from streams_py.testing.broker.jars import kafka_jars
from tests.support.broker.java_programs import JAVA_WORKER, JavaPrograms, java_programs_or_skip
from tests.support.broker.kit import Application


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


@pytest.fixture
def own_broker(kafka_broker: Broker) -> Iterator[Broker]:
    """The session's node; the test may stop it, and it is there again afterwards."""
    if not kafka_broker.capabilities.node_control:
        pytest.fail("this test needs a broker whose nodes it may stop: unset STREAMS_PY_BOOTSTRAP")
    yield kafka_broker
    kafka_broker.start_node(1)


@pytest.fixture(scope="session")
def java_programs(tmp_path_factory: pytest.TempPathFactory) -> JavaPrograms:
    """Compiles members on Kafka Streams for the JVM."""
    return java_programs_or_skip(tmp_path_factory.mktemp("java-programs"))


@pytest.fixture(scope="session")
def java(java_programs: JavaPrograms) -> tuple[str, ...]:
    """The command that runs the Java worker."""
    return java_programs.command(JAVA_WORKER, kafka_jars())
