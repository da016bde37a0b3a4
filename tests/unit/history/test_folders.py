"""Temporary folders of tasks and runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from streams_py.history.folders import TemporaryFolder

_HOLDER = """
import sys
from streams_py.history.folders import TemporaryFolder
folder = TemporaryFolder(sys.argv[1])
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    left = Path(holder.stdout.readline().strip())
    (left / "stage-0").mkdir()
    other = tmp_path / "streams-py-history.txt"
    other.write_text("not a folder of ours")
    first = TemporaryFolder(str(tmp_path))
    assert left.is_dir()
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    second = TemporaryFolder(str(tmp_path))
    assert not left.exists()
    assert first.path.is_dir()
    for folder in (first, second, second):
        folder.remove()
    assert list(tmp_path.iterdir()) == [other]
