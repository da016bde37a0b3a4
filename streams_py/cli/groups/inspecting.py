"""``streams-py inspect``: shows the present state of a Kafka Streams group, Java or Python."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from streams_py.cli.connecting import Connection, connected
from streams_py.cli.groups.group_tables import render, to_json
from streams_py.cli.options import BOOTSTRAP, CONFIG
from streams_py.cli.usage import RefusedError, refuse, refusing
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError
from streams_py.inspection.ended_processes import ended_processes
from streams_py.inspection.gather import inspect_group
from streams_py.inspection.view import GroupView
from streams_py.ports import GroupAdmin
from streams_py.system.markup import plain_text
from streams_py.system.printable import printable, printable_json


@refusing
def inspect(
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="The application.id. Without it, the command lists all groups.")
    ] = None,
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    watch: Annotated[
        float | None, typer.Option("--watch", "-w", min=0.5, help="Refresh at this interval in seconds, until Ctrl-C.")
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="Print a line for each task, even if there are many.")] = False,
) -> int:
    """Show the members, tasks and lags of a group, [bold]Java or Python[/bold].

    Also shows the next rebalance, if one is expected. Supports groups of the classic protocol and of the streams
    protocol (KIP-1071), in which the coordinator assigns the tasks. The command reads offsets, and the data that the
    group's coordinator keeps about each member. It never joins the group and changes nothing. It also shows members
    whose process has ended on this host, if it runs as the application's user. --config names their state.dir.

    Required rights: DESCRIBE on the group and its topics. With READ on __consumer_offsets it also shows the leader.

    Exit status: 0 shown; 2 wrong usage, no answer from the cluster, an unknown group, or not a Kafka Streams group.

    Examples:

      streams-py inspect -b localhost:9092

      streams-py inspect -b localhost:9092 -g word-count

      streams-py inspect -b localhost:9092 -g word-count --watch 2
    """
    if group is None and (watch is not None or tasks):
        raise RefusedError("--watch and --tasks show one group; give --group as well")
    if watch is not None and as_json:
        raise RefusedError("--watch is for a terminal and --json for programs; give only one of them")
    return inspect_command(group, bootstrap, config, as_json=as_json, watch_s=watch, all_tasks=tasks)


def inspect_command(
    group: str | None,
    bootstrap: str | None,
    config: Path | None,
    *,
    as_json: bool,
    watch_s: float | None,
    all_tasks: bool,
) -> int:
    """Print the group, repeatedly with ``watch_s``.

    Without a name, list all groups. Returns the exit status.
    """
    console = Console()
    try:
        with connected(bootstrap, config, "streams-py-inspect") as cluster:
            if group is None:
                return _print_groups(cluster.groups, as_json=as_json)
            if as_json:
                print(printable_json(to_json(_view(cluster, group))))
            elif watch_s is None:
                console.print(render(_view(cluster, group), all_tasks=all_tasks))
            else:
                _watch(cluster, group, console, watch_s, all_tasks=all_tasks)
    except StreamsError as error:
        near = None
        if group is not None and not isinstance(error, ConfigError | BrokerUnavailableError):
            near = _near(group, bootstrap, config)
        return refuse(error if near is None else f"{error}; did you mean {near}?")
    except KeyboardInterrupt:  # the user stops --watch this way
        return 0
    return 0


def _view(cluster: Connection, group: str) -> GroupView:
    """Return the group's present state, with the processes of this host that have ended."""
    view = inspect_group(cluster, group)
    if not view.members:
        return view
    present = [member.member_id for member in view.members]
    return replace(view, ended=ended_processes(group, cluster.admin.cluster_id(), present, cluster.state_dirs))


def _print_groups(groups: GroupAdmin, *, as_json: bool) -> int:
    listed = groups.list_groups()
    if as_json:
        print(printable_json([{"group": name, "type": kind.lower()} for name, kind in sorted(listed.items())]))
        return 0
    if not listed:
        print("no groups found", file=sys.stderr)
    for name, kind in sorted(listed.items()):
        print(f"{printable(name)}\t{kind.lower()}")
    return 0


def _near(group: str, bootstrap: str | None, config: Path | None) -> str | None:
    """Return an existing group with a similar name."""
    with contextlib.suppress(StreamsError), connected(bootstrap, config, "streams-py-inspect") as cluster:
        found = get_close_matches(group, [name for name in cluster.groups.list_groups() if name != group], n=1)
        return found[0] if found else None
    return None


def _watch(cluster: Connection, group: str, console: Console, every_s: float, *, all_tasks: bool) -> None:
    view = _view(cluster, group)
    with Live(render(view, all_tasks=all_tasks, live=True), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            try:
                shown: RenderableType = render(_view(cluster, group), all_tasks=all_tasks, live=True)
            except BrokerUnavailableError as error:
                shown = f"[yellow]{plain_text(str(error))}[/yellow]"
            live.update(shown, refresh=True)
