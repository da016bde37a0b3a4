"""``streams_py.spark.run``: runs a topology over a history, and returns its outputs and state as DataFrames.

    results = run("shop.app:topology", {"orders": spark.read.parquet("archive/orders")})
    results.sinks["totals"].show()

Stages run one after the other, each to its end. The output of a stage is written to Parquet files, and later stages
read it from there. So nothing is computed twice, and a task that Spark repeats creates the same rows again.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from streams_protocol.types import TopicPartition
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import StreamsError
from streams_py.history.boundaries import checked_instant, checked_until
from streams_py.history.global_tables import check_global_tables, reads_global_tables
from streams_py.history.kept_state import stores_without_state
from streams_py.history.loading import GivenTopology, TopologySource
from streams_py.history.plan import HistoryPlan, Stage, plan_history, topics_read
from streams_py.history.refuse import Allowances
from streams_py.history.task import StageOrders, TaskSummary
from streams_py.spark.failures import in_one_sentence
from streams_py.spark.history.blocks import BLOCKS, RECORD, ROWS, STATE, SUMMARY, unpacked
from streams_py.spark.history.global_contents import sent_to_workers
from streams_py.spark.history.inputs import GivenInputs, Inputs, stage_input
from streams_py.spark.history.kernel import stage_kernel
from streams_py.spark.history.progress import StageReports, Tick, listening
from streams_py.spark.history.serdes_on_the_way import cannot_travel
from streams_py.spark.history.work import WorkFolder
from streams_py.spark.jobs import end_jobs, quiet_jobs
from streams_py.spark.redelivered import redelivered_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streams_py.topology.topology import Topology

_DEFAULTS: Final = {"application.id": "history"}
_FILES: Final = {
    "maxRecordsPerFile": 256,
    "parquet.enable.dictionary": False,  # blocks are all different, and building a dictionary copies them again
    "parquet.block.size": 16 << 20,
    "parquet.block.size.row.check.min": 4,  # by default, Parquet checks the size only after 100 rows
    "parquet.page.size.row.check.min": 4,
}
"""Settings for files of blocks, which are compressed already.

