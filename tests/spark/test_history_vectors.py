"""The recorded programs of Apache Kafka Streams on Spark, also while workers are killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.history.recorded_programs import allowed
from tests.support.spark.standalone import Standalone
from tests.support.spark.vector_runs import check_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.weekly, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize("id", allowed())
def test_program_leaves_what_a_live_one_leaves_whatever_the_partitions(spark: SparkSession, id: str) -> None:
    for partitions in (1, 2, 8):
        check_program(spark, id, partitions)


def test_programs_leave_the_same_when_workers_are_killed(standalone: Standalone, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    driver = standalone.run("-m", "tests.support.spark.killed_programs", standalone.master, str(work), *allowed())
    said = driver.wait(3_000).splitlines()
    ended = [line.split() for line in said if line.startswith("equal ")]
    assert [id for _, id, *_ in ended] == list(allowed())
    assert all(int(workers) > 0 for _, _, workers, _ in ended), "each program had a worker killed"
    assert sum(int(executors) for *_, executors in ended) > 5
