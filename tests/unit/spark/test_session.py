"""The checks before a job starts: each error is one sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams_py.errors import ConfigError
from streams_py.spark import session, version


def java(folder: Path, line: str) -> str:
    path = folder / "bin" / "java"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    path.chmod(0o755)
    return str(folder)


def test_no_java_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="Java was not found: install a JDK 17"):
        session.check_platform()


@pytest.mark.parametrize(
    ("line", "found"),
    [('openjdk version "11.0.2" 2019-01-15', "11"), ('java version "1.8.0_292"', "8"), ("what is this", "unknown")],
)
def test_old_java_is_refused(line: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, line))
    with pytest.raises(ConfigError, match=f"is Java {found}: install a JDK 17"):
        session.check_platform()


def test_java_that_does_not_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="does not run"):
        session.check_platform()


@pytest.mark.parametrize("line", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_new_java_is_taken(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, line))
    session.check_platform()


@pytest.mark.parametrize(
    ("package", "found"), [("pyspark", "4.1.9"), ("pyspark", "4.4.0"), ("pyspark", "3.5.1"), ("pyarrow", "17.0.0")]
)
def test_package_out_of_range_is_refused(package: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: found if name == package else real(name))
    with pytest.raises(ConfigError, match=f"{package} {found} is not supported: it must be .*; install"):
        session.check_platform()


def test_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ConfigError, match=r"pyspark is not installed .*; install kafka-streams-py\[spark\]"):
        session.check_platform()


def test_worker_of_another_version_is_refused() -> None:
    version.check_same_version(version.library_version())
    with pytest.raises(ConfigError, match="install the same version everywhere"):
        version.check_same_version("0.0.1")


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,1]", 2)])
def test_cores_of_a_local_master(master: str, cores: int) -> None:
    assert session._cores(master) == cores  # a session would take a JVM for each master
    assert session._settings(master)["spark.sql.shuffle.partitions"] == 2 * cores  # see above


def test_cluster_keeps_its_own_addresses_and_sizes() -> None:
    settings = session._settings("spark://host:7077")  # a session would need this cluster
    assert not {"spark.driver.host", "spark.sql.shuffle.partitions", "spark.driver.memory"} & settings.keys()


class Workers:
    """A session on a cluster whose workers answer the probe with a row, or do not answer."""

    def __init__(self, **row: str) -> None:
        self.row = row

    def range(self, rows: int) -> Workers:
        return self

    def mapInArrow(self, probe: object, schema: str) -> Workers:  # noqa: N802  # PySpark's name
        return self

    def first(self) -> SimpleNamespace:
        if not self.row:
            raise RuntimeError("ModuleNotFoundError: No module named 'streams_py'")
        return SimpleNamespace(**self.row)


GOOD = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "library": version.library_version(), "problem": ""}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "the workers cannot run Python with this library .*; install kafka-streams-py"),
        (GOOD | {"python": "3.9"}, r"the workers run Python 3\.9, the driver .*; use the same minor version"),
        (GOOD | {"library": "0.0.1"}, r"the workers have kafka-streams-py 0\.0\.1, the driver .*; install the same"),
        (
            GOOD | {"problem": "confluent_kafka is not installed"},
            "confluent_kafka is not installed; install kafka-streams-py",
        ),
    ],
)
def test_workers_that_cannot_work_are_refused_before_the_job(row: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        session._check_workers(Workers(**row))  # a cluster with wrong workers would be needed
    session._check_workers(Workers(**GOOD))  # see above


def test_library_does_not_import_pyspark() -> None:
    imported = "import sys, streams_py, streams_py.events.assignment_events as _"
    code = imported + "; print({'pyspark', 'pyarrow'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_package_exports_the_data_source() -> None:
    pytest.importorskip("pyspark")
    import streams_py.spark
    from streams_py.spark.kafka.source import register

    assert streams_py.spark.register is register
    assert "register" in streams_py.spark.__all__


# -- Spark Connect -----------------------------------------------------------------------------------------------------


def remote_session() -> object:
    """A session that looks like one of Spark Connect, without its packages."""
    return type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()


def test_jobs_say_that_they_do_not_run_over_connect(tmp_path: Path) -> None:
    from streams_py.backtest.candidates import parse_candidate
    from streams_py.backtest.kernel import Orders
    from streams_py.spark.backtest import evaluate_on_spark
    from streams_py.spark.history.run import run
    from streams_py.spark.telemetry import TableFolder

    remote: Any = remote_session()
    jobs: list[Callable[[], object]] = [
        lambda: TableFolder(remote, str(tmp_path), "group"),
        lambda: evaluate_on_spark(remote, Orders([parse_candidate("recorded")], [""]), "in", str(tmp_path)),
        lambda: run("nothing:here", {}, spark=remote),
    ]
    for job in jobs:
        with pytest.raises(ConfigError, match=r"this is a session of Spark Connect: .* start the job with --master"):
            job()


def test_environment_that_asks_for_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    with pytest.raises(ConfigError, match=r"SPARK_REMOTE is set: .*, and unset it"):
        session.spark_session("job")
