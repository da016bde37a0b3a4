"""A progress bar while a foreground program restores its stores (extra ``cli``)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from streams_py.runtime.restore.progress import RestoreProgress

__all__ = ["restore_bar"]

_INTERVAL_S: Final = 0.2


class Restoring(Protocol):
    """The part of a client that the bar needs."""

    def restore_progress(self) -> RestoreProgress: ...


@contextlib.contextmanager
def restore_bar(streams: Restoring, *, console: Console | None = None) -> Iterator[None]:
    """Show a bar whenever ``streams`` restores, until the block ends::

        with restore_bar(streams):
            streams.run()

    The bar goes to standard error. Without a terminal there, nothing is shown.
    """
    console = console or Console(stderr=True)
    ended = threading.Event()
    shower = threading.Thread(target=_show, args=(streams, console, ended), name="restore-bar", daemon=True)
    if console.is_terminal:
        shower.start()
    try:
        yield
    finally:
        ended.set()
        if shower.ident is not None:
            shower.join()


def _show(streams: Restoring, console: Console, ended: threading.Event) -> None:
    while not ended.wait(_INTERVAL_S):
        if streams.restore_progress().remaining:
            _show_one(streams, console, ended)


def _show_one(streams: Restoring, console: Console, ended: threading.Event) -> None:
    columns = (TextColumn("restoring"), BarColumn(), TextColumn("{task.fields[progress]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("restoring", total=None, progress="")
        while True:
            now = streams.restore_progress()
            if not now.remaining:
                return
            progress = f"{now.records:,} records, {now.bytes / 1e6:,.0f} MB, {now.rate:,.0f}/s"
            bar.update(task, completed=now.records, total=now.records + now.remaining, progress=progress)
            if ended.wait(_INTERVAL_S):
                return
