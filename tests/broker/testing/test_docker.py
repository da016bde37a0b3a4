"""The Docker back end and the compose file on a real engine: `.ci/docker`, or STREAMS_PY_BROKER=docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_py.testing.broker import container, topics
from streams_py.testing.broker.container import DockerBroker
from streams_py.testing.broker.interface import NoBrokerError
from streams_py.testing.broker.readiness import is_ready, wait_until_ready
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.environ.get("STREAMS_PY_BROKER") != "docker", reason="for STREAMS_PY_BROKER=docker only"),
]


def docker(*arguments: str) -> list[str]:
    """The lines that a command of Docker prints."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_container_that_dies_immediately_says_why_without_being_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def nonsense(node: int, nodes: int, port: int) -> dict[str, object]:
        return good(node, nodes, port) | {"process.roles": "clown"}

    good = container.container_settings
    before = set(docker("ps", "--all", "--quiet")), set(docker("network", "ls", "--quiet"))
    monkeypatch.setattr(container, "container_settings", nonsense)
    with pytest.raises(NoBrokerError, match=r"(?s)container of node 1 stopped with status .*clown"):
        DockerBroker()
    assert (set(docker("ps", "--all", "--quiet")), set(docker("network", "ls", "--quiet"))) == before


def test_nothing_is_left_when_the_process_ends_without_closing() -> None:
    before = set(docker("ps", "--all", "--quiet")), set(docker("network", "ls", "--quiet"))
    code = "from streams_py.testing.broker import DockerBroker; made = DockerBroker(); print(made.bootstrap)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1:" in done.stdout
    assert (set(docker("ps", "--all", "--quiet")), set(docker("network", "ls", "--quiet"))) == before


def test_records_outlive_a_killed_and_a_stopped_container() -> None:
    broker = DockerBroker()
    try:
        broker.create_topic("kept", 3)
        broker.kill_node(1)
        broker.kill_node(1)  # it is dead already
        broker.start_node(1)
        broker.stop_node(1)
        broker.start_node(1)
        assert topic_names(broker.bootstrap) == {"kept"}
    finally:
        broker.close()


class Compose:
    """The project's compose file, as a separate compose project."""

    def __init__(self) -> None:
        self.project = f"streams-py-test-{os.getpid()}"
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        if not plugin and shutil.which("docker-compose") is None:
            pytest.skip("no docker compose")
        self._command = ["docker", "compose"] if plugin else ["docker-compose"]

    def __call__(self, *arguments: str) -> None:
        command = [*self._command, "--project-name", self.project, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    def left(self) -> list[str]:
        """Containers, volumes and networks of the project."""
        mine = f"label=com.docker.compose.project={self.project}"
        return [
            *docker("ps", "--all", "--quiet", "--filter", mine),
            *docker("volume", "ls", "--quiet", "--filter", mine),
            *docker("network", "ls", "--quiet", "--filter", mine),
        ]


@pytest.fixture
def compose() -> Iterator[Compose]:
    made = Compose()
    nodes = ["localhost:9092", "localhost:9192", "localhost:9193", "localhost:9194"]
    if any(is_ready(address, nodes=1) for address in nodes):
        pytest.skip("somebody else's broker has the ports of the compose file")
    volumes = set(docker("volume", "ls", "--quiet"))
    yield made
    made("--profile", "cluster", "down", "--volumes")
    assert made.left() == []
    assert set(docker("volume", "ls", "--quiet")) == volumes, "no nameless volume stays"


def topic_names(bootstrap: str) -> set[str]:
    from confluent_kafka.admin import AdminClient

    names = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics
    return {name for name in names if not name.startswith("__")}


def test_topics_of_the_one_broker_are_there_again_after_down_and_up(compose: Compose) -> None:
    compose("up", "--detach")
    wait_until_ready(["localhost:9092"], nodes=1, timeout_ms=120_000)
    topics.create_topic("localhost:9092", "kept", 2, None)
    compose("down")
    compose("up", "--detach")
    wait_until_ready(["localhost:9092"], nodes=1, timeout_ms=120_000)
    assert topic_names("localhost:9092") == {"kept"}


def test_cluster_starts_alone_and_serves(compose: Compose) -> None:
    compose("--profile", "cluster", "up", "--detach", "node-1", "node-2", "node-3")
    addresses = ["localhost:9192", "localhost:9193", "localhost:9194"]
    wait_until_ready(addresses, nodes=3, timeout_ms=180_000)
    assert not is_ready("localhost:9092", nodes=1), "the single broker is another way to start"
    topics.create_topic(",".join(addresses), "spread", 3, None)
    mine = ("ps", "--quiet", "--filter", f"label=com.docker.compose.project={compose.project}")
    until(lambda: len(docker(*mine, "--filter", "health=healthy")) == 3, "three healthy containers")
