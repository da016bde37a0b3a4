"""Errors of the telemetry commands: one sentence with the remedy, and the exit status."""

from __future__ import annotations

from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streams_py.cli.spark import telemetry
from streams_py.cli.spark.telemetry import app
from streams_py.errors import ConfigError
from streams_py.spark.failures import sentence_of

HOSTILE = "[/red]\x1b]0;owned\x07\x1b[2J\u202ex"
"""A name that sets the title of a terminal, clears it, and changes the order of the text."""
SHOWN = r"[/red]\x1b]0;owned\x07\x1b[2J\u202ex"
NOBODY = "127.0.0.1:1"


def failure(*arguments: str, status: int = 2) -> str:
    """Return the output of the command, in one line."""
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, arguments)
    assert done.exit_code == status, done.output
    (line,) = done.stderr.strip().splitlines()
    return line


def run(tables: Path, *more: str, status: int = 2) -> str:
    return failure(
        "run", "--group", "g", "--tables", str(tables), "--bootstrap", NOBODY, "--once", *more, status=status
    )


def test_no_java_ends_the_command_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "install a JDK 17 or later and set JAVA_HOME" in run(tmp_path / "t")


def test_pyspark_that_is_missing_ends_the_command_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert run(tmp_path / "t").endswith("install kafka-streams-py[spark]")


def test_wrong_bootstrap_is_found_before_spark_is_started(tmp_path: Path) -> None:
    output = run(tmp_path / "t", "--option", "poll.timeout.ms=300")
    assert NOBODY in output
    assert not (tmp_path / "t").exists()


def test_secret_in_the_open_is_refused(tmp_path: Path) -> None:
    output = run(tmp_path / "t", "--option", "kafka.sasl.password=hunter2")
    assert "pass it as env:NAME or file:PATH" in output
    assert "hunter2" not in output


def test_cluster_that_an_option_names_besides_is_refused(tmp_path: Path) -> None:
    output = run(tmp_path / "t", "--option", "kafka.bootstrap.servers=other:1")
    assert "--option kafka.bootstrap.servers: --bootstrap (or --config) selects the cluster" in output


def test_two_masters_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_py.cli.spark.telemetry._check_topic", lambda *_: None)  # no broker
    output = run(tmp_path / "t", "--master", "local[2]", "--conf", "spark.master=spark://other:7077")
    assert "--conf spark.master=spark://other:7077: --master is local[2]; give only one of them" in output


@pytest.mark.parametrize("name", ["--option", "--conf"])
def test_text_that_is_no_pair_is_wrong_usage(name: str, tmp_path: Path) -> None:
    given = ["run", "--group", "g", "--tables", str(tmp_path), "--bootstrap", NOBODY, name, "oops"]
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, given)
    assert done.exit_code == 2
    assert "'oops': expected KEY=VALUE" in done.output


@pytest.mark.parametrize("command", ["report", "placement", "moves"])
def test_folder_without_tables_is_explained(command: str, tmp_path: Path) -> None:
    output = failure(command, "--tables", str(tmp_path / "nothing"))
    assert "has no telemetry tables; create them first: `streams-py telemetry run --group GROUP" in output


@pytest.mark.parametrize(
    ("command", "needed"), [("report", "rebalance"), ("placement", "placement"), ("moves", "rebalance")]
)
def test_tables_without_a_rebalance_end_the_command_with_status_1(command: str, needed: str, tmp_path: Path) -> None:
    (tmp_path / "telemetry.json").write_text('{"format": 4, "group": "shop", "tables": "parquet"}')
    out = ["--out", str(tmp_path / "report.html")] if command == "report" else []
    output = failure(command, "--tables", str(tmp_path), *out, status=1)
    assert f"the tables in {tmp_path} contain no {needed} of shop yet; run `streams-py telemetry" in output
    assert not (tmp_path / "report.html").exists()


# -- what Spark says ---------------------------------------------------------------------------------------------------

TRACE = """[PYTHON_DATA_SOURCE_ERROR] Failed when called: Traceback (most recent call last):
  File "ranges.py", line 1, in plan
    raise ConfigError(x)
streams_py.errors.ConfigError: topic t not found on h:1; create it

	at org.apache.spark.Something(Some.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TRACE, "topic t not found on h:1; create it"),
        ("[STREAM_FAILED] Query [id = 1] terminated with exception: boom\nmore\n  at java", "boom"),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "install kafka-streams-py[spark]",
        ),
        ("ModuleNotFoundError: No module named 'streams_py'", "has no module streams_py; install"),
        ("", "no reason given"),
    ],
)
def test_sentence_is_found_in_what_spark_says(text: str, sentence: str) -> None:
    output = sentence_of(RuntimeError(text))
    assert sentence in output
    assert "\n" not in output


def test_sentence_of_java_is_found_below_that_of_the_bridge() -> None:
    class JavaError(Exception):
        """Like py4j's error, whose text needs a JVM."""

    JavaError.__module__ = "py4j.protocol"
    text = (
        "An error occurred while calling o45.create.\n: java.io.FileNotFoundException: /x/y (No such file)\n\tat a.b\n"
    )
    assert sentence_of(JavaError(text)) == "FileNotFoundException: /x/y (No such file)"


def test_own_error_is_its_own_sentence() -> None:
    assert sentence_of(ConfigError("do this")) == "do this"


class Recorded(dict[str, list[dict[str, Any]]]):
    """Tables of telemetry. All names in them come from members."""

    group = HOSTILE


@pytest.mark.parametrize("command", ["placement", "moves"])
def test_names_in_events_do_not_control_the_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Recorded(
        placement=[{"client": HOSTILE, "role": "active"}],
        rebalance=[
            {"at": datetime(2026, 1, 1), "generation": 1, "trigger": [HOSTILE], "rebalance_id": "r", "outcome": HOSTILE}
        ],
        move=[],
    )
    monkeypatch.setattr(telemetry, "_read", lambda *_: found)  # no Spark
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, [command, "--tables", "t"])
    assert done.exit_code == 0, done.output
    assert not set("\x1b\x07\u202e") & set(done.output)
    assert SHOWN in done.output
