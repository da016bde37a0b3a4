"""Finds tasks that cost more than their share, in windows of ten minutes.

``score`` is a task's share of its thread's work, relative to an equal share: 1 is fair. A task is listed for ``busy``
(score above 2), ``lag`` (its input lag has grown in three consecutive windows) or ``restores`` (three or more). The
first event after a window closes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from streams_py.events.model import Sample

Row = dict[str, Any]

_WINDOW_MS: Final = 600_000
_SCORE_MIN: Final = 2.0
_GROWING_WINDOWS: Final = 3
_RESTORES_MIN: Final = 3


def _new() -> dict[str, Any]:
    return {"busy_us": 0, "fair_us": 0.0, "total_us": 0, "first": None, "last": None, "restores": 0, "moves": 0}


class HotTasks:
    """The present window of one group, and the number of windows in which the lag of each task has grown."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        given = state or {"window_ms": None, "tasks": {}, "growing": {}, "before": {}}
        self._window_ms: int | None = given["window_ms"]
        self._tasks: dict[str, dict[str, Any]] = {task: dict(entry) for task, entry in given["tasks"].items()}
        self._growing: dict[str, int] = dict(given["growing"])
        self._before: dict[str, int] = dict(given["before"])  # work in the previous window

    def to_json(self) -> dict[str, Any]:
        """Return the open window, and the tasks whose lag grows, for a checkpoint."""
        tasks = {task: self._tasks[task] for task in sorted(self._tasks)}
        growing, before = dict(sorted(self._growing.items())), dict(sorted(self._before.items()))
        return {"window_ms": self._window_ms, "tasks": tasks, "growing": growing, "before": before}

    def work(self) -> dict[str, float]:
        """Return the share of each task in all sampled work of this window and the previous one."""
        busy_us = Counter(self._before)
        for task, entry in self._tasks.items():
            if entry["total_us"]:
                busy_us[task] += entry["busy_us"]
        total_us = busy_us.total()
        return {task: us / total_us for task, us in busy_us.items()} if total_us else {}

    def advance(self, now_ms: int) -> Iterator[Row]:
        """Advance to a broker's time. Yields the rows of a window that has ended, if any."""
        window_ms = now_ms - now_ms % _WINDOW_MS
        if self._window_ms is not None and window_ms > self._window_ms:
            yield from self._close(self._window_ms)
            if window_ms > self._window_ms + _WINDOW_MS:
                self._growing.clear()  # a window without events is in between, so windows are not consecutive
            self._before = {task: of["busy_us"] for task, of in self._tasks.items() if of["total_us"]}
            self._tasks = {}
        if self._window_ms is None or window_ms > self._window_ms:
            self._window_ms = window_ms

    def sample(self, sample: Sample, append_ms: int) -> None:
        """Process a sample of one stream thread."""
        busy = [0 if us is None else us for us in sample.busy_us]
        total, count = sum(busy), len(busy)
        for number, task in enumerate(sample.tasks):
            entry = self._tasks.setdefault(str(task), _new())
            entry["busy_us"] += busy[number]
            entry["total_us"] += total
            entry["fair_us"] += total / count
            lag = sample.input_lag[number]
            if lag is not None:
                entry["last"] = [append_ms, lag]
                entry["first"] = entry["first"] or [append_ms, lag]

    def restored(self, task: str) -> None:
        """Count the start of a restoration of the task."""
        self._tasks.setdefault(task, _new())["restores"] += 1

    def moved(self, task: str) -> None:
        """Count a move of the task to another client."""
        self._tasks.setdefault(task, _new())["moves"] += 1

    def _close(self, window_ms: int) -> Iterator[Row]:
        for task in sorted(self._tasks):
            entry = self._tasks[task]
            trend = _trend(entry)
            if trend is not None and trend > 0:
                self._growing[task] = self._growing.get(task, 0) + 1
            else:
                self._growing.pop(task, None)
            score = entry["busy_us"] / entry["fair_us"] if entry["fair_us"] else None
            why = []
            if score is not None and score > _SCORE_MIN:
                why.append("busy")
            if self._growing.get(task, 0) >= _GROWING_WINDOWS:
                why.append("lag")
            if entry["restores"] >= _RESTORES_MIN:
                why.append("restores")
            if why:
                yield {
                    "task": task,
                    "window": window_ms,
                    "busy_share": entry["busy_us"] / entry["total_us"] if entry["total_us"] else None,
                    "lag": None if entry["last"] is None else entry["last"][1],
                    "lag_trend_per_s": trend,
                    "restores": entry["restores"],
                    "moves": entry["moves"],
                    "score": score,
                    "why": " ".join(why),
                }
        for task in self._growing.keys() - self._tasks.keys():
            del self._growing[task]


def _trend(entry: Mapping[str, Any]) -> float | None:
    """Return the growth of the lag in records per second; None with fewer than two samples."""
    first, last = entry["first"], entry["last"]
    if first is None or last is None or last[0] <= first[0]:
        return None
    growth: float = (last[1] - first[1]) * 1000 / (last[0] - first[0])
    return growth
