"""``streams-py dashboard``: serves a page that shows a running group."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from streams_py.cli.connecting import connected
from streams_py.cli.groups.settings import assumed_settings
from streams_py.cli.options import BOOTSTRAP, CONFIG
from streams_py.cli.usage import refuse
from streams_py.errors import StreamsError

_HOST = Annotated[
    str,
    typer.Option(
        help="Address to listen on. The page has no passwords: listen outside loopback only in a trusted network."
    ),
]
_NAMES = Annotated[
    list[str] | None,
    typer.Option(
        "--accepted-name",
        metavar="NAME",
        help="Additional host name under which browsers may request the page; may be repeated.",
    ),
]
_EVENTS_TOPIC = Annotated[
    str | None,
    typer.Option("--events-topic", help="Topic of the group's events. Default: GROUP-assignment-events, if it exists."),
]
_SETTINGS = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the group, for the reasons shown; may be repeated."),
]


def dashboard(
    group: Annotated[str, typer.Option("--group", "-g", help="The application.id.")],
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    host: _HOST = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port to listen on. 0: any free port.")
    ] = 8088,
    names: _NAMES = None,
    every: Annotated[float, typer.Option(min=0.1, help="Interval between two reads of the group, in seconds.")] = 0.5,
    events_topic: _EVENTS_TOPIC = None,
    settings: _SETTINGS = None,
    assignor: Annotated[
        str | None, typer.Option(help="The group's assignor, for the reasons shown; same values as for explain.")
    ] = None,
) -> int:
    """Serve a page that shows a group live, [bold]Java or Python[/bold].

    The page shows the tasks of each member, their lags and their moves.
    Click on a task, or press Enter on it, to read why it is where it is. The page shows rebalances and restores of
    groups that write events (assignment.events.level). One reader serves all open pages. It joins no group and changes
    nothing. Requires the extra [bold]dashboard[/bold].

    Exit status: 0 stopped by Ctrl-C; 2 wrong usage, no answer from the cluster, an unknown group, or a port in use.

    Example: streams-py dashboard -g word-count -b localhost:9092
    """
    return serve_dashboard(
        group,
        bootstrap,
        config,
        host=host,
        port=port,
        names=names or (),
        every_s=every,
        events_topic=events_topic,
        settings=settings,
        assignor=assignor,
    )


def serve_dashboard(
    group: str,
    bootstrap: str | None,
    config: Path | None,
    *,
    host: str,
    port: int,
    names: Iterable[str],
    every_s: float,
    events_topic: str | None,
    settings: Iterable[str] | None,
    assignor: str | None,
) -> int:
    """Serve the page until Ctrl-C. Returns the exit status."""
    try:
        from streams_py.dashboard.app import serve_board
        from streams_py.dashboard.board import Board
        from streams_py.dashboard.watcher import GroupWatcher
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("anyio", "starlette", "uvicorn"):
            raise
        return refuse(
            "the dashboard needs two more packages; install them with: pip install 'kafka-streams-py[dashboard]'"
        )
    try:
        configs = assumed_settings(group, config, settings, "--set", assignor=assignor)
        with connected(bootstrap, config, "streams-py-dashboard") as cluster:
            board = Board()
            watcher = GroupWatcher(
                cluster, group, board, every_s=every_s, events_topic=events_topic, configs=configs, assignor=assignor
            )
            with serve_board(board, watcher, host=host, port=port, names=names) as server:
                watcher.start()
                try:
                    print(f"{group} is shown at {server.url} (stop with Ctrl-C)", flush=True)
                    threading.Event().wait()
                finally:
                    watcher.stop()
    except StreamsError as error:
        return refuse(error)
    except KeyboardInterrupt:
        return 0
    return 0
