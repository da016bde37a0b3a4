"""``streams-py torture``: a test application on a real cluster, with faults."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from streams_py.adapters.security.settings import is_security_key
from streams_py.cli.connecting import connected
from streams_py.cli.options import CONFIG, settings_of
from streams_py.cli.usage import FAILED, RefusedError, refusing
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ConfigError
from streams_py.testing.broker import Broker, NoBrokerError, find_broker
from streams_py.testing.broker.login import LoginBroker
from streams_py.testing.torture import Plan, Result, Torture
from streams_py.testing.torture.processes import busy

_NAME = "streams-py-torture"


@refusing
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
) -> int:
    """Run an application on a real cluster and inject faults.

    Faults kill, freeze and disconnect its processes, and delete their state.

    The application counts records that have passed two repartition topics (5 and 12 partitions). At the end, every
    record must have been counted once and in order: in the output, in the changelogs and in the stores. The first
    instance survives the whole run; its memory and open files must not grow. If a check fails, the logs are kept. The
    command deletes its topics (torture-...) at the end.

    Without --bootstrap and --config the command starts a broker, for which it needs Java or Docker, and also kills it.
    One fault fills a disk; it requires permission to mount a small one (root on Linux). The command lists the faults
    that it left out.

    Exit status: 0 all checks passed; 1 a check failed; 2 wrong usage, or no cluster.

    Examples:

      streams-py torture --minutes 10

      streams-py torture --bootstrap localhost:9092 --minutes 30 --rate 3000

      streams-py torture --bootstrap kafka.example:9092 --config login.properties
    """
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    plan = Plan(exact=not at_least_once, instances=instances, rate=rate, seconds=minutes * 60, seed=chosen)
    console = Console(highlight=False)
    with _cluster(bootstrap, config) as cluster:
        folder = Path(tempfile.mkdtemp(prefix="streams-py-torture-"))
        result = _run(console, folder, plan, cluster, hogs)
        is_ok = result is not None and result.ok
        if isinstance(cluster.broker, LoginBroker) and not is_ok:
            cluster.broker.copy_logs(folder)  # before the broker removes them
    if is_ok:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"the times of all faults, and the logs of instances and broker, are in {folder}")
    if result is not None:
        _report(console, result, chosen)
    return 0 if is_ok else FAILED


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The cluster of a run.

    ``broker`` is set if the command has started the cluster, and may therefore kill it.
    """

    bootstrap: str
    security: Mapping[str, str]
    broker: Broker | None = None


@contextlib.contextmanager
def _cluster(bootstrap: str | None, config: Path | None) -> Iterator[_Cluster]:
    """Yield the user's cluster, or a broker that runs until the block ends.

    Raises:
        StreamsError: The cluster cannot be used, or no broker can be started.
    """
    if bootstrap is not None or config is not None:
        security = _security(bootstrap, config)
        with connected(bootstrap, config, _NAME) as cluster:
            found = cluster.bootstrap
        yield _Cluster(found, security)
        return
    try:
        broker = find_broker(on_jvm=LoginBroker)
    except NoBrokerError as error:
        raise RefusedError(f"cannot start a broker ({error}); name your cluster with --bootstrap") from None
    with contextlib.closing(broker):
        yield _Cluster(broker.bootstrap, {}, broker)


def _report(console: Console, result: Result, seed: int) -> None:
    console.print(
        f"seed {seed}: {result.records} records, {result.repeated} of them duplicates, in {result.seconds:.0f} s; "
        + ", ".join(f"{times} x {kind}" for kind, times in sorted(result.faults.items()))
    )
    console.print("; ".join(map(str, [*result.growth, *result.left_out])))
    for violation in result.violations:
        console.print(f"[red]{escape(str(violation))}[/red]")
    for death in result.deaths:
        console.print(escape(death))
    console.print("[green]all checks passed[/green]" if result.ok else "[red]a check failed[/red]")


def _security(bootstrap: str | None, config: Path | None) -> Mapping[str, str]:
    """Return the security settings of a configuration file, for all clients of the test."""
    known = StreamsConfig.of({**settings_of(bootstrap, config), "application.id": _NAME})
    if known.embedded:
        raise ConfigError(
            "the embedded cluster has no transactions, and no part of it can be killed; name a Kafka broker "
            "(--bootstrap host:port), or leave --bootstrap out to start one",
            key="bootstrap.servers",
        )
    return {key: value for key, value in known.settings_for(ClientRole.ADMIN).items() if is_security_key(key)}


def _run(console: Console, folder: Path, plan: Plan, cluster: _Cluster, hogs: int) -> Result | None:
    """Run the test. Returns None if the run failed before its checks, after printing why.

    Raises:
        RefusedError: The cluster cannot be used.
    """
    broker = cluster.broker

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

        killed = outage if broker is not None and broker.capabilities.node_control else None
        login = broker if isinstance(broker, LoginBroker) else None
        connection = {"bootstrap.servers": cluster.bootstrap}
        try:
            torture = Torture(
                plan, connection, folder, security=cluster.security, broker=killed, login=login, tell=tell
            )
            return torture.run()
        except BrokerUnavailableError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise RefusedError(f"{cluster.bootstrap} cannot be used: {error}") from None
        except (TimeoutError, RuntimeError) as error:
            console.print(f"seed {plan.seed}: [red]{escape(str(error))}[/red]")
            return None
