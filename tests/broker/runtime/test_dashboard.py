"""``streams-py dashboard`` on a real group, in a real browser."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams_py.cli.connecting import connected
from tests.support.broker.kit import Application, text
from tests.support.chromium import MISSING, Chromium

OWNERS = """return [...document.querySelectorAll('#grid tbody tr')].map((row) =>
    row.querySelector('button.active')?.getAttribute('aria-label').split(' ')[0] ?? null)"""


class Page:
    """The command, and a browser that shows its page."""

    def __init__(self, app: Application, folder: Path) -> None:
        command = [sys.executable, "-m", "streams_py", "dashboard", "-g", app.id, "-b", app.broker.bootstrap, "-p", "0"]
        # A process that a shell starts in the background ignores Ctrl-C, and so do its children.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        signal.signal(signal.SIGINT, before)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.chromium = Chromium(folder / "chromedriver.log")
        self.chromium.open(self.said.partition(" is shown at ")[2].split()[0])

    def end(self) -> int:
        """Stop the command as Ctrl-C does. Returns the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)

    def close(self) -> None:
        self.chromium.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def open_page(tmp_path: Path) -> Iterator[Callable[[Application], Page]]:
    pages: list[Page] = []

    def make(app: Application) -> Page:
        pages.append(Page(app, tmp_path))
        return pages[-1]

    yield make
    for page in pages:
        page.close()


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_killed_member_is_gone_from_the_page_as_soon_as_the_group_knows(
    application: Callable[..., Application], open_page: Callable[[Application], Page]
) -> None:
    app = application(num_standby_replicas=1, **{"assignment.events.level": "tasks"})
    first = app.start("first")
    app.await_shared(first)
    second = app.start("second")
    app.feed(text(2_000))
    app.await_shared(first, second)
    app.await_caught_up()
    app.until(lambda: first.standby and second.standby, "standbys on both")

    page = open_page(app)
    chromium = page.chromium
    chromium.until(
        f"{OWNERS.replace('return', 'const all =', 1)}; return all.length === 8 && !all.includes(null)", "grid"
    )
    assert set(chromium.run(OWNERS)) == {"A1", "B1"}
    chromium.until("return document.querySelectorAll('#rebalances tbody tr').length > 0", "rebalances from the events")
    assert "member joined" in chromium.text()
    chromium.click("#grid tbody button")
    chromium.until("return document.getElementById('reason').textContent.includes('rebalance now')", "a reason")

    second.kill()
    with connected(app.broker.bootstrap, None, "test") as cluster:
        while len(cluster.groups.describe_group(app.id).members) > 1:
            time.sleep(0.02)
    chromium.until("return document.querySelectorAll('#members tbody tr').length === 1", "one member on the page")
    chromium.until(
        f"{OWNERS.replace('return', 'const all =', 1)}; return new Set(all).size === 1 && all[0]", "one owner"
    )
    assert chromium.run("return document.querySelectorAll('#moves tbody tr').length") >= 4
    assert chromium.complaints() == []
    assert page.end() == 0
