"""``streams-py dashboard``: serves a page that shows a running group."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from streams_py.cli.connecting import connected
from streams_py.cli.groups.settings import assumed_settings
from streams_py.cli.usage import refuse
from streams_py.errors import StreamsError


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
        from streams_py.dashboard.board import Board
        from streams_py.dashboard.service import serve_board
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
