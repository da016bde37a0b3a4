"""A program that waits for its client closes in order on a signal: the README's program, and one with its own block."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_README = next(
    block
    for block in re.findall(r"^```python\n(.*?)^```$", (_ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.M)
    if "word-counts" in block
)
_RUN = "KafkaStreams(builder.build(), config).run()"
_WITH = """with KafkaStreams(builder.build(), config) as streams:
        streams.wait()
        print("waited")"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def _started(
    started: list[subprocess.Popen[str]], folder: Path, ending: str
) -> tuple[subprocess.Popen[str], list[str]]:
    """README's application with another ending, once it is RUNNING, and what it has logged so far."""
    assert _RUN in _README
    path = folder / "app.py"
    # As from a terminal: tests that run in the background of a shell would start programs that ignore SIGINT.
    beginning = "import logging, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    path.write_text(f"{beginning}logging.basicConfig(level=logging.INFO)\n{_README.replace(_RUN, ending)}")
    process = subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A unique name, because all processes that use the same name share the cluster.
        env=os.environ | {"BOOTSTRAP": f"embedded://end-{uuid.uuid4().hex[:12]}", "TMPDIR": str(folder)},
    )
    started.append(process)
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if "-> RUNNING" in line:
            return process, seen
    raise AssertionError("".join(seen))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("ending", [_RUN, _WITH], ids=["run", "with"])
def test_program_ends_with_0_and_no_trace_when_it_is_told_to(
    program: list[subprocess.Popen[str]], short_tmp: Path, ending: str, number: signal.Signals
) -> None:
    process, _ = _started(program, short_tmp, ending)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert "PENDING_SHUTDOWN -> NOT_RUNNING" in errors
    assert ("waited" in out) is (ending == _WITH)


def test_first_start_warns_of_nothing_and_says_which_tasks_it_got(
    program: list[subprocess.Popen[str]], short_tmp: Path
) -> None:
    process, seen = _started(program, short_tmp, _RUN)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    output = "".join(seen) + errors
    (rebalance,) = [line for line in output.splitlines() if "rebalance of" in line]
    tasks = ", ".join(f"{subtopology}_{partition}" for subtopology in (0, 1) for partition in range(4))
    assert rebalance.endswith(f": gained {tasks}; lost none; kept none; standbys none")
    assert "WARNING" not in output.partition("-> PENDING_SHUTDOWN")[0]
    assert "INFO:kafka." not in output
