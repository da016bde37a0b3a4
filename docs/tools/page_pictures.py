"""Take the pictures of the dashboard: ``python -m docs.tools.page_pictures host:port``.

Runs a group on that broker and kills a member. Takes the page in a real Chromium, light and dark, when it shows tasks
that no member runs.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from docs.tools.pictures import Worker, rest
from streams_py import TopicSpec, create_topics
from tests.support.background import in_background
from tests.support.chromium import Chromium

_DOCS: Final = Path(__file__).resolve().parents[1]
_SIZE: Final = (1400, 1100)
_GRID: Final = "return document.querySelectorAll('#grid button.active').length === 8"
_WITHOUT_MEMBER: Final = "return document.querySelectorAll('#grid .nobody').length > 0"
_ALL_AGAIN: Final = (
    f"{_WITHOUT_MEMBER.replace('> 0', '=== 0')} && document.querySelectorAll('#grid button.active').length === 8"
)
_ATTEMPTS: Final = 5


def take(bootstrap: str, folder: Path) -> None:
    """Write both pictures, of the same seconds, into ``folder``. Needs an empty cluster."""
    settings: dict[str, Any] = {
        "application.id": "word-count",
        "bootstrap.servers": bootstrap,
        "assignment.events.level": "tasks",
        "commit.interval.ms": 2000,
    }
    create_topics(settings, TopicSpec("text-lines", 4), TopicSpec("word-counts", 4))
    with ExitStack() as stack:
        states = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(_fed(bootstrap))
        group: dict[str, Worker] = {}
        stack.callback(lambda: _end_all(group.values()))

        def start(name: str) -> None:
            group[name] = Worker(name, settings, states, 0.0, [])
            rest(group)

        for name in "AB":
            start(name)
        chromium = Chromium(Path(states) / "chromium", size=_SIZE)
        stack.callback(chromium.close)
        chromium.open(stack.enter_context(_served(bootstrap)))
        for attempt in range(_ATTEMPTS):
            start(f"C{attempt}")
            chromium.until(_GRID, "every task runs")
            group.pop(f"C{attempt}").end(kill=True)
            chromium.until(_WITHOUT_MEMBER, "tasks that no member runs")
            for name in ("light", "dark"):
                chromium.prefer(dark=name == "dark")
                chromium.picture(folder / f"dashboard-{name}.png")
            if chromium.run(_WITHOUT_MEMBER):
                return
            chromium.until(_ALL_AGAIN, "every task runs again")
    raise TimeoutError(f"the group was too fast for two pictures, {_ATTEMPTS} times")


def _end_all(workers: Iterable[Worker]) -> None:
    for worker in workers:
        worker.end(kill=False)


def _fed(bootstrap: str) -> AbstractContextManager[None]:
    """Lines of the pages themselves, some hundreds a second, until the context is left."""
    lines = [line for page in sorted(_DOCS.rglob("*.md")) for line in page.read_text(encoding="utf-8").splitlines()]

    def feed(ended: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        endless = itertools.cycle(lines)
        while not ended.wait(0.05):
            for line in itertools.islice(endless, 20):
                producer.produce("text-lines", line.encode())
            producer.poll(0)
        producer.flush(10)

    return in_background(feed)


@contextmanager
def _served(bootstrap: str) -> Iterator[str]:
    """The page's address."""
    command = [sys.executable, "-m", "streams_py", "dashboard", "-g", "word-count", "-b", bootstrap, "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().partition(" is shown at ")[2].split()[0]
        finally:
            process.terminate()


if __name__ == "__main__":
    take(sys.argv[1], _DOCS / "pictures")
