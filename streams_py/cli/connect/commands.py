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

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

_EXTRA: Final = ("starlette", "uvicorn", "httpx", "orjson")
_FAILED: Final = 1
_SWITCH_S: Final = 0.0005
"""A job that was answered (by a database, say) waits so long for one that computes; 5 ms is Python's default."""
_OBJECTS_BETWEEN_COLLECTIONS: Final = 20_000
"""Batches are many objects without cycles: looking for garbage among them every 700 halves the speed."""


@app.command()
def worker(
    config: Annotated[
        Path, typer.Option("--config", "-c", help="A .properties or .toml file with Kafka Connect's keys.")
    ],
    debug: Annotated[bool, typer.Option("--debug", help="Log details, too.")] = False,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM.

    It joins its group, runs the connectors and tasks that it is given, and answers Kafka Connect's REST requests. The
    first signal stops its jobs, commits what is done and leaves the group; a second one ends it at once.

    Exit status: 0 stopped; 1 it failed; 2 the settings are wrong, or no broker has answered for a minute.

    Example: streams-py connect worker --config worker.properties
    """
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.WARNING)
    with _explained(), quiet_logs(below=logging.DEBUG if debug else logging.INFO):
        from streams_py.connect.process import WorkerProcess
        from streams_py.connect.settings import WorkerSettings

        settings = WorkerSettings.of(read_config_file(config))
        with stop_signals() as asked, _at_speed(), WorkerProcess(settings) as process:
            if not wait_or_stop(asked, process.worker.wait, None):
                logging.getLogger("streams_py.connect").info("stopping; a second signal ends the process at once")
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
        Path | None, typer.Option("--ca-location", help="PEM file with the authorities of the workers' certificates.")
    ] = None,
    certificate_location: Annotated[
        Path | None, typer.Option("--certificate-location", help="PEM file with a client certificate and its key.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON instead of a table.")] = False,
) -> None:
    """Which worker runs what, and why some jobs run nowhere.

    A table of jobs by workers; * marks a job that the worker lists (static.connectors, static.tasks). Below it: jobs
    that no worker has, who could run each, and why nobody does.

    Exit status: 0 everything runs; 1 a job has failed or has no worker; 2 the worker does not answer.

    Examples:

      streams-py connect status

      streams-py connect status --url http://worker-1:8083 --json
    """
    with _explained():
        from streams_py.cli.connect.status import show_status

        raise typer.Exit(show_status(url, as_json=as_json, ca_file=ca_location, certificate_file=certificate_location))


@contextlib.contextmanager
def _at_speed() -> Iterator[None]:
    """The interpreter, set up for threads that handle batches of records."""
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
    """What goes wrong ends the command with one sentence."""
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