Spark holds several copies of a row group in memory when it writes and when it reads. A block has about 100 KB, or one
large record.
"""
_WRITTEN: Final = ("topic", "partition", "timestamp_ms", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class _Frames(Mapping[str, "DataFrame"]):
    """Name -> DataFrame, created on access.

    ``topics`` has the topic of each name. ``lacking`` has the reason for each name without a DataFrame.
    """

    results: Results
    channel: int
    topics: Mapping[str, str]
    lacking: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> DataFrame:
        if name in self.lacking:
            raise StreamsError(self.lacking[name])
        if name not in self.topics:
            raise KeyError(f"{name!r} does not exist; expected one of: {', '.join(self.topics) or '(none exist)'}")
        return self.results.rows(self.channel, self.topics[name])

    def __contains__(self, name: object) -> bool:
        return name in self.topics

    def __iter__(self) -> Iterator[str]:
        return iter(self.topics)

    def __len__(self) -> int:
        return len(self.topics)


class Results:
    """The results of a run. Use it as a context manager, or call :meth:`close`.

    The rows are stored in files, in a folder that belongs to this run until it is closed.

    DataFrames have the columns ``topic, partition, timestamp_ms, key, value, headers``. DataFrames of sinks also have
    ``source`` (the task) and ``seq``. Sorted by these two, the records of each task are in the order of writing.
    """

    def __init__(
        self, spark: SparkSession, plan: HistoryPlan, work: WorkFolder, stores_without_state: Mapping[str, str]
    ) -> None:
        self._spark = spark
        self._work = work
        self._stores_without_state = stores_without_state
        self._summaries: dict[int, list[TaskSummary]] = {}
        self.plan = plan
        """The plan of the run: its inputs, stages and outputs."""
        self.inputs: Mapping[str, Any] = {}
        """Topic -> input, with fixed offsets if it is read from Kafka."""
        self.read_of_tables: dict[TopicPartition, int] = {}
        """Partition -> number of records that were read to fill global tables."""
        self.redelivered = 0
        """Number of records that clients delivered again during the run. It is a metric: each record was read once.
        Counts of other readers in the same Spark application during the run are included."""

    @property
    def sinks(self) -> Mapping[str, DataFrame]:
        """Output topic -> its records."""
        return _Frames(self, RECORD, {topic: topic for topic in self.plan.sinks})

    @property
    def changelogs(self) -> Mapping[str, DataFrame]:
        """Changelog topic (full name) -> the state of its store at the end.

        The state has one record per key, or one per version for a versioned store.
        """
        return _Frames(self, STATE, {topic: topic for topic in self.plan.changelogs})

    @property
    def stores(self) -> Mapping[str, DataFrame]:
        """Store -> its state at the end, as records of the changelog that it has or would have.

        This includes stores without logging, and tables whose source topic is the changelog
        (``topology.optimization``). ``timestamp_ms`` is -1 if a store does not keep timestamps. Access raises
        StreamsError, with the reason, for a store whose state is not available.
        """
        return _Frames(self, STATE, self.plan.stores, self._stores_without_state)

    def summaries(self) -> dict[int, list[TaskSummary]]:
        """Return sub-topology -> summaries of its tasks, by number. Tasks without records are missing."""
        return {stage.id: self.summaries_of(stage) for stage in self.plan.stages}

    def summaries_of(self, stage: Stage) -> list[TaskSummary]:
        """Return the summaries of one finished stage."""
        if stage.rank not in self._summaries:
            rows = self._stage(stage).where(f"channel = {SUMMARY}").select("records").collect()
            found = (TaskSummary(**json.loads(row.records)) for row in rows)
            self._summaries[stage.rank] = sorted(found, key=lambda summary: summary.task)
        return self._summaries[stage.rank]

    def read(self) -> dict[TopicPartition, int]:
        """Return partition -> number of records that tasks have processed."""
        found: Counter[TopicPartition] = Counter()
        for tasks in self.summaries().values():
            for done in tasks:
                found.update({TopicPartition(topic, done.task): count for topic, count in done.read.items()})
        return dict(found)

    def dropped(self) -> dict[int, int]:
        """Return sub-topology -> number of dropped records, if it has any. The log of the tasks has the reasons."""
        found = {stage: sum(task.dropped for task in done) for stage, done in self.summaries().items()}
        return {stage: count for stage, count in found.items() if count}

    def written(self, topic: str) -> int:
        """Return the number of records that were written to a topic."""
        return self._written(topic, self.plan.stages).total()

    def written_before(self, stage: Stage, topic: str) -> Mapping[int, int]:
        """Return partition -> number of records that the stages before ``stage`` have written to a topic."""
        return self._written(topic, [other for other in self.plan.stages if other.rank < stage.rank])

    def _written(self, topic: str, stages: Iterable[Stage]) -> Counter[int]:
        counts: Counter[int] = Counter()
        for stage in stages:
            for summary in self.summaries_of(stage):
                counts.update(dict(summary.written.get(topic, ())))
        return counts

    def rows(self, channel: int, topic: str, *, numbered: bool = False) -> DataFrame:
        """Return the rows of one topic. ``numbered``: include ``source`` and ``seq`` also for a state."""
        from pyspark.sql import functions as f

        stages = [
            stage
            for stage in self.plan.stages
            if topic in (stage.outputs if channel == RECORD else stage.stores.values())
        ]
        together = self._stage(stages[0])
        for stage in stages[1:]:
            together = together.unionByName(self._stage(stage))
        blocks = together.where((f.col("channel") == channel) & (f.col("topic") == topic))
        rows = blocks.mapInArrow(unpacked, ROWS)
        return rows.select(*_WRITTEN, "source", "seq") if channel == RECORD or numbered else rows.select(*_WRITTEN)

    def _stage(self, stage: Stage) -> DataFrame:
        return self._spark.read.schema(BLOCKS).parquet(self.path(stage))

    def path(self, stage: Stage) -> str:
        """Return the path of a stage's rows."""
        return f"{self._work.path}/stage-{stage.rank}"

    def close(self) -> None:
        """Release the folder. The files are deleted unless you passed the folder (``work=``)."""
        self._work.close()

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run(
    topology: GivenTopology,
    inputs: GivenInputs,
    *,
    config: Mapping[str, Any] | None = None,
    partitions: Mapping[str, int] | None = None,
    until: int | Mapping[str, Mapping[int, int]] | None = None,
    since: int | None = None,
    work: str | None = None,
    allow_side_effects: bool = False,
    global_tables: str | None = None,
    spark: SparkSession | None = None,
    tick: Tick | None = None,
) -> Results:
    """Run a topology over all of its inputs, to the end or up to ``until``.

    Args:
        topology: a topology, a builder, a function that returns one of these, or ``module:name``.
        inputs: see :data:`GivenInputs`.
        config: settings of the application. ``application.id`` (default ``history``) is the prefix of changelog names.
        partitions: partition counts of topics that are read or written, if the rows do not show them.
        until: process only records before this timestamp (ms), or below these offsets (topic -> partition -> offset).
        since: process only records with this timestamp (ms) or a later one. Stores are empty at the start.
        work: a folder that workers and driver share, for the output of stages. It replaces the output of an earlier
            run, and another run is refused until the results are closed. Default: a temporary folder of this machine.
        allow_side_effects: whether functions of ``peek`` and ``foreach`` may be called again for the same record.
        global_tables: ``as-of-end`` fills global tables completely from the inputs of their topics before the first
            record. They do not change afterwards, unlike in a live application. Every worker holds all of them.
        spark: the session; default: the active session, or a new one.
        tick: called with a HistoryProgress when a stage starts and when it ends. In between, a separate thread calls it
            at most twice per second.

    Raises:
        RefusedTopologyError: lists everything that cannot run over a history.
        ConfigError: an argument or an input is not valid.
        StreamsError: the run has failed. For an error of user code, the message has task, topic, partition and offset.
    """
    from streams_py.spark.session import MOSTLY_PYTHON, check_classic, spark_session

    if spark is not None:
        check_classic(spark)
    bounds = checked_until(until), checked_instant(since, "since")
    given = dict(partitions or {})
    allowed = Allowances(given, allow_side_effects, check_global_tables(global_tables))
    source, described = _checked_topology(topology, config, allowed)
    settings, application_id = source.config, str(source.config["application.id"])
    session = spark or spark_session("streams-py history", **MOSTLY_PYTHON)
    topics = topics_read(described, application_id, settings)
    known = redelivered_records(session)
    with contextlib.ExitStack() as if_it_fails:
        folder = if_it_fails.enter_context(contextlib.closing(WorkFolder(session, work)))
        found = Inputs(session, inputs, topics, *bounds, described.global_topics.keys())
        plan = plan_history(described, application_id, settings, _counts(found, given), given)
        results = Results(session, plan, folder, stores_without_state(described))
        results.inputs = found.fixed
        with _jobs_of_a_run(session):
            _run_stages(results, found, source, settings, described, tick)
        results.redelivered = redelivered_records(session) - known
        if_it_fails.pop_all()
    return results


