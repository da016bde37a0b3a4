"""The Docker back end without Docker: its errors and cleanup; the compose file has the test kit's settings."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from streams_py.testing.broker import container
from streams_py.testing.broker.container import DockerBroker, remote_host, version_of, why_no_docker
from streams_py.testing.broker.interface import KAFKA_VERSION, NoBrokerError
from streams_py.testing.broker.jvm_node import shared_settings

COMPOSE = (Path(__file__).resolve().parents[4] / "docker-compose.yml").read_text(encoding="utf-8")


class FakeImages:
    def __init__(self, *, here: bool, pulled: Exception | None = None) -> None:
        self.here, self.pulled, self.asked = here, pulled, []

    def get(self, image: str) -> None:
        if not self.here:
            raise ImageNotFound("not here")

    def pull(self, image: str) -> None:
        self.asked.append(image)
        if self.pulled is not None:
            raise self.pulled


def docker_with(monkeypatch: pytest.MonkeyPatch, images: FakeImages, url: str = "http+docker://localhost") -> None:
    client = SimpleNamespace(ping=lambda: True, images=images, api=SimpleNamespace(base_url=url), close=lambda: None)
    monkeypatch.setattr(container, "_docker_client", lambda: client)  # in place of Docker


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("apache/kafka:4.3.1", "4.3.1"),
        ("localhost:5000/kafka:4.3.1", "4.3.1"),
        ("localhost:5000/kafka", "latest"),
        ("apache/kafka@sha256:abc", "sha256:abc"),
        ("registry:5000/kafka:4.3.1@sha256:abc", "4.3.1"),
    ],
)
def test_version_is_the_tag_of_the_image(image: str, version: str) -> None:
    assert version_of(image) == version


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http+docker://localhost", None),
        ("http://127.0.0.1:2375", None),
        ("http://build-host:2375", "build-host"),
        ("https://10.0.0.7:2376", "10.0.0.7"),
        ("ssh://someone@there", "there"),
    ],
)
def test_docker_of_another_machine_is_told_from_ours(url: str, host: str | None) -> None:
    assert remote_host(url) == host


def test_docker_of_another_machine_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    docker_with(monkeypatch, FakeImages(here=True), "http://build-host:2375")
    assert "build-host" in (why_no_docker() or "")


def test_image_that_is_here_is_not_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    images = FakeImages(here=True)
    docker_with(monkeypatch, images)
    assert why_no_docker() is None
    assert images.asked == []


def test_missing_image_is_pulled_before_any_test(monkeypatch: pytest.MonkeyPatch) -> None:
    images = FakeImages(here=False)
    docker_with(monkeypatch, images)
    monkeypatch.setenv("STREAMS_PY_KAFKA_IMAGE", "mine:1")
    assert why_no_docker() is None
    assert images.asked == ["mine:1"]


def test_image_that_cannot_be_pulled_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    error = APIError("500 Server Error", explanation="lookup registry-1.docker.io: no such host\nand a page more")
    docker_with(monkeypatch, FakeImages(here=False, pulled=error))
    monkeypatch.delenv("STREAMS_PY_KAFKA_IMAGE", raising=False)
    reason = why_no_docker()
    assert reason == f"no image apache/kafka:{KAFKA_VERSION} for Docker (lookup registry-1.docker.io: no such host)"


class FakeContainer:
    def __init__(self, status: str, problem: Exception | None = None) -> None:
        self.status, self.problem, self.stopped = status, problem, False
        self.attrs: dict[str, Any] = {"State": {"ExitCode": 3}}

    def get_wrapped_container(self) -> FakeContainer:
        return self

    def reload(self) -> None:
        pass

    def logs(self, tail: int) -> bytes:
        return b"java.lang.IllegalStateException: no such role\n\tat kafka.Kafka.main(Kafka.scala)\n"

    def stop(self) -> None:
        self.stopped = True
        if self.problem is not None:
            raise self.problem


def broker_of(*containers: FakeContainer) -> DockerBroker:
    made = DockerBroker.__new__(DockerBroker)
    made._nodes = len(containers)  # as after a start, which would need Docker
    made._containers = dict(enumerate(containers, 1))  # see above
    made._network = None  # see above
    return made


def test_container_that_ended_is_not_waited_for_and_its_log_is_quoted() -> None:
    broker = broker_of(FakeContainer("running"), FakeContainer("exited"))
    with pytest.raises(NoBrokerError, match=r"(?s)node 2 stopped with status 3.*no such role$"):
        broker._check_alive(1, 2)()  # a start calls it while it waits


def test_rest_is_cleaned_up_when_one_container_cannot_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = FakeContainer("running", APIError("removal in progress")), FakeContainer("running")
    broker = broker_of(first, second)
    broker.close()
    assert second.stopped
    assert "removal in progress" in capsys.readouterr().err
    broker.close()  # a second kill has nothing to do


def test_compose_file_runs_the_release_and_the_settings_of_the_test_kit() -> None:
    assert f":-apache/kafka:{KAFKA_VERSION}" in COMPOSE
    blocks = dict(re.findall(r"^x-(\w+): &\w+\n((?:  .*\n)+)", COMPOSE, flags=re.MULTILINE))
    for name, copies, in_sync in (("single", 1, 1), ("cluster", 3, 2)):
        settings = dict(re.findall(r'^  (\w+): "?(.*?)"?$', blocks["common"] + blocks[name], flags=re.MULTILINE))
        for key, value in shared_settings(copies, in_sync).items():
            assert settings.get("KAFKA_" + key.upper().replace(".", "_")) == str(value), (name, key)
