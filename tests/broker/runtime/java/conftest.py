"""Applications on Kafka Streams for the JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams_py.testing.broker.jars import kafka_jars
from tests.support.broker.java_programs import STATE_WORKER, JavaPrograms
from tests.support.broker.kit import Instance


@pytest.fixture(scope="module")
def jvm(java_programs: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One JVM for all tests; it runs applications on command."""
    folder = tmp_path_factory.mktemp("jvm")
    instance = Instance("java", {}, folder / "java.log", java_programs.command(STATE_WORKER, kafka_jars()))
    yield instance
    instance.close()
    instance.process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
