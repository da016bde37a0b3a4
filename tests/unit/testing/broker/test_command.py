"""``python -m streams_py.testing.broker``: mistakes give a one-line error without a traceback."""

from __future__ import annotations

import socket

import pytest

from streams_py.testing.broker import jars
from streams_py.testing.broker.__main__ import main
from streams_py.testing.broker.jvm import consecutive_ports
from streams_py.testing.broker.jvm_node import JvmNode


def test_stop_says_so_when_the_folder_has_no_broker(tmp_path, capsys):
    assert main(["stop", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"broker: {tmp_path} has no broker\n"


def test_stop_says_so_when_the_node_does_not_exist(tmp_path, capsys):
    JvmNode(tmp_path, 1).write_settings(consecutive_ports(1, 9000))
    assert main(["kill", "--dir", str(tmp_path), "--node", "2"]) == 1
    assert "has no node 2" in capsys.readouterr().err


def test_start_names_the_port_that_is_taken(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["start", "--dir", str(tmp_path), "--port", str(port)]) == 1
    assert f"port {port} is in use" in capsys.readouterr().err


def test_start_refuses_another_number_of_nodes_than_the_folder_has(tmp_path, capsys):
    JvmNode(tmp_path, 1).write_settings(consecutive_ports(1, 9000))
    assert main(["start", "--dir", str(tmp_path), "--port", "9000", "--brokers", "3"]) == 1
    assert "holds a cluster of 1 node(s), not 3" in capsys.readouterr().err


def test_start_needs_a_port(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["start", "--dir", str(tmp_path)])
    assert "--port" in capsys.readouterr().err


def test_java_that_is_too_old_is_named(tmp_path, monkeypatch):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert jars.why_no_jvm() == f'no Java 17 or newer ({java} reports: openjdk version "11.0.2" 2019)'


def test_missing_maven_is_named_with_the_folder_that_would_do_instead(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMS_PY_KAFKA_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "java_path", lambda: "java")
    monkeypatch.setattr(jars.shutil, "which", lambda tool: None)
    assert jars.why_no_jvm() == f"no Maven to download Kafka's jars (or copy them to {tmp_path}/kafka-4.3.1)"
    (tmp_path / "kafka-4.3.1").mkdir()
    assert jars.why_no_jvm() is None


def test_brokers_run_another_release_when_the_environment_names_one(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMS_PY_KAFKA_CACHE", str(tmp_path))
    monkeypatch.setenv("STREAMS_PY_KAFKA_VERSION", "4.4.0")
    monkeypatch.setattr(jars, "java_path", lambda: "java")
    monkeypatch.setattr(jars.shutil, "which", lambda tool: None)
    (tmp_path / "kafka-4.3.1").mkdir()  # Java members still use this release
    assert jars.why_no_jvm() == f"no Maven to download Kafka's jars (or copy them to {tmp_path}/kafka-4.4.0)"
    assert jars.kafka_jars() == tmp_path / "kafka-4.3.1"
    (tmp_path / "kafka-4.4.0").mkdir()
    assert jars.why_no_jvm() is None


def test_release_that_is_none_is_named(monkeypatch):
    monkeypatch.setenv("STREAMS_PY_KAFKA_VERSION", "../elsewhere")
    assert jars.why_no_jvm() == (
        "STREAMS_PY_KAFKA_VERSION=../elsewhere is not a valid release of Apache Kafka; expected e.g. 4.3.1"
    )
