"""The shared parts of the commands over a history: options, session, cluster, messages."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams_py.cli.options import settings_of
from streams_py.cli.spark.outcome import console
from streams_py.cli.spark.own_session import own_session
from streams_py.cli.usage import pairs_of
from streams_py.errors import BrokerUnavailableError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.history.cluster import HistoryCluster
    from streams_py.history.refuse import Allowances

What = Annotated[str, typer.Argument(help="module:name of the topology, or file.py[:name].", metavar="APP:TOPOLOGY")]
ApplicationId = Annotated[
    str | None, typer.Option("--application-id", help="The application.id, if --config does not contain it.")
]
Config = Annotated[Path | None, typer.Option("--config", help="The application's .toml or .properties file.")]
Conf = Annotated[list[str] | None, typer.Option(help="Spark setting as KEY=VALUE; repeatable.")]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(help="Option of streams-kafka as KEY=VALUE, e.g. kafka.sasl.password=env:PASSWORD; repeatable."),
]
Master = Annotated[str | None, typer.Option(help="Spark master. Default: all local cores.")]
PyFiles = Annotated[
    list[Path] | None,
    typer.Option("--py-files", exists=True, help="Python files or zips for Spark's workers; repeatable."),
]
Work = Annotated[str | None, typer.Option(help="Folder shared by all workers, for intermediate results of the stages.")]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output", help="Additional output topic, which a function chooses or a handler writes to; repeatable."
    ),
]
InputPaths = Annotated[
    list[str] | None,
    typer.Option(
        "--input", help="TOPIC=PATH of a Parquet folder or Delta table, to read instead of Kafka; repeatable."
    ),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partitions",
        help="TOPIC=COUNT, for an archive without records of the topic's last partitions, or for outputs to files "
        "whose partition count is not the number of tasks; repeatable.",
    ),
]
Effects = Annotated[
    bool,
    typer.Option("--allow-side-effects", help="Accept that peek and foreach may be called again for the same record."),
]
GlobalTables = Annotated[
    str | None,
    typer.Option(
        "--global-tables",
        help="as-of-end: load global tables completely before the first record, and keep them unchanged.",
        metavar="as-of-end",
    ),
]
Retention = Annotated[
    bool,
    typer.Option(
        "--accept-retention",
        help="Accept that topics may delete written records (by their retention.ms and retention.bytes).",
    ),
]
Recount = Annotated[
    bool,
    typer.Option(
        "--recount",
        help="Also count the records of all input partitions and global tables with a second client, and compare. "
        "Default: all partitions of small inputs, one partition per topic of larger ones. Archives are not counted.",
    ),
]


@dataclass(frozen=True, slots=True)
class Program:
    """A topology, and how a command runs it over its history.

    Attributes:
        what: ``module:name`` or ``file.py[:name]``.
        settings: Settings of the application.
        outputs: Topics that functions choose or handlers write to, in addition to the topics of sinks.
        side_effects: Whether functions of ``peek`` and ``foreach`` may be called again for the same record.
        global_tables: The value of ``--global-tables``.
    """

    what: str
    settings: Mapping[str, Any]
    outputs: Sequence[str] = ()
    side_effects: bool = False
    global_tables: str | None = None

    @property
    def application_id(self) -> str:
        return str(self.settings["application.id"])

    @property
    def allowed(self) -> Allowances:
        """Permissions of the user. Raises ConfigError for an invalid ``--global-tables``."""
        from streams_py.history.global_tables import check_global_tables
        from streams_py.history.refuse import Allowances

        return Allowances(self.outputs, self.side_effects, check_global_tables(self.global_tables))

    def topology(self) -> Any:
        """Build the topology."""
        return built_topology(self.what, self.settings)


def now_ms() -> int:
    return int(time.time() * 1000)


def built_topology(what: str, settings: Mapping[str, Any]) -> Any:
    from streams_py.history.loading import TopologySource

    return TopologySource(what, settings).build()


def say_frozen(topology: Any) -> None:
    """Print for each global table that its final state is used for all records."""
    for topic in sorted(topology.global_topics):
        console().print(
            f"global table of topic {topic}: all records are joined with its final state; in a live application it "
            "changes meanwhile",
            soft_wrap=True,
        )


def say_dropped(dropped: Mapping[int, int]) -> None:
    """Print how many records were dropped: the tasks' own log lines about it are easy to miss.

    Args:
        dropped: Number of dropped records by sub-topology.
    """
    for number, count in sorted(dropped.items()):
        console().print(
            f"sub-topology {number} dropped {count:,} records, as a live application would; for the reasons, see "
            "the log lines `dropped record number` of its tasks",
            soft_wrap=True,
        )


def settings_from(
    bootstrap: str | None, application_id: str | None, config: Path | None, default: str | None = None
) -> dict[str, Any]:
    """Return the application's settings.

    ``default`` is the application id if neither the file nor ``application_id`` gives one.

    Raises:
        ConfigError: File and ``application_id`` differ, or both lack an application id.
    """
    from streams_py.config.streams_config import StreamsConfig

    given = settings_of(bootstrap, config)
    said = given.setdefault("application.id", application_id or default)
    if application_id is not None and said != application_id:
        raise ConfigError(
            f"application.id is {said} in {config}, but {application_id} on the command line; give the configuration "
            f"of {application_id}",
            key="application.id",
        )
    if said is None:
        raise ConfigError("name the application with --application-id, or give its --config", key="application.id")
    return dict(StreamsConfig.of(given).original)


def kafka_options(settings: Mapping[str, Any], option: list[str] | None, *, is_planned: bool = False) -> dict[str, str]:
    """Return the options of ``streams-kafka``: the application's cluster, and ``--option``.

    If ``is_planned``, the plan determines which records are read.

    Raises:
        ConfigError: An option contradicts the command.
    """
    from streams_py.cli.spark.source_options import CLUSTER, POSITIONS, TOPICS, source_options
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.history.cluster import cluster_options

    config = StreamsConfig.of(dict(settings))
    given = source_options(option, CLUSTER | TOPICS | (POSITIONS if is_planned else frozenset()))
    return {**cluster_options(config, ",".join(config.bootstrap_servers)), **given}


def connected(settings: Mapping[str, Any]) -> contextlib.closing[HistoryCluster]:
    """Connect to the application's cluster.

    Raises BrokerUnavailableError immediately if no broker answers.
    """
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.history.cluster import HistoryCluster

    check_answers(settings)
    return contextlib.closing(HistoryCluster(StreamsConfig.of(dict(settings))))


def check_answers(settings: Mapping[str, Any]) -> None:
    """Check that the cluster answers.

    This check comes before Spark starts, because a reader on Spark would wait until the brokers come back.

    Raises:
        BrokerUnavailableError: No broker answers.
        ConfigError: The cluster rejects the credentials.
    """
    from streams_py.clients.factory import KafkaClients
    from streams_py.config.streams_config import StreamsConfig

    with contextlib.closing(KafkaClients(StreamsConfig.of(dict(settings)))) as clients:
        try:
            clients.check_connection(must_answer=True)
        except BrokerUnavailableError as away:
            raise BrokerUnavailableError(f"{away}; start the broker, or name another one with --bootstrap") from None


def spark_of(
    master: str | None, conf: list[str] | None, py_files: list[Path] | None = None
) -> contextlib.AbstractContextManager[SparkSession]:
    """Start a Spark session; see :func:`~streams_py.cli.spark.own_session.own_session`."""
    from streams_py.spark.session import MOSTLY_PYTHON

    return own_session("streams-py history", master, pairs_of(conf, "--conf"), py_files or (), MOSTLY_PYTHON)
