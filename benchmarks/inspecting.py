"""Time of `streams-py inspect` for a large group, and of the page that shows the group: first paint and a change.

    python -m benchmarks.inspecting read|page    (prints its measurements)

The library's own leader computed the group's bytes, as DescribeGroups returns them for members that count, in two
sub-topologies. The cluster is a fake without a network, so processor time is sufficient. The command runs in a
separate process that did not create the data.
"""

from __future__ import annotations

import io
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.own_process import numbers_of
from benchmarks.table import Goal, Row
from tests.support.chromium import MISSING, Chromium
from tests.support.inspection.groups import GROUP, FakeCluster, rebalanced, said, topics

_MEMBERS: Final = 100
_PARTITIONS: Final = 2_500
_SUBTOPOLOGIES: Final = 2
_RECORDS: Final = 500
_KILLS: Final = 10
_REST_S: Final = 1.5
_WATCH: Final = """window.seen = null;
    const body = document.querySelector('#grid tbody');
    const unassigned = () => [...body.rows].some(
        (row) => row.querySelector('th button').textContent === '0_{task}' && !row.querySelector('button.active'));
    new MutationObserver((_, observer) => {{
        if (!unassigned()) return;
        observer.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => {{ window.seen = Date.now(); }}));
    }}).observe(body, {{ childList: true }});"""
"""Script that records the time of the first frame in which the task is not active on a member.

Requests from outside the browser would take longer than that. Each member has every hundredth task, starting with its
number."""


def inspect_rows(runs: int, tick: Callable[[str], None]) -> Iterator[Row]:
    """Measure the command's processor time and memory, the first paint, and the time until the page shows a change."""
    seconds, megabytes, paint, gone = [], [], [], []
    for run in range(runs):
        tick(f"inspect of {_MEMBERS} members, run {run + 1}")
        took, used = numbers_of("inspecting", "read", count=2)
        seconds.append(took)
        megabytes.append(used)
        if MISSING is None:
            tick(f"first paint of the page and {_KILLS} members that end, run {run + 1}")
            first, *later = numbers_of("inspecting", "page", count=1 + _KILLS)
            paint.append(first)
            gone += later
    work = (
        f"inspect, {_MEMBERS} members, {_SUBTOPOLOGIES * _PARTITIONS:,} tasks, no network; processor time with imports"
    )
    yield Row(work, "", "s", tuple(seconds), goal=Goal("< 2 s", ours_max=2))
    yield Row("memory of that command", "", "MB", tuple(megabytes), goal=Goal("< 200 MB", ours_max=200))
    page = "first paint of the page of that group, Chromium on loopback"
    yield Row(page, "", "ms", tuple(paint), goal=Goal("< 1 s", ours_max=1000), note=MISSING or "")
    change = "a member of that group ends, until the page's grid shows it"
    yield Row(change, "", "ms", tuple(gone), goal=Goal("< 2 s", ours_max=2000), note=MISSING or "")


def _make() -> FakeCluster:
    from streams_protocol.types import TaskId

    cluster = FakeCluster(topics(_PARTITIONS), {"in": _RECORDS, "app-counts-changelog": _RECORDS})
    tasks = [TaskId(sub, number) for sub in range(_SUBTOPOLOGIES) for number in range(_PARTITIONS)]
    members = {}
    for number in range(_MEMBERS):
        mine = tasks[number::_MEMBERS]
        members[f"m{number:03}"] = said(number, owned=mine, sums={task: _RECORDS for task in mine if not task[0]})
    rebalanced(cluster, members, _PARTITIONS)
    return cluster


def _look(file: str) -> None:
    """Do the same as the command, with output to a string."""
    from rich.console import Console

    from streams_py.cli.groups.group_tables import render
    from streams_py.inspection.gather import inspect_group

    cluster = pickle.loads(Path(file).read_bytes())
    view = inspect_group(cluster, GROUP, election=False)
    assert len(view.tasks) == _SUBTOPOLOGIES * _PARTITIONS
    Console(file=io.StringIO(), width=120).print(render(view, all_tasks=False))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / (1024 if sys.platform != "darwin" else 1024 * 1024))


def _page() -> list[float]:
    """Return times in ms: of the first paint, then for each member that stops."""
    from streams_py.dashboard.app import serve_board
    from streams_py.dashboard.board import Board
    from streams_py.dashboard.watcher import GroupWatcher

    board, cluster = Board(), _make()
    watcher = GroupWatcher(cluster, GROUP, board)
    with tempfile.TemporaryDirectory() as folder, serve_board(board, watcher) as server:
        watcher.start()
        chromium = Chromium(Path(folder) / "log")
        try:
            chromium.open(server.url)
            chromium.until("return performance.getEntriesByName('first-contentful-paint').length", "the first paint")
            took = [chromium.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime")]
            chromium.until("return document.querySelector('#grid button.active')", "the grid")
            for number in range(_KILLS):
                time.sleep(_REST_S * (1 + number / _KILLS))  # at different times between two requests of the page
                chromium.run(_WATCH.format(task=number))
                began_ms = 1000 * time.time()
                cluster.described = cluster.described._replace(members=cluster.described.members[1:])
                took.append(chromium.until("return window.seen", f"task 0_{number} without a member") - began_ms)
        finally:
            chromium.close()
            watcher.stop()
    return [float(each) for each in took]


def _read() -> str:
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickle.dumps(_make()))
        file.flush()
        command = [sys.executable, "-m", "benchmarks.inspecting", "look", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["read"]:
            print(_read())
        case ["page"]:
            print(*_page())
        case ["look", name]:
            _look(name)
