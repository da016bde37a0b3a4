"""The summary line of broker tests at the end of a run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TESTS = """
import pytest

@pytest.mark.broker
def test_one(kafka_broker):
    assert kafka_broker.bootstrap == "fake:1"

@pytest.mark.broker
def test_two(kafka_broker):
    raise AssertionError

@pytest.mark.broker
def test_three(kafka_broker):
    pass

def test_other():
    pass
"""

FAKE_BROKER = """
from streams_py.testing import broker
from streams_py.testing.broker import BrokerCapabilities

class Fake:
    bootstrap = "fake:1"
    capabilities = BrokerCapabilities(label="Fake Kafka 1 (jvm)", nodes=1, apache_kafka=False, node_control=False)
    def close(self):
        print("closed")

broker.why_no_broker = lambda: None
broker.find_broker = lambda nodes, on_jvm: Fake()
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "pytest.ini").touch()  # stops pytest's search for a project root
    (tmp_path / "test_it.py").write_text(TESTS)

    def run_pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "streams_py.testing.pytest_plugin", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, *arguments],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run_pytest


def test_none_ran_and_the_rest_passes_when_there_is_no_broker(run):
    done = run(STREAMS_PY_BROKER="none")
    assert "0 of 3 broker tests ran: STREAMS_PY_BROKER=none\n" in done.stdout
    assert "1 passed, 3 deselected" in done.stdout
    assert done.returncode == 0


def test_run_is_no_success_when_only_broker_tests_were_asked_for_and_none_ran(run):
    done = run("-m", "broker", STREAMS_PY_BROKER="none")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED


def test_nothing_is_said_when_no_broker_test_was_asked_for(run):
    assert "broker tests ran" not in run("-k", "other").stdout


def test_count_names_the_broker_and_leaves_out_what_was_not_reached(run, tmp_path):
    (tmp_path / "conftest.py").write_text(FAKE_BROKER)
    done = run("-x")
    assert "2 of 3 broker tests ran on Fake Kafka 1 (jvm)\n" in done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


def test_count_is_the_sum_of_the_workers_in_a_parallel_run(run, tmp_path):
    (tmp_path / "conftest.py").write_text(FAKE_BROKER)
    assert "3 of 3 broker tests ran on Fake Kafka 1 (jvm)\n" in run("-n2").stdout


def test_reason_comes_from_the_workers_in_a_parallel_run(run):
    assert "0 of 3 broker tests ran: STREAMS_PY_BROKER=none\n" in run("-n2", STREAMS_PY_BROKER="none").stdout


def test_test_that_takes_a_broker_is_a_broker_test_without_saying_so(run, tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef application(kafka_broker): ...\n\ndef test_one(application): ...\n"
    )
    done = run(STREAMS_PY_BROKER="none")
    assert "0 of 1 broker tests ran: STREAMS_PY_BROKER=none\n" in done.stdout
