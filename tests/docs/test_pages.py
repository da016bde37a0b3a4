"""Every page of the documentation does what it says, and its site is whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.blocks import CODE, Block, parts_of
from tests.support.embedded_clusters import wait_for_end

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = sorted(page.relative_to(_ROOT).as_posix() for page in (_ROOT / "docs").rglob("*.md"))
_COMMANDS = ("$ ", "streams-py ", "pip ", "python ", "python3 ", "docker ", "curl ", "kubectl ")

BLOCKS_NOT_RUN = {
    "docs/backtest.md": 3,
    "docs/compatibility.md": 1,
    "docs/connect.md": 4,
    "docs/dashboard.md": 1,
    "docs/metrics.md": 1,
    "docs/features.md": 4,
    "docs/guides/from-faust.md": 1,
    "docs/guides/kubernetes.md": 1,
    "docs/installation.md": 2,
    "docs/operations.md": 1,
    "docs/spark-history.md": 4,
    "docs/telemetry.md": 5,
    "docs/tutorial.md": 2,
}
"""Number of blocks of each page that do not run. Each has its reason next to it; add new ones here."""


def _blocks(page: str) -> list[Block]:
    return [part for part in parts_of(_ROOT / page) if isinstance(part, Block)]


@pytest.mark.parametrize("page", _PAGES)
def test_page_does_what_it_says(page: str) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with tempfile.TemporaryDirectory(prefix="d") as folder:  # short: the embedded cluster has a socket there
        environment = {**os.environ, "PATH": path, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'protocol'}", "TMPDIR": folder}
        (Path(folder) / "reader").mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "tests.docs.run_page", str(_ROOT / page)],
            cwd=Path(folder) / "reader",
            env={**environment, "XDG_RUNTIME_DIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=360,
            check=False,
        )
        wait_for_end(Path(folder))  # else a server writes where the folder is being deleted
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", _PAGES)
def test_blocks_that_do_not_run_say_why_and_are_counted(page: str) -> None:
    not_run = [block for block in _blocks(page) if block.not_run]
    assert [block.line for block in not_run if len(block.not_run.split()) < 3] == [], "a reason is a few words"
    assert len(not_run) == BLOCKS_NOT_RUN.get(page, 0)


@pytest.mark.parametrize("page", _PAGES)
def test_commands_stand_in_blocks_that_run(page: str) -> None:
    pictures = [block for block in _blocks(page) if block.language not in CODE and not block.not_run]
    before = {part.line + 2 for part in parts_of(_ROOT / page) if not isinstance(part, Block) and part.text == "output"}
    commands = [block.line for block in pictures if block.code.startswith(_COMMANDS) and block.line - 1 not in before]
    assert commands == [], "write ```sh"


class _Resources(HTMLParser):
    """Resources that a browser loads for a page automatically."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name in ("src", "srcset", "data", "poster"):
            self.found.add(given.get(name) or "")
        if tag == "link" and given.get("rel") != "canonical":
            self.found.add(given.get("href") or "")


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(_PAGES)
    for page in pages:
        resources = _Resources()
        text = page.read_text(encoding="utf-8")
        assert not re.search("<!-- (test|not run|output|terminal)", text), page
        resources.feed(text)
        assert resources.found - {""}, page
        assert {url for url in resources.found if re.match(r"(https?:)?//", url)} == set(), page


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    for page in _PAGES:
        address = page.removeprefix("docs/").removesuffix(".md") + "/"
        if page != "docs/index.md":
            assert (site / address / "index.html").exists()
            assert f'href="{address}"' in front