def _checked_topology(
    topology: GivenTopology, config: Mapping[str, Any] | None, allowed: Allowances
) -> tuple[TopologySource, Topology]:
    """Build a topology and check that it can run over a history. See :func:`run` for the arguments."""
    settings = settings_of(config)
    source = TopologySource(topology, settings)
    described = source.build()
    allowed.check(described, str(settings["application.id"]), settings)
    return source, described


@contextlib.contextmanager
def _jobs_of_a_run(session: SparkSession) -> Iterator[None]:
    """Keep Spark's jobs in the block quiet, and end them if the user interrupts it."""
    try:
        with quiet_jobs(session):
            yield
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):  # the JVM has stopped, and its jobs too
            end_jobs(session)
        raise


def _run_stages(
    results: Results,
    inputs: Inputs,
    source: TopologySource,
    settings: Mapping[str, Any],
    described: Topology,
    tick: Tick | None,
) -> None:
    plan, session = results.plan, results._spark
    with (
        sent_to_workers(session, inputs.contents(), results.read_of_tables) as tables,
        listening(session, tick, len(plan.stages)) as listener,
    ):
        for stage in plan.stages:
            is_reader = reads_global_tables(described.subtopology(stage.id))
            orders = StageOrders(source, settings, stage, tables=tables if is_reader else {})
            sizes = _sizes(results, stage, inputs)
            if listener is None:
                _run_stage(results, stage, inputs, orders, sizes or {})
                continue
            reports = listener.begin(stage.rank, None if sizes is None else sum(sizes.values()))
            _run_stage(results, stage, inputs, orders, sizes or {}, reports)
            listener.end(sum(summary.records for summary in results.summaries_of(stage)))


