"""The commands ``streams-py connect worker | status``."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from streams_py.cli.usage import refuse
from streams_py.config.files import read_config_file
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError
from streams_py.system.quiet_logs import quiet_logs
from streams_py.system.stop_signals import stop_signals, wait_or_stop

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

_EXTRA: Final = ("starlette", "uvicorn", "httpx", "orjson")
_FAILED: Final = 1
_SWITCH_S: Final = 0.0005
"""Longest wait of a thread for another thread that computes, in seconds.

A job whose answer has arrived (from a database, say) waits this long. Python's default is 5 ms.
"""
_OBJECTS_BETWEEN_COLLECTIONS: Final = 20_000
"""Allocations between two garbage collections.

Batches consist of many objects without cycles. Collecting after every 700 objects, as Python does, halves the
throughput.
"""


@app.command()
def worker(
    config: Annotated[
        Path, typer.Option("--config", "-c", help="A .properties or .toml file with Kafka Connect's keys.")
    ],
    debug: Annotated[bool, typer.Option("--debug", help="Log details as well.")] = False,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM.

    The worker joins its group, runs the connectors and tasks that the group assigns to it, and serves Kafka Connect's
    REST API. The first signal stops its jobs, commits finished work and leaves the group. A second one stops the
    process immediately.

    Exit status: 0 stopped; 1 the worker failed; 2 the settings are wrong, or no broker has answered for a minute.

    Example: streams-py connect worker --config worker.properties
    """
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.WARNING)
    with _explained(), quiet_logs(below=logging.DEBUG if debug else logging.INFO):
        from streams_py.connect.process import WorkerProcess
        from streams_py.connect.settings import WorkerSettings

        settings = WorkerSettings.of(read_config_file(config))
        with stop_signals() as asked, _at_speed(), WorkerProcess(settings) as process:
            if not wait_or_stop(asked, process.worker.wait, None):
                logging.getLogger("streams_py.connect").info("stopping; a second signal stops the process immediately")
        if process.worker.failure is not None:
            raise process.worker.failure


@app.command()
def status(
    url: Annotated[
        str,
        typer.Option(
            "--url",
            "-u",
            help="Any worker of the group: http://, https:// (also with user:password@), or unix:/path.",
            envvar="CONNECT_URL",
            show_envvar=True,
        ),
    ] = "http://127.0.0.1:8083",
    ca_location: Annotated[
        Path | None,
        typer.Option("--ca-location", help="PEM file with the CA certificates that sign the workers' certificates."),
    ] = None,
    certificate_location: Annotated[
        Path | None, typer.Option("--certificate-location", help="PEM file with a client certificate and its key.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show which worker runs each job, and why a job has no worker.

    Prints a table of jobs and workers. * marks a job that the worker lists (static.connectors, static.tasks). Below
    the table: each job without a worker, the reason, and the workers that could run it.

    Exit status: 0 all jobs run; 1 a job has failed or has no worker; 2 the worker does not answer.

    Examples:

      streams-py connect status

      streams-py connect status --url http://worker-1:8083 --json
    """
    with _explained():
        from streams_py.cli.connect.status import show_status

        raise typer.Exit(show_status(url, as_json=as_json, ca_file=ca_location, certificate_file=certificate_location))


@contextlib.contextmanager
def _at_speed() -> Iterator[None]:
    """Tune the interpreter for threads that handle batches of records, until the block ends."""
    collections, switch_s = gc.get_threshold(), sys.getswitchinterval()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 50, 100)
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(switch_s)
        gc.set_threshold(*collections)
        gc.unfreeze()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Print errors as one sentence and exit with their status."""
    try:
        yield
    except (ConfigError, BrokerUnavailableError) as error:
        raise typer.Exit(refuse(error)) from None
    except StreamsError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_FAILED) from None
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sentence = f"this needs {error.name}; install it with: pip install 'kafka-streams-py[connect]'"
        raise typer.Exit(refuse(sentence)) from None
