"""Answer classes of kafka-python: all built by an import, none by a network thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = """
from kafka.protocol.api_header import ResponseClassRegistry as registry
{load}
answers = [registered[None] for registered in list(registry._response_class_registry.values())]
print(min(len(kind._VERSIONS) - kind.max_version for kind in answers))
"""


def versions_left(load: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(load=load)], capture_output=True, text=True, timeout=60, check=True
    )
    return 1 - int(done.stdout)


def test_library_builds_answer_classes_when_they_are_used() -> None:
    """The fact we lean on: without it, the module could go."""
    assert versions_left("import kafka.coordinator.consumer") > 0


def test_importing_the_membership_builds_them_all() -> None:
    assert versions_left("import streams_py.adapters.kafka_python.classic.membership") == 0
    assert versions_left("import streams_py.adapters.connection.librdkafka_gaps") == 0


@pytest.mark.parametrize(
    "module", ["clients.factory", "adapters.connection.librdkafka_gaps", "adapters.kafka_python.admin.group_admin"]
)
def test_nothing_that_loads_the_library_warns(module: str) -> None:
    """It would be at the end of every test run of an application."""
    command = [sys.executable, "-W", "error::DeprecationWarning", "-c", f"import streams_py.{module}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
