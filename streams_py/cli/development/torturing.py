"""``streams-py torture``: a test application on a real cluster, with faults."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams_py.cli.options import CONFIG, settings_of
from streams_py.cli.usage import FAILED, NOT_DONE, refuse
from streams_py.errors import ConfigError, StreamsError

if TYPE_CHECKING:  # --help must not load Kafka clients
    from rich.console import Console

    from streams_py.testing.broker import Broker
    from streams_py.testing.torture import Result

_NAME = "streams-py-torture"


def torture(
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", help="Your cluster. Default: start a broker and kill it, too.")
    ] = None,
    config: CONFIG = None,
    minutes: Annotated[float, typer.Option("--minutes", "-m", min=0.1, help="Duration of the faults, in minutes.")] = 5,
    rate: Annotated[float, typer.Option(min=1, help="Records per second.")] = 2_000,
    instances: Annotated[int, typer.Option(min=1, help="Number of processes of the application.")] = 3,
    hogs: Annotated[int, typer.Option(min=0, help="Number of busy processes alongside.")] = 0,
    at_least_once: Annotated[
        bool, typer.Option("--at-least-once", help="Use at_least_once instead of exactly_once_v2.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Seed that selects faults and their times. Default: random, and printed.")
    ] = None,
) -> None:
    """Run an application on a real cluster and inject faults.

    Faults kill, freeze and disconnect its processes, and delete their state.

    The application counts records behind two repartition topics (5 and 12 partitions). At the end, every record must
    have been counted once and in order: in the output, in the changelogs and in the stores. The first instance survives
    the whole run; its memory and open files must not grow. If a check fails, the logs are kept. The command deletes its
    topics (torture-...) at the end.

    Without --bootstrap and --config the command starts a broker, for which it needs Java or Docker, and also kills it.
    One fault fills a disk; it requires permission to mount a small one (root on Linux). The command lists the faults
    that it left out.

    Exit status: 0 all checks passed; 1 a check failed; 2 wrong usage, or no cluster.

    Examples:

      streams-py torture --minutes 10

      streams-py torture --bootstrap localhost:9092 --minutes 30 --rate 3000

      streams-py torture --bootstrap kafka.example:9092 --config login.properties
    """
    from rich.console import Console
    from rich.markup import escape

    from streams_py.cli.connecting import connected
    from streams_py.testing.broker import NoBrokerError, find_broker
    from streams_py.testing.broker.login import LoginBroker

    security: Mapping[str, str] = {}
    is_own = bootstrap is None and config is None
    if not is_own:
        try:
            security = _security(bootstrap, config)
            with connected(bootstrap, config, _NAME) as cluster:
                bootstrap = cluster.bootstrap
        except StreamsError as error:
            raise typer.Exit(refuse(error)) from None
    console = Console(highlight=False)
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    with contextlib.ExitStack() as opened:
        broker: Broker | None = None
        if is_own:
            try:
                broker = find_broker(on_jvm=LoginBroker)
            except NoBrokerError as error:
                typer.echo(f"cannot start a broker ({error}); name your cluster with --bootstrap", err=True)
                raise typer.Exit(NOT_DONE) from None
            opened.callback(broker.close)
        folder = Path(tempfile.mkdtemp(prefix="streams-py-torture-"))
        result = _run(
            console,
            folder,
            bootstrap or (broker.bootstrap if broker else ""),
            broker,
            security=security,
            seconds=minutes * 60,
            rate=rate,
            instances=instances,
            hogs=hogs,
            exact=not at_least_once,
            seed=chosen,
        )
        if isinstance(broker, LoginBroker) and not (result is not None and result.ok):
            broker.copy_logs(folder)  # before the broker removes them
    if result is not None and result.ok:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"the times of all faults, and the logs of instances and broker, are in {folder}")
    if result is None:
        raise typer.Exit(FAILED)
    console.print(
        f"seed {chosen}: {result.records} records, {result.repeated} of them duplicates, in {result.seconds:.0f} s; "
        + ", ".join(f"{times} x {kind}" for kind, times in sorted(result.faults.items()))
    )
    console.print("; ".join(map(str, [*result.growth, *result.left_out])))
    for violation in result.violations:
        console.print(f"[red]{escape(str(violation))}[/red]")
    for death in result.deaths:
        console.print(escape(death))
    console.print("[green]all checks passed[/green]" if result.ok else "[red]a check failed[/red]")
    raise typer.Exit(0 if result.ok else FAILED)


def _security(bootstrap: str | None, config: Path | None) -> Mapping[str, str]:
    """Return the security settings of a configuration file, for all clients of the test."""
    from streams_py.adapters.security.settings import is_security_key
    from streams_py.config.client_keys import ClientRole
    from streams_py.config.streams_config import StreamsConfig

    known = StreamsConfig.of({**settings_of(bootstrap, config), "application.id": _NAME})
    if known.embedded:
        raise ConfigError(
            "the embedded cluster has no transactions, and no part of it can be killed; name a Kafka broker "
            "(--bootstrap host:port), or leave --bootstrap out to start one",
            key="bootstrap.servers",
        )
    return {key: value for key, value in known.settings_for(ClientRole.ADMIN).items() if is_security_key(key)}


def _run(
    console: Console,
    folder: Path,
    bootstrap: str,
    broker: Broker | None,
    *,
    security: Mapping[str, str],
    seconds: float,
    rate: float,
    instances: int,
    hogs: int,
    exact: bool,
    seed: int,
) -> Result | None:
    """Run the test. Returns None if the run failed before its checks, after printing why."""
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from streams_py.errors import BrokerUnavailableError
    from streams_py.testing.broker.login import LoginBroker
    from streams_py.testing.torture import Plan, Torture
    from streams_py.testing.torture.processes import busy

    def outage(duration_s: float) -> None:
        if broker is not None:
            broker.kill_node(1)
            time.sleep(duration_s)
            broker.start_node(1)

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    with busy(hogs), Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        shown = bar.add_task("starting", total=1)

        def tell(what: str, written: int, done: int) -> None:
            bar.update(shown, total=max(1, written), completed=done, description=what or None)

        plan = Plan(exact=exact, instances=instances, rate=rate, seconds=seconds, seed=seed)
        killed = outage if broker is not None and broker.capabilities.node_control else None
        login = broker if isinstance(broker, LoginBroker) else None
        connection = {"bootstrap.servers": bootstrap}
        try:
            torture = Torture(plan, connection, folder, security=security, broker=killed, login=login, tell=tell)
            return torture.run()
        except BrokerUnavailableError as error:
            shutil.rmtree(folder, ignore_errors=True)
            typer.echo(f"{bootstrap} cannot be used: {error}", err=True)
            raise typer.Exit(NOT_DONE) from None
        except (TimeoutError, RuntimeError) as error:
            console.print(f"seed {seed}: [red]{escape(str(error))}[/red]")
            return None
