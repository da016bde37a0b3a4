"""Progress of a run over a history: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from streams_py.cli.spark.outcome import console

if TYPE_CHECKING:
    from rich.console import Console

    from streams_py.spark.history.progress import HistoryProgress

_LINE_EVERY_S: Final = 10.0
_SURE_AFTER_S: Final = 3.0
"""Time before a rate and a remaining time are shown, in seconds."""


class ProgressText:
    """The text about a stage: records, rate, time left.

    The rate is measured since the stage's first records.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._step: object = None
        self._began_s = 0.0
        self._already = 0

    def of(self, at: HistoryProgress) -> tuple[str, str]:
        """Return the current step, and its progress."""
        step = (at.run, at.stage, at.is_processed)
        if step != self._step or not at.records:
            self._step, self._began_s, self._already = step, self._clock(), at.records
        name = f"{at.run and f'{at.run}, '}stage {at.stage + 1} of {at.stages}"
        if at.records and not at.is_processed:
            name += ", reading"
        return name, self._progress(at)

    def _progress(self, at: HistoryProgress) -> str:
        if not at.records:
            return "records" if at.total is None else f"up to {at.total:,} records"
        text = f"{at.records:,}" + ("" if at.total is None else f" of {at.total:,}") + " records"
        spent_s = self._clock() - self._began_s
        if spent_s < _SURE_AFTER_S or at.records <= self._already:
            return text
        rate = (at.records - self._already) / spent_s
        text += f", {rate:,.0f}/s"
        if at.total is not None and at.records < at.total:
            text += f", {timedelta(seconds=round((at.total - at.records) / rate))} left"
        return text


@contextlib.contextmanager
def progress(out: Console | None = None) -> Iterator[Callable[[HistoryProgress], None]]:
    """Yield the function that receives the progress."""
    out = out or console()
    text = ProgressText()
    if not out.is_terminal:
        yield _Lines(out, text).show
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[progress]}"))
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=None, progress="")

        def show(at: HistoryProgress) -> None:
            name, progress = text.of(at)
            bar.update(task, description=name, completed=at.records, total=at.total, progress=progress)

        yield show


class _Lines:
    """Prints a line when a stage starts and ends, and one at an interval."""

    def __init__(self, out: Console, text: ProgressText) -> None:
        self._out, self._text = out, text
        self._next_s = 0.0
        self._shown: HistoryProgress | None = None

    def show(self, at: HistoryProgress) -> None:
        """Print the progress if it has changed and the interval has elapsed."""
        name, progress = self._text.of(at)
        is_new, self._shown = at != self._shown, at
        if is_new and (not at.records or at.records == at.total or time.monotonic() >= self._next_s):
            self._next_s = time.monotonic() + _LINE_EVERY_S
            self._out.print(f"{name}: {progress}")
