"""The types that mypy infers for a user's program."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SAMPLE = HERE / "typing_sample.py"
ROOT = HERE.parents[2]


def expected() -> dict[int, str]:
    """Line number -> type without module names, or ``error``."""
    wanted = {}
    open_call = 0
    for number, line in enumerate(SAMPLE.read_text("utf-8").splitlines(), 1):
        if line == "reveal_type(":
            open_call = number
        if found := re.search(r"  # (error|K.*|dict.*|Topology)$", line):
            wanted[open_call + 1 if line.startswith(")") else number] = found[1]
    return wanted


def test_types_follow_the_data_along_chains(tmp_path: Path) -> None:
    sample = shutil.copy(SAMPLE, tmp_path)  # mypy reads it again at a new path; its imports may be cached
    command = [sys.executable, "-m", "mypy", sample]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    seen: dict[int, str] = {}
    for line in run.stdout.splitlines():
        if found := re.match(r".*typing_sample\.py:(\d+): (note: Revealed type is \"(.*)\"|error: .*)$", line):
            seen.setdefault(int(found[1]), re.sub(r"(?:\w+\.)+(?=\w)", "", found[3]) if found[3] else "error")
    assert len(seen) > 35, run.stdout + run.stderr
    assert seen == expected()
