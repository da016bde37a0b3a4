"""Telemetry on a Spark cluster of three workers, one of which is killed during the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark.cluster import Cluster
from tests.support.spark.standalone import Standalone, wait_until
from tests.support.spark.telemetry import append, comparable, expected
from tests.support.telemetry.golden import stored

pytestmark = [pytest.mark.broker, pytest.mark.weekly, pytest.mark.timeout(1_200)]

SMALL = ("spark.executor.memory=512m", "spark.sql.shuffle.partitions=3", "spark.task.maxFailures=8")


def telemetry(standalone: Standalone, cluster: Cluster, topic: str, tables: Path) -> list[str]:
    command = ["-m", "streams_py.cli.spark.telemetry", "run", "--group", "app", "--tables", str(tables), "--once"]
    command += ["--bootstrap", cluster.bootstrap, "--master", standalone.master]
    for option in (f"topics={topic}", "rows.per.trigger=12"):
        command += ["--option", option]
    for setting in SMALL:
        command += ["--conf", setting]
    return command


def test_tables_are_right_when_a_worker_dies(standalone: Standalone, cluster: Cluster, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    topic = cluster.topic(1)
    records = stored()
    append(cluster, topic, records)
    tables = tmp_path / "tables"
    driver = standalone.run(*telemetry(standalone, cluster, topic, tables))
    wait_until("the first micro-batch is in bronze", lambda: (tables / "bronze").exists() or not driver.is_running, 600)
    standalone.kill_worker()
    driver.wait(900)
    assert standalone.workers == 2
    wanted = expected(records)
    for table in ("rebalance", "move", "placement", "placement_current", "gap", "restore"):
        dataset = ds.dataset(str(tables / table))
        columns = sorted(dataset.schema.names)
        rows = dataset.to_table().to_pylist(maps_as_pydicts="lossy")
        found = sorted(repr([comparable(row[name]) for name in columns]) for row in rows)
        assert found == sorted(repr(list(row)) for row in wanted[table].elements()), table


def test_worker_without_our_package_is_refused(standalone: Standalone) -> None:
    code = (
        "import os, sys; os.environ['PYSPARK_PYTHON'] = '/usr/bin/python3'\n"
        "from streams_py.errors import ConfigError\n"
        "from streams_py.spark.session import spark_session\n"
        "try:\n"
        "    spark_session('x', master=sys.argv[1], **{'spark.executor.memory': '512m', 'spark.task.maxFailures': 1})\n"
        "except ConfigError as error:\n"
        "    print('refused:', error)\n"
    )
    output = standalone.run("-c", code, standalone.master).wait(600)
    assert "refused: the workers" in output
    assert "kafka-streams-py[spark]" in output
