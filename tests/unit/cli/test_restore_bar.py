"""The progress bar of foreground programs, on a simulated terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console

from streams_py.cli.restore_bar import restore_bar
from streams_py.runtime.restore.progress import RestoreProgress
from tests.support.waiting import until


class Restoring:
    """A client whose restore progresses with each request for its progress."""

    def __init__(self) -> None:
        self.steps: Iterator[int] = iter([0, 250_000, 500_000, 750_000])
        self.over = False

    def restore_progress(self) -> RestoreProgress:
        for done in self.steps:
            return RestoreProgress(done, 10 * done, 1_000_000 - done, 500_000.0)
        self.over = True
        return RestoreProgress()


def shown(console: Console) -> str:
    streams = Restoring()
    with restore_bar(streams, console=console):
        if console.is_terminal:
            until(lambda: streams.over, "the end of the restoration")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_bar_shows_records_bytes_and_rate_while_stores_are_restored() -> None:
    text = shown(Console(file=io.StringIO(), force_terminal=True, width=120))
    assert "restoring" in text
    assert "250,000 records, 2 MB, 500,000/s" in text or "500,000 records, 5 MB, 500,000/s" in text


def test_nothing_is_shown_when_nobody_sits_at_a_terminal() -> None:
    assert shown(Console(file=io.StringIO(), force_terminal=False)) == ""
