"""Applications for tests, ended whatever happens."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.testing.broker import Broker, NoBrokerError
from streams_py.testing.broker.jars import java_path, kafka_jars

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


@pytest.fixture
def own_broker(kafka_broker: Broker) -> Iterator[Broker]:
    """The session's node; the test may stop it, and it is there again afterwards."""
    if not kafka_broker.capabilities.node_control:
        pytest.fail("this test needs a broker whose nodes it may stop: unset STREAMS_PY_BOOTSTRAP")
    yield kafka_broker
    kafka_broker.start_node(1)


@pytest.fixture(scope="session")
def java() -> tuple[str, ...]:
    """The command that runs the Java worker from its source."""
    try:
        runtime, jars = java_path(), kafka_jars()
    except NoBrokerError as error:  # an address in STREAMS_PY_BOOTSTRAP, or Docker, on a machine without Java
        pytest.skip(f"a Java member needs Java and Kafka's jars: {error}")
    if shutil.which("javac") is None:
        pytest.skip("a Java member is compiled from source: install a JDK, not only a JRE")
    source = Path(__file__).with_name("JavaWorker.java")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    return (runtime, "-Xmx256m", "-XX:+UseSerialGC", quiet, "-cp", f"{jars}/*", str(source))
