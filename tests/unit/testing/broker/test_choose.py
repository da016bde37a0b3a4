"""Choice of the broker, and the reason that is reported if no broker is available."""

from __future__ import annotations

import pytest

from streams_py.testing.broker import choose
from streams_py.testing.broker.interface import NoBrokerError


@pytest.fixture
def nothing_here(monkeypatch, tmp_path):
    """A machine with an empty PATH and without a given address."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    for name in ("STREAMS_PY_BOOTSTRAP", "STREAMS_PY_BROKER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nothing_here")
def test_reason_names_both_ways_when_neither_java_nor_docker_is_there():
    assert choose.why_no_broker() == "no Java and no Docker"
    with pytest.raises(NoBrokerError, match="no Java and no Docker"):
        choose.find_broker()


@pytest.mark.usefixtures("nothing_here")
def test_reason_is_about_one_way_when_only_that_is_allowed(monkeypatch):
    monkeypatch.setenv("STREAMS_PY_BROKER", "docker")
    assert choose.why_no_broker() == "no Docker"
    monkeypatch.setenv("STREAMS_PY_BROKER", "none")
    assert choose.why_no_broker() == "STREAMS_PY_BROKER=none"
    monkeypatch.setenv("STREAMS_PY_BROKER", "podman")
    assert "podman is not one of jvm, docker, none" in choose.why_no_broker()


@pytest.mark.usefixtures("nothing_here")
def test_address_is_taken_for_one_node_only(monkeypatch):
    monkeypatch.setenv("STREAMS_PY_BOOTSTRAP", "somewhere:9092")
    monkeypatch.setattr(choose, "AddressBroker", lambda address: f"broker at {address}")
    assert choose.find_broker() == "broker at somewhere:9092"
    assert choose.why_no_broker(nodes=3) == "no Java and no Docker"


def test_java_is_preferred_to_docker(monkeypatch):
    monkeypatch.delenv("STREAMS_PY_BOOTSTRAP", raising=False)
    monkeypatch.delenv("STREAMS_PY_BROKER", raising=False)
    monkeypatch.setattr(choose, "why_no_jvm", lambda: None)
    monkeypatch.setattr(choose, "why_no_docker", lambda: None)
    monkeypatch.setattr(choose, "JvmBroker", lambda nodes: ("jvm", nodes))
    monkeypatch.setattr(choose, "DockerBroker", lambda nodes: ("docker", nodes))
    assert choose.find_broker(nodes=3) == ("jvm", 3)
    assert choose.find_broker(on_jvm=lambda: "another one") == "another one"
    monkeypatch.setattr(choose, "why_no_jvm", lambda: "no Java")
    assert choose.find_broker(nodes=3) == ("docker", 3)
    assert choose.find_broker(on_jvm=lambda: "another one") == ("docker", 1)
