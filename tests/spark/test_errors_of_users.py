"""An error that user code raises in a worker is the first error that a program shows. Spark's errors are left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)

TOPOLOGY = """
from streams_py import StreamsBuilder, serdes


def parse(value):
    return {"a": value}["b"]


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("in").map_values(parse).to("out")
    return builder.build()
"""

PROGRAM = """
from streams_py.spark import run
from streams_py.spark.session import spark_session

spark = spark_session("failing", master="local[1]")
columns = "partition int, offset long, key binary, value binary, timestamp_ms long"
rows = spark.createDataFrame([(0, 0, b"k", b"v", 1)], columns)
manager = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager
names = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
before = [manager.getLogger(name).getLevel().toString() for name in names]
try:
    run("failing:topology", {"in": rows}, partitions={"in": 1}, spark=spark)
finally:
    print(before == [manager.getLogger(name).getLevel().toString() for name in names])
"""


def test_error_of_user_code_is_not_below_pages_of_spark(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(TOPOLOGY)
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "protocol")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) < 30, done.stderr
    first = next(line for line in lines if "rror" in line)
    assert "input record in-0 at offset 0: KeyError: 'b'" in first, done.stderr
    assert lines[-1].startswith("streams_py.errors.StreamsError: sub-topology 0 of history: processing failed in node ")
    assert "failing.py:" in lines[-1]
    assert "org.apache.spark" not in done.stderr
    assert done.stdout.split() == ["True"], "the levels of the session are as before"
