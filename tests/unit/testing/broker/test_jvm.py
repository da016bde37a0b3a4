"""Settings, files and processes of nodes, on the JVM and in containers."""

from __future__ import annotations

import os

import pytest

from streams_py.testing.broker import container, jvm, jvm_node
from streams_py.testing.broker.container import container_settings
from streams_py.testing.broker.interface import NoBrokerError
from streams_py.testing.broker.jvm import JvmCluster, NodesOnJvm, consecutive_ports, free_ports
from streams_py.testing.broker.jvm_node import JvmNode, Ports, shared_settings


def test_free_ports_are_all_different():
    ports = free_ports(3)
    assert list(ports) == [1, 2, 3]
    assert len({number for both in ports.values() for number in (both.broker, both.controller)}) == 6


def test_consecutive_ports_have_the_controllers_after_the_brokers():
    assert consecutive_ports(3, 9000) == {1: Ports(9000, 9003), 2: Ports(9001, 9004), 3: Ports(9002, 9005)}


def test_node_reads_its_ports_back_from_its_settings(tmp_path):
    node = JvmNode(tmp_path, 2)
    assert node.ports is None
    node.write_settings(consecutive_ports(3, 9000))
    assert node.ports == Ports(9001, 9004)
    assert node.address == "127.0.0.1:9001"
    assert JvmCluster(tmp_path).nodes == [node]


def test_what_nodes_have_logged_can_be_kept(tmp_path):
    folder, kept = tmp_path / "cluster", tmp_path / "kept"
    for path in (folder, kept):
        path.mkdir()
    for number, ports in consecutive_ports(2, 9000).items():
        node = JvmNode(folder, number)
        node.write_settings({number: ports})
        node.log_file.write_text(f"node {number} says\n")
    nodes = NodesOnJvm()
    nodes._cluster = JvmCluster(folder)  # as after a start, without one
    nodes.copy_logs(kept)
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        "node-1.log": "node 1 says\n",
        "node-2.log": "node 2 says\n",
    }


def test_settings_of_three_nodes_survive_the_loss_of_one(tmp_path):
    node = JvmNode(tmp_path, 1)
    node.write_settings(consecutive_ports(3, 9000))
    settings = dict(line.split("=", 1) for line in node.settings_file.read_text().splitlines())
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9003,2@127.0.0.1:9004,3@127.0.0.1:9005"
    for key in ("default", "offsets.topic", "transaction.state.log"):
        assert settings[f"{key}.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == "2"
    assert settings["auto.create.topics.enable"] == "false"
    assert all("127.0.0.1" in listener for listener in settings["listeners"].split(","))


def test_foreign_process_is_never_taken_for_a_node(tmp_path):
    node = JvmNode(tmp_path, 1)
    node.write_settings(free_ports(1))
    (tmp_path / "node-1.pid").write_text(str(os.getpid()))
    assert node.pid() is None
    node.end(hard=True)  # must not stop this process
    assert not (tmp_path / "node-1.pid").exists()


def test_deleted_cluster_leaves_no_file(tmp_path):
    folder = tmp_path / "cluster"
    folder.mkdir()
    node = JvmNode(folder, 1)
    node.write_settings(free_ports(1))
    node.data_folder.mkdir()
    (folder / "cluster.id").write_text("c")
    JvmCluster(folder).end(hard=False, delete=True)
    assert not folder.exists()


def test_container_talks_to_other_nodes_by_name_and_to_clients_on_loopback():
    settings = container_settings(2, 3, 45678)
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:45678,INTERNAL://kafka-2:19092"
    assert settings["inter.broker.listener.name"] == "INTERNAL"
    assert settings["controller.quorum.voters"] == "1@kafka-1:29093,2@kafka-2:29093,3@kafka-3:29093"
    assert settings["default.replication.factor"] == 3


def test_broker_keeps_records_with_old_timestamps():
    assert shared_settings(1, 1)["log.retention.ms"] == -1


def test_container_image_has_an_exact_version():
    name, _, version = container._image().partition(":")  # only Docker gets to see it
    assert name == "apache/kafka"
    assert version.replace(".", "").isdigit()


def test_start_waits_for_a_port_that_the_killed_node_still_holds(tmp_path, monkeypatch):
    ports = free_ports(1)
    JvmNode(tmp_path, 1).write_settings(ports)
    answers = iter([False, False, True, True])
    monkeypatch.setattr(jvm, "_is_free", lambda port: next(answers))  # another process holds the port for a time
    launched = []
    cluster = JvmCluster(tmp_path)
    monkeypatch.setattr(cluster, "_launch", lambda nodes, **_: launched.extend(nodes))  # no JVM is started
    cluster.start(ports)
    assert launched == [JvmNode(tmp_path, 1)]


def test_port_of_somebody_else_is_refused_immediately(tmp_path, monkeypatch):
    monkeypatch.setattr(jvm, "_is_free", lambda port: False)  # another process has it
    monkeypatch.setattr(jvm.time, "sleep", lambda seconds: pytest.fail("waits"))
    with pytest.raises(NoBrokerError, match="in use"):
        JvmCluster(tmp_path).start(consecutive_ports(1, 9000))


@pytest.mark.parametrize("short_lived", [True, False])
def test_second_compiler_of_the_jvm_is_left_out_of_a_short_lived_node(tmp_path, monkeypatch, short_lived):
    ports = free_ports(1)
    cluster = JvmCluster(tmp_path, short_lived=short_lived)
    commands = []

    def popen(command, **_):
        commands.append(command)
        raise OSError("nothing is started")

    monkeypatch.setattr(cluster, "_format", lambda *_: None)  # no JVM is started
    monkeypatch.setattr(jvm, "java_path", lambda: "java")
    monkeypatch.setattr(jvm, "kafka_jars", lambda version: tmp_path)
    monkeypatch.setattr(jvm_node.subprocess, "Popen", popen)
    with pytest.raises(OSError, match="nothing is started"):
        cluster.start(ports)
    (command,) = commands
    assert ("-XX:TieredStopAtLevel=1" in command) == short_lived
    assert command[-1] == str(JvmNode(tmp_path, 1).settings_file)
