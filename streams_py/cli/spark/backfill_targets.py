"""The places that ``backfill`` writes outputs to: a folder, or topics."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from streams_py.cli.spark.backfill_plan import Order, check_archives, plan_backfill, planned_input
from streams_py.cli.spark.history_inputs import check_kafka_options, check_sources
from streams_py.cli.spark.history_options import connected
from streams_py.cli.spark.output_folder import check_new, held_folder, write_new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.history.backfill import BackfillPlan
    from streams_py.history.cluster import HistoryCluster
    from streams_py.spark.history.run import Results


class Target(Protocol):
    """The place of the outputs: a folder, or topics."""

    @property
    def seed(self) -> str:
        """Selects the inputs to count again."""

    def interrupted(self) -> str:
        """Return the message after a signal."""

    def stands(self) -> str:
        """Return what an error leaves behind, or an empty text."""

    def prepare(self, order: Order, until_the_end: contextlib.ExitStack) -> Order:
        """Check everything that needs no Spark, and fix the input where the target requires it."""

    def begin(
        self, order: Order, spark: SparkSession, work: str | None, until_the_end: contextlib.ExitStack
    ) -> Mapping[str, int]:
        """Check the rest before the run. Returns the partition counts of the output topics."""

    def write(self, order: Order, spark: SparkSession, results: Results) -> int:
        """Write the outputs. Returns the number of records that existed already."""


class Folder:
    """One Parquet folder per output topic. A run writes all of them or none."""

    def __init__(self, out: str) -> None:
        self.seed = out
        self._is_complete = False

    def interrupted(self) -> str:
        if self._is_complete:
            return "interrupted; all records are written"
        return f"interrupted; no output is in {self.seed}, and the same command starts from the beginning"

    def stands(self) -> str:
        return ""

    def prepare(self, order: Order, until_the_end: contextlib.ExitStack) -> Order:
        check_sources(order.program.settings, order.option, order.kafka, order.sources.values())
        return order

    def begin(
        self, order: Order, spark: SparkSession, work: str | None, until_the_end: contextlib.ExitStack
    ) -> Mapping[str, int]:
        program = order.program
        until_the_end.enter_context(held_folder(spark, self.seed))
        check_new(spark, self.seed, program.what, program.settings, program.outputs)
        return dict.fromkeys(program.outputs, 1)

    def write(self, order: Order, spark: SparkSession, results: Results) -> int:
        write_new(spark, self.seed, results.sinks)
        self._is_complete = True
        return 0


class Topics:
    """The output topics, written exactly once. The plan in a file lets an interrupted backfill continue."""

    def __init__(self, file: Path, accept_retention: bool) -> None:
        self._file = file
        self._accept_retention = accept_retention
        self._plan: BackfillPlan | None = None
        self._cluster: HistoryCluster | None = None
        self._is_complete = False

    @property
    def seed(self) -> str:
        return self._planned.id

    @property
    def _planned(self) -> BackfillPlan:
        assert self._plan is not None, "not prepared"
        return self._plan

    def interrupted(self) -> str:
        if self._is_complete:
            return "interrupted; all records are written"
        return "interrupted; repeat the command to continue"

    def stands(self) -> str:
        if self._plan is None or not self._plan.writers or self._is_complete:
            return ""
        return "the written records stay; fix the error and repeat the command to continue"

    def prepare(self, order: Order, until_the_end: contextlib.ExitStack) -> Order:
        from streams_py.history.backfill import BackfillPlan
        from streams_py.history.plan_files import held

        begun = until_the_end.enter_context(held(self._file, BackfillPlan.load))
        check_kafka_options(order.kafka, writes=True)
        self._cluster = until_the_end.enter_context(connected(order.program.settings))
        self._plan = plan_backfill(self._cluster, begun, self._file, order, accept_retention=self._accept_retention)
        sources = {topic: planned_input(self._plan, topic, order.kafka) for topic in order.sources}
        return replace(order, sources=sources, partitions=self._plan.partitions)

    def begin(
        self, order: Order, spark: SparkSession, work: str | None, until_the_end: contextlib.ExitStack
    ) -> Mapping[str, int]:
        from streams_py.history.plan import sink_counts
        from streams_py.spark.history.work import check_work
        from streams_py.spark.session import check_writes_once

        assert self._cluster is not None, "not prepared"
        program, plan = order.program, self._planned
        check_writes_once(spark)
        check_work(spark, work)
        now = self._cluster.partition_counts()
        counts = sink_counts(program.topology(), program.application_id, now, program.outputs)
        if not self._file.exists():
            if not self._accept_retention:
                check_archives(spark, self._cluster, program, plan)
            plan.save(self._file)
        return {**counts, **plan.outputs}

    def write(self, order: Order, spark: SparkSession, results: Results) -> int:
        from streams_py.spark.history.sinks import announce_sinks, write_sinks

        plan = self._planned
        writers = announce_sinks(results, order.kafka, plan.id, plan.place, plan.writers)
        self._plan = plan = replace(plan, writers=writers)
        plan.save(self._file)
        there = sum(task.skipped for task in write_sinks(results, order.kafka, plan.id, plan.place))
        replace(plan, done=True).save(self._file)
        self._is_complete = True
        return there
