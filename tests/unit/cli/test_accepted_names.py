"""``--accepted-name``: names by which the listeners of ``run`` and ``dashboard`` may be requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streams_py.cli.commands import app
from streams_py.cli.groups import watching
from streams_py.runtime.client.kafka_streams import KafkaStreams

NAMES = ("--accepted-name", "a.example", "--accepted-name", "b.example")
TOPOLOGY = """
from streams_py import StreamsBuilder, serdes
builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
builder.stream("in").to("out")
"""


def test_names_of_run_reach_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(KafkaStreams, "run", lambda _, **arguments: given.update(arguments))
    (tmp_path / "app.py").write_text(TOPOLOGY, encoding="utf-8")
    settings = ("--set", "application.id=a", "--set", "bootstrap.servers=127.0.0.1:1", "--set", f"state.dir={tmp_path}")
    result = CliRunner().invoke(app, ["run", str(tmp_path / "app.py"), *settings, "--health", "0", *NAMES])
    assert result.exit_code == 0, result.output
    assert list(given["names"]) == ["a.example", "b.example"]


def test_names_of_dashboard_reach_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def serve(*_: object, **arguments: Any) -> int:
        given.update(arguments)
        return 0

    monkeypatch.setattr(watching, "serve_dashboard", serve)
    assert CliRunner().invoke(app, ["dashboard", "-g", "g", *NAMES]).exit_code == 0
    assert list(given["names"]) == ["a.example", "b.example"]
