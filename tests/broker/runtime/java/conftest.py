"""Applications on Kafka Streams for the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..kit import Instance


@pytest.fixture(scope="module")
def jvm(java: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One JVM for all tests; it runs applications on command."""
    folder = tmp_path_factory.mktemp("jvm")
    command = (*java[:-1], str(Path(__file__).with_name("StateWorker.java")))
    instance = Instance("java", {}, folder / "java.log", command)
    yield instance
    instance.close()
    instance.process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
