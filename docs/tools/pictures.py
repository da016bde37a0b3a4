"""Draw the picture of a real run: ``python -m docs.tools.pictures host:port`` runs a group there and draws it.

Without an address, the recorded run is drawn again. The group has three processes of the word count. One joins, one is
killed, one comes, one leaves. ``docs/assignment/run.json`` contains the reported tasks of each process, with times.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from streams_py import TopicSpec, create_topics

_PAGES: Final = Path(__file__).resolve().parents[1] / "assignment"
RUN: Final = _PAGES / "run.json"
_TASKS: Final = [f"{subtopology}_{partition}" for subtopology in (0, 1) for partition in range(4)]
_COLOURS: Final = {"A": "#3f51b5", "B": "#e08a00", "C": "#2e8b57"}
_PATIENCE_S: Final = 300


class Worker:
    """A worker, and everything it has said."""

    def __init__(
        self, name: str, settings: dict[str, Any], folder: str, begin: float, said: list[dict[str, Any]]
    ) -> None:
        self.name, self.last = name, {"state": "", "active": [], "standby": []}
        self._begin, self._said = begin, said
        config = {**settings, "num.standby.replicas": 1, "session.timeout.ms": 6000, "state.dir": f"{folder}/{name}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.word_count.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"input": "text-lines", "output": "word-counts", "config": config}) + "\n")
        self._process.stdin.flush()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)
            self.tell(self.last)

    def tell(self, what: dict[str, Any]) -> None:
        second = round(time.monotonic() - self._begin, 1)
        self._said.append({"second": second, "process": self.name, **{key: what[key] for key in ("active", "standby")}})

    def end(self, *, kill: bool) -> None:
        if kill:
            self._process.kill()
        elif self._process.stdin is not None:
            self._process.stdin.close()
        self._listener.join()
        self._process.wait()
        self.last = {"state": "gone", "active": [], "standby": []}
        self.tell(self.last)


def record(bootstrap: str) -> dict[str, Any]:
    """Run the group on an empty cluster. Returns the reports of its processes and the actions of the run."""
    said: list[dict[str, Any]] = []
    done: list[dict[str, Any]] = []
    settings = {"application.id": "picture", "bootstrap.servers": bootstrap}
    create_topics(settings, TopicSpec("text-lines", 4), TopicSpec("word-counts", 4))
    begin = time.monotonic()

    def note(text: str) -> None:
        done.append({"second": round(time.monotonic() - begin, 1), "what": text})

    with tempfile.TemporaryDirectory() as folder:
        group: dict[str, Worker] = {}

        def start(name: str) -> None:
            note(f"{name} starts")
            group[name] = Worker(name, settings, folder, begin, said)
            rest(group)

        start("A")
        start("B")
        note("A is killed")
        group.pop("A").end(kill=True)
        rest(group)
        start("C")
        note("B is stopped")
        group.pop("B").end(kill=False)
        rest(group)
        end = round(time.monotonic() - begin, 1)
        group.pop("C").end(kill=False)
    return {"end": end, "done": done, "said": [entry for entry in said if entry["second"] <= end]}


def rest(group: dict[str, Worker]) -> None:
    """Wait until every task runs once, has its standby where there is another process, and stays so for a while."""
    limit, since = time.monotonic() + _PATIENCE_S, time.monotonic()
    before: Any = None
    while True:
        now = [(process.last["active"], process.last["standby"]) for process in group.values()]
        active = sorted(task for tasks, _ in now for task in tasks)
        running = all(process.last["state"] == "RUNNING" for process in group.values())
        standbys = sum(len(tasks) for _, tasks in now)
        even = max(len(tasks) for tasks, _ in now) - min(len(tasks) for tasks, _ in now) <= 1
        if now != before or not (running and even and active == _TASKS and standbys == (4 if len(group) > 1 else 0)):
            before, since = now, time.monotonic()
        elif time.monotonic() - since > 3:
            return
        if time.monotonic() > limit:
            raise TimeoutError(f"the group does not come to rest: {now}")
        time.sleep(0.1)


def drawn(run: dict[str, Any]) -> str:
    """The SVG: a line for each task, time from left to right, who ran it and who kept a copy."""
    left, top, row, width = 60, 60, 26, 700
    scale = width / run["end"]
    height = top + row * len(_TASKS) + 50
    box = f"0 0 {left + width + 20} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="12">',
        "<title>Tasks of the word count over time, by process</title>",
        f'<rect width="{left + width + 20}" height="{height}" fill="white"/>',
    ]
    for number, task in enumerate(_TASKS):
        y = top + row * number
        parts.append(f'<text x="8" y="{y + 15}">{task}</text>')
        for process, role, begin, end in _spells(run, task):
            where = (y + 2, 10) if role == "active" else (y + 14, 5)
            opacity = 1 if role == "active" else 0.45
            parts.append(
                f'<rect x="{left + begin * scale:.1f}" y="{where[0]}" width="{(end - begin) * scale:.1f}" '
                f'height="{where[1]}" fill="{_COLOURS[process]}" opacity="{opacity}"/>'
            )
    bottom = top + row * len(_TASKS)
    for number, event in enumerate(run["done"]):
        x = left + event["second"] * scale
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 6}" y2="{bottom}" stroke="#888" stroke-dasharray="3"/>'
        )
        parts.append(f'<text x="{x + 3:.1f}" y="{22 + 16 * (number % 2)}">{event["what"]}</text>')
    x = left
    for process, colour in _COLOURS.items():
        parts.append(f'<rect x="{x}" y="{bottom + 16}" width="14" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20}" y="{bottom + 25}">{process}</text>')
        x += 60
    parts.append(f'<text x="{x}" y="{bottom + 25}">thick: runs the task; thin: keeps a copy of its state</text>')
    parts.append(f'<text x="{left + width - 70}" y="{bottom + 25}">{run["end"]:.0f} seconds</text>')
    return "\n".join([*parts, "</svg>", ""])


def _spells(run: dict[str, Any], task: str) -> Iterator[tuple[str, str, float, float]]:
    """(Process, role, from, to) of a task, in seconds."""
    for process in _COLOURS:
        entries: Sequence[dict[str, Any]] = [entry for entry in run["said"] if entry["process"] == process]
        for role in ("active", "standby"):
            began: float | None = None
            for entry in entries:
                if task in entry[role] and began is None:
                    began = entry["second"]
                elif task not in entry[role] and began is not None:
                    yield process, role, began, entry["second"]
                    began = None
            if began is not None:
                yield process, role, began, run["end"]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        RUN.write_text(json.dumps(record(sys.argv[1]), indent=1) + "\n", encoding="utf-8")
    (_PAGES / "run.svg").write_text(drawn(json.loads(RUN.read_text(encoding="utf-8"))), encoding="utf-8")
