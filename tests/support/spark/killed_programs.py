"""Runs recorded programs on a Spark cluster, and kills one worker in every stage of each program.

    python -m tests.support.spark.killed_programs MASTER FOLDER PROGRAM...

Prints ``equal PROGRAM WORKERS EXECUTORS`` for each: the numbers of killed Python workers and executors.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streams_py.history.task import StageOrders
from streams_py.spark.history import run as running
from streams_py.spark.history.kernel import stage_kernel
from streams_py.spark.history.portions import Reader
from streams_py.spark.history.progress import StageReports
from streams_py.spark.session import spark_session
from tests.support.spark.vector_runs import check_program

_PARTITIONS = 8
_EXECUTOR_EVERY = 8
"""In the stages of every n-th program the executor is killed, too."""


def dying(folder: Path, *, with_executor: bool) -> Callable[..., Callable[[Iterator[Any]], Iterator[Any]]]:
    """The kernel. Its process is killed once in each stage, when its output is complete and partly delivered."""

    def kernel(
        orders: StageOrders, reader: Reader, reports: StageReports | None
    ) -> Callable[[Iterator[Any]], Iterator[Any]]:
        made = stage_kernel(orders, reader, reports)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            produced = list(made(batches))
            if produced:
                yield produced.pop(0)
                _die_once(folder / f"killed-{orders.stage.rank}", with_executor=with_executor)
            yield from produced

        return run

    return kernel


def _die_once(mark: Path, *, with_executor: bool) -> None:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if with_executor:
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        mark.write_text("executor")
        os.kill(executor, signal.SIGKILL)
        time.sleep(60)  # this process goes with it
    os.kill(os.getpid(), signal.SIGKILL)


def main(master: str, folder: Path, ids: list[str]) -> None:
    settings = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": 3, "spark.task.maxFailures": 8}
    spark = spark_session("killed programs", master=master, **settings)
    spark.sparkContext.setLogLevel("ERROR")
    for number, id in enumerate(ids):
        marks = folder / id
        marks.mkdir()
        with_executor = number % _EXECUTOR_EVERY == 0
        with patch.object(running, "stage_kernel", dying(marks, with_executor=with_executor)):
            check_program(spark, id, _PARTITIONS, work=str(folder / f"{id}-work"))
        killed = [mark.read_text() for mark in marks.iterdir()]
        print("equal", id, len(killed), killed.count("executor"), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