def _counts(inputs: Inputs, given: Mapping[str, int]) -> dict[str, int]:
    try:
        return inputs.counts(given)
    except StreamsError:
        raise
    except Exception as error:  # counting has run Spark jobs over the rows
        raise in_one_sentence(error, "the inputs cannot be read") from None


def topics_of(
    topology: GivenTopology,
    config: Mapping[str, Any] | None = None,
    *,
    partitions: Mapping[str, int] | None = None,
    allow_side_effects: bool = False,
    global_tables: str | None = None,
) -> frozenset[str]:
    """Return the topics that a topology reads from outside, including those of global tables.

    See :func:`run` for the arguments.

    Raises:
        RefusedTopologyError: the topology cannot run over a history.
    """
    allowed = Allowances(partitions or {}, allow_side_effects, check_global_tables(global_tables))
    source, described = _checked_topology(topology, config, allowed)
    return topics_read(described, str(source.config["application.id"]), source.config)


def settings_of(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings for tasks, without addresses and passwords."""
    checked = StreamsConfig.of({"bootstrap.servers": "embedded", **_DEFAULTS, **(config or {})})
    dropped = {*checked.clients, "bootstrap.servers", "processing.guarantee", "state.dir"}
    return {**_DEFAULTS, **{key: value for key, value in checked.original.items() if key not in dropped}}


def _sizes(results: Results, stage: Stage, inputs: Inputs) -> Mapping[int, int] | None:
    """Return task -> upper bound of its records; None when an input is not counted."""
    sizes: Counter[int] = Counter()
    for topic in stage.inputs:
        found = results.written_before(stage, topic) if topic in stage.upstream else inputs.records(topic)
        if found is None:
            return None
        sizes.update(found)
    return sizes


def _run_stage(
    results: Results,
    stage: Stage,
    inputs: Inputs,
    orders: StageOrders,
    sizes: Mapping[int, int],
    reports: StageReports | None = None,
) -> None:
    earlier = [
        other for other in results.plan.stages if other.rank < stage.rank and stage.upstream & set(other.outputs)
    ]
    try:
        written = None
        for other in earlier:
            rows = results._stage(other)
            written = rows if written is None else written.unionByName(rows)
        given = stage_input(orders, inputs, written, sizes, reports)
        made = given.rows.mapInArrow(stage_kernel(orders, given.reader, reports), BLOCKS)
        # An interrupted attempt may have left files.
        made.write.options(**_FILES).mode("overwrite").parquet(results.path(stage), compression="none")
    except StreamsError:
        raise
    except Exception as error:
        where = f"sub-topology {stage.id} of {results.plan.application_id}"
        refused = cannot_travel(error, where, orders.source, orders.config)
        raise refused or in_one_sentence(error, where) from None
