"""The settings of a command's session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import SparkSession

from streams_py.cli.spark import own_session as module
from streams_py.cli.spark.history_options import spark_of
from streams_py.spark import session

EXECUTOR_JVM = "spark.executor.extraJavaOptions"


class StartedError(Exception):
    pass


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The settings that Spark would get from a command over a history with ``--conf``."""
    found: dict[str, Any] = {}

    def start(app: str, *, master: str | None, **conf: object) -> object:
        found.update(conf)
        raise StartedError

    monkeypatch.setattr(session, "spark_session", start)
    monkeypatch.setattr(session, "check_platform", lambda: None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)  # of a test before, in the same process
    monkeypatch.setattr(module, "keeping_handlers", lambda start: start())

    def settings(*conf: str) -> dict[str, Any]:
        with pytest.raises(StartedError), spark_of("local[2]", list(conf)):
            pass
        return found

    return settings


def test_jvms_of_a_history_leave_the_cores_to_the_workers(started: Callable[..., dict[str, Any]]) -> None:
    settings = started()
    options = settings[session.DRIVER_JVM].split()
    assert [option.partition("=")[0] for option in options] == [
        '"-Djava.io.tmpdir', "-Dlog4j2.configurationFile", "-XX:TieredStopAtLevel"
    ]  # fmt: skip
    assert settings[EXECUTOR_JVM] == "-XX:TieredStopAtLevel=1"


def test_options_of_the_user_for_jvms_count_more(started: Callable[..., dict[str, Any]]) -> None:
    wanted = "-XX:TieredStopAtLevel=4 -Xss4m"
    settings = started(f"{session.DRIVER_JVM}={wanted}", f"{EXECUTOR_JVM}={wanted}")
    assert settings[session.DRIVER_JVM].endswith(f"-XX:TieredStopAtLevel=1 {wanted}"), (
        "the last one of an option counts"
    )
    assert settings[EXECUTOR_JVM] == wanted


def test_session_that_runs_already_gets_no_folder_for_its_jvm(
    started: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: "a session")
    assert started()[session.DRIVER_JVM] == "-XX:TieredStopAtLevel=1", "its JVM has started long ago"
