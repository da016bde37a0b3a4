"""How an interrupted command on Spark ends."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from streams_py.cli.commands import app
from streams_py.cli.spark import diff
from streams_py.cli.spark.outcome import explained, keeping_handlers
from streams_py.cli.usage import FAILED, NOT_DONE
from streams_py.errors import StreamsError
from streams_py.history.bootstrap import Step
from tests.support.history.bootstrap import Cluster, planned

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def terminal() -> Iterator[None]:
    """Handle SIGHUP as without `nohup`, even if the tests run under it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def command_that_gets(number: signal.Signals) -> None:
    with explained("interrupted; do it again"):
        try:
            os.kill(os.getpid(), number)
        finally:  # the session is closed here
            for impatient in SIGNALS:
                os.kill(os.getpid(), impatient)
            logging.getLogger().error("a question to the JVM was broken off")


def command_that_loses_its_jvm(number: signal.Signals) -> None:
    with explained("interrupted; do it again"):
        try:
            os.kill(os.getpid(), number)
        finally:
            warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)
            raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", [command_that_gets, command_that_loses_its_jvm])
def test_interrupted_command_says_what_to_do_and_nothing_else(
    command: Callable[[signal.Signals], None], number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(typer.Exit) as ended:
        command(number)
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "error: interrupted; do it again\n"
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert logging.getLogger().isEnabledFor(logging.ERROR)


def test_command_of_nohup_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with explained("interrupted; do it again"):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("command", "step", "stands"),
    [
        ("verify", Step.WRITTEN, "written: verify it, or abort it"),
        ("commit", Step.COMMITTING, "being committed: it was interrupted, so commit it again"),
        ("abort", Step.RUNNING, "running: it was interrupted, so abort it and run it again"),
    ],
)
def test_step_that_waits_for_a_broker_says_on_ctrl_c_how_far_the_warm_start_is(
    command: str, step: Step, stands: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    replace(planned(Cluster()), step=step).save(plan)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-m", "streams_py", "bootstrap", command, "--plan", str(plan), "--bootstrap", where],
            stderr=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "COLUMNS": "400"},
        ) as process:  # fmt: skip
            connection, _ = silent.accept()
            with connection:
                os.killpg(process.pid, signal.SIGINT)
                _, said = process.communicate(timeout=60)
    assert said == f"error: interrupted; the warm start of shop is {stands}\n"
    assert process.returncode == 130
    assert [place.name for place in tmp_path.iterdir()] == ["plan.json"], "the lock is gone"


def test_handler_of_pyspark_does_not_stay(capsys: pytest.CaptureFixture[str]) -> None:
    def start() -> str:
        signal.signal(signal.SIGINT, lambda *_: pytest.fail("it asks the JVM"))
        return "session"

    def command() -> None:
        with explained("interrupted; do it again"):
            assert keeping_handlers(start) == "session"
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(typer.Exit):
        command()
    assert capsys.readouterr().err == "error: interrupted; do it again\n"


def test_signal_that_comes_while_spark_starts_is_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PySpark's handler, and its handling of a JVM that is starting, print long errors."""
    context = pytest.importorskip("pyspark.core.context")
    done: list[str] = []

    def launch() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        done.append("launched")

    def start_with_jvm() -> None:
        context.launch_gateway()
        done.append("connected")

    def start_with_handler() -> None:
        signal.signal(signal.SIGINT, lambda *_: pytest.fail("it asks the JVM"))
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(context, "launch_gateway", launch)
    for start in (start_with_jvm, start_with_handler):
        with pytest.raises(typer.Exit), explained("interrupted; do it again"):
            keeping_handlers(start)
        assert capsys.readouterr().err == "error: interrupted; do it again\n"
    assert done == ["launched"], "the JVM is there, and nothing is asked of it"
    assert context.launch_gateway is launch


def test_place_that_cannot_be_used_is_said_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, said in ((tmp_path / "none" / "file", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(typer.Exit) as ended, explained():
            place.write_text("x")
        assert ended.value.exit_code == 2
        assert capsys.readouterr().err == f"error: {place}: {said}; name another place, or make this one usable\n"


@pytest.mark.parametrize("failed", [FAILED, NOT_DONE])
def test_command_that_breaks_off_has_another_status_than_one_that_finds_a_difference(failed: int) -> None:
    pyspark = pytest.importorskip("pyspark.errors")
    for error in (StreamsError("stage 0: a task has failed"), pyspark.PySparkException("a task has failed")):
        with pytest.raises(typer.Exit) as ended, explained(failed=failed):
            raise error
        assert ended.value.exit_code == failed


def test_diff_that_breaks_off_does_not_say_that_outputs_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StreamsError("Spark has failed")

    monkeypatch.setattr(diff, "settings_from", fails)
    done = CliRunner().invoke(app, ["diff", "old:topology", "new:topology"])
    assert done.exit_code == 2
    assert "Spark has failed" in done.stderr


def test_error_that_is_of_no_file_is_not_hidden() -> None:
    with pytest.raises(ConnectionRefusedError), explained():
        raise ConnectionRefusedError(111, "Connection refused")


def test_text_of_others_in_an_error_does_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), explained():
        raise StreamsError("group \x1b]0;owned\x07[/red]\u202ex is unknown")
    assert capsys.readouterr().err == "error: group \\x1b]0;owned\\x07[/red]\\u202ex is unknown\n"
