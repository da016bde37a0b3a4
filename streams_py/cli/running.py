"""``streams-py run``: runs a user's topology as an application, in one or several processes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from streams_py.cli.usage import FAILED, pairs_of, refuse
from streams_py.config.files import read_config_file
from streams_py.errors import ConfigError, StreamsError, TopologyError
from streams_py.history.loading import load_topology
from streams_py.runtime.client.kafka_streams import KafkaStreams

_HEALTH = Annotated[
    str | None,
    typer.Option(
        "--health", metavar="PORT|HOST:PORT", help="Answer HTTP probes /live and /ready. PORT alone: on loopback."
    ),
]
_NAMES = Annotated[
    list[str] | None,
    typer.Option(
        "--accepted-name",
        metavar="NAME",
        help="Additional host name under which probes and metrics may be requested; may be repeated.",
    ),
]
_DRAIN = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="When stopped, wait up to this time until other instances have taken over the tasks.",
    ),
]


def run(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME|FILE.PY[:NAME]", help="A StreamsBuilder, a Topology, or a function that returns one."
        ),
    ],
    config: Annotated[
        Path | None, typer.Option("--config", help="The application's .toml or .properties file.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key; may be repeated.")
    ] = None,
    processes: Annotated[
        int,
        typer.Option("--processes", "-p", min=1, help="Number of processes that share the tasks. Each uses one core."),
    ] = 1,
    drain: _DRAIN = None,
    health: _HEALTH = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="PORT|HOST:PORT", help="Serve Prometheus metrics of all processes."),
    ] = None,
    names: _NAMES = None,
) -> int:
    """Run a topology until Ctrl-C or SIGTERM, in [bold]one or several processes[/bold].

    A process that dies is restarted. All processes write to this terminal. The first Ctrl-C closes them in order, a
    second one stops them immediately.

    Exit status: 0 closed; 1 failed; 2 wrong usage, topology or configuration.

    Examples:

      streams-py run app.py --set application.id=word-count --set bootstrap.servers=localhost:9092

      streams-py run my_app.main:build_topology --config app.toml --processes 4 --health 8080 --metrics 9404
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(process)d %(threadName)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    try:
        given = {**(read_config_file(config) if config else {}), **pairs_of(settings, "--set")}
        streams = KafkaStreams(load_topology(what, given), given)
    except (ConfigError, TopologyError) as error:
        return refuse(error)
    try:
        streams.run(drain=drain, processes=processes, health=health, metrics=metrics, names=names or ())
    except ConfigError as error:
        return refuse(error)
    except StreamsError as error:
        logging.getLogger("streams_py").error("the application failed: %s", error)
        return FAILED
    return 0
