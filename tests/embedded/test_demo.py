"""The demo, as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "examples.word_count.demo"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "input.txt"
    path.write_text("".join(f"the quick brown fox number {n % 97} jumps over the lazy dog\n" for n in range(6000)))
    return path


def start(*arguments: str, scratch: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(scratch), "COLUMNS": "100"}
    environment.pop("BOOTSTRAP", None)
    # The parent process may ignore Ctrl-C (`nohup ... &`), and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        [*DEMO, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def left_over(scratch: Path) -> list[str]:
    """Command lines of processes whose environment carries the demo's own scratch folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(scratch).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def wait_until_gone(scratch: Path, seconds: float) -> list[str]:
    limit = time.monotonic() + seconds
    while (found := left_over(scratch)) and time.monotonic() < limit:
        time.sleep(0.1)
    return found


def test_demo_counts_right_when_a_process_is_killed_and_comes_back(text: Path, short_tmp: Path) -> None:
    process = start(str(text), scratch=short_tmp)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert "killed (SIGKILL)" in out
    assert "equal: 106 different words, 66,000 in all" in out
    assert wait_until_gone(short_tmp, 60) == []


def test_demo_ends_quietly_when_interrupted(text: Path, short_tmp: Path) -> None:
    process = start(str(text), scratch=short_tmp)
    assert process.stdout is not None
    while "the first process starts" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 130, out
    assert "Traceback" not in out
    assert wait_until_gone(short_tmp, 60) == []


def test_demo_says_what_is_wrong_when_there_is_nothing_to_count(tmp_path: Path, short_tmp: Path) -> None:
    process = start(str(tmp_path / "missing.txt"), scratch=short_tmp)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "does not exist; give a text file or a folder" in " ".join(out.split())
