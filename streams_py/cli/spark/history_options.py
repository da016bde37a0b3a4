"""What the commands over a history have in common: their options, the session, the cluster, a bar."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
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

__all__ = [
    "ApplicationId",
    "Conf",
    "Config",
    "Effects",
    "GlobalTables",
    "Master",
    "Outputs",
    "Partitions",
    "PyFiles",
    "Recount",
    "Retention",
    "SourceOption",
    "What",
    "Work",
    "built_topology",
    "check_answers",
    "connected",
    "kafka_options",
    "now_ms",
    "say_dropped",
    "say_frozen",
    "settings_from",
    "spark_of",
]

What = Annotated[str, typer.Argument(help="module:name of the topology, or file.py[:name].", metavar="APP:TOPOLOGY")]
ApplicationId = Annotated[
    str | None, typer.Option("--application-id", help="application.id, if --config does not say it.")
]
Config = Annotated[Path | None, typer.Option("--config", help="The application's .toml or .properties file.")]
Conf = Annotated[list[str] | None, typer.Option(help="Setting of Spark as KEY=VALUE; repeatable.")]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(help="Option of streams-kafka as KEY=VALUE, e.g. kafka.sasl.password=env:PASSWORD; repeatable."),
]
Master = Annotated[str | None, typer.Option(help="Spark master; all local cores by default.")]
PyFiles = Annotated[
    list[Path] | None,
    typer.Option("--py-files", exists=True, help="Python files or zips for Spark's workers; repeatable."),
]
Work = Annotated[str | None, typer.Option(help="Folder that all workers share, for what the stages of one run write.")]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output", help="Topic that functions choose or handlers write to, besides those that sinks name; repeatable."
    ),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partitions",
        help="TOPIC=COUNT, where the archive has no record of the topic's last partitions, or where outputs to files "
        "are not of as many as there are tasks; repeatable.",
    ),
]
Effects = Annotated[
    bool, typer.Option("--allow-side-effects", help="peek and foreach may be called again for the same record.")
]
GlobalTables = Annotated[
    str | None,
    typer.Option(
        "--global-tables",
        help="as-of-end: global tables are filled whole before the first record, and stay so.",
        metavar="as-of-end",
    ),
]
Retention = Annotated[
    bool,
    typer.Option(
        "--accept-retention", help="Topics may delete what is written (their retention.ms and retention.bytes)."
    ),
]
Recount = Annotated[
    bool,
    typer.Option(
        "--recount",
        help="Count the records of all input partitions, also of global tables, with a second client, and compare; "
        "default: all partitions of small inputs, else one of each topic. Archives are not counted.",
    ),
]


def now_ms() -> int:
    return int(time.time() * 1000)


def built_topology(what: str, settings: Mapping[str, Any]) -> Any:
    from streams_py.history.travel import TopologySource

    return TopologySource(what, settings).build()


def say_frozen(topology: Any) -> None:
    """Say that global tables are allowed, and what that means."""
    for topic in sorted(topology.global_topics):
        console().print(
            f"global table of topic {topic}: every record meets it as it is at the end; live it changes meanwhile",
            soft_wrap=True,
        )


def say_dropped(dropped: Mapping[int, int]) -> None:
    """Say how many records are in no output, which is lost among the lines that tasks log of them. ``dropped``:
    sub-topology -> how many."""
    for number, count in sorted(dropped.items()):
        console().print(
            f"sub-topology {number} has dropped {count:,} records, as it would live; the lines `dropped record number` "
            "that its tasks have logged say why",
            soft_wrap=True,
        )


def settings_from(
    bootstrap: str | None, application_id: str | None, config: Path | None, default: str | None = None
) -> dict[str, Any]:
    """The application's settings. ``default``: its id where nobody says it. ConfigError when two say different ones."""
    from streams_py.config.streams_config import StreamsConfig

    given = settings_of(bootstrap, config)
    said = given.setdefault("application.id", application_id or default)
    if application_id is not None and said != application_id:
        raise ConfigError(
            f"application.id is {said} in {config}, and {application_id} is meant here; give the configuration of "
            f"{application_id}",
            key="application.id",
        )
    if said is None:
        raise ConfigError("name the application with --application-id, or give its --config", key="application.id")
    return dict(StreamsConfig.of(given).original)


def kafka_options(settings: Mapping[str, Any], option: list[str] | None, *, is_planned: bool = False) -> dict[str, str]:
    """The application's cluster for ``streams-kafka``, and what ``--option`` says besides. ``is_planned``: what is read
    is in a plan. ConfigError for an option that contradicts the command."""
    from streams_py.cli.spark.source_options import CLUSTER, POSITIONS, TOPICS, source_options
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.history.cluster import cluster_options

    config = StreamsConfig.of(dict(settings))
    given = source_options(option, CLUSTER | TOPICS | (POSITIONS if is_planned else frozenset()))
    return {**cluster_options(config, ",".join(config.bootstrap_servers)), **given}


def connected(settings: Mapping[str, Any]) -> contextlib.closing[HistoryCluster]:
    """The application's cluster. BrokerUnavailableError at once when nobody is at its address."""
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.history.cluster import HistoryCluster

    check_answers(settings)
    return contextlib.closing(HistoryCluster(StreamsConfig.of(dict(settings))))


def check_answers(settings: Mapping[str, Any]) -> None:
    """BrokerUnavailableError when nobody answers, ConfigError when the cluster does not let us in: at once, and not
    from a reader on Spark, which waits for brokers to come back."""
    from streams_py.clients.factory import KafkaClients
    from streams_py.config.streams_config import StreamsConfig

    with contextlib.closing(KafkaClients(StreamsConfig.of(dict(settings)))) as clients:
        try:
            clients.check_connection(must_answer=True)
        except BrokerUnavailableError as away:
            raise BrokerUnavailableError(f"{away}: start it, or name another one with --bootstrap") from None


def spark_of(
    master: str | None, conf: list[str] | None, py_files: list[Path] | None = None
) -> contextlib.AbstractContextManager[SparkSession]:
    """See :func:`~streams_py.cli.spark.own_session.own_session`."""
    from streams_py.spark.session import MOSTLY_PYTHON

    return own_session("streams-py history", master, pairs_of(conf, "--conf"), py_files or (), MOSTLY_PYTHON)
