"""What README has a newcomer do: start the application, put lines in, read counts, look at topics."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from streams_py import KafkaStreams, State, StreamsBuilder
from streams_py.adapters.confluent.embedded.cluster import EmbeddedCluster
from streams_py.serdes import STRING
from tests.support.waiting import PATIENCE_S

_README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
_BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", _README, re.DOTALL | re.M)
_APPLICATION = next(block for block in _BLOCKS if "KafkaStreams(" in block)
_COMMANDS = next(block for block in _BLOCKS if "streams-py produce" in block).splitlines()


@contextmanager
def running(arguments: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process of ours, until the end of the block."""
    process = subprocess.Popen([sys.executable, *arguments], env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_three_commands_put_lines_in_and_show_the_counts(short_tmp: Path) -> None:
    path = short_tmp / "app.py"
    path.write_text(_APPLICATION)
    env = os.environ | {"BOOTSTRAP": f"embedded://first-{uuid.uuid4().hex[:12]}", "TMPDIR": str(short_tmp)}
    produce, consume, topics = (["-m", "streams_py", *shlex.split(command)[1:]] for command in _COMMANDS)
    with ExitStack() as programs:
        programs.enter_context(running([str(path)], env))
        while subprocess.run([sys.executable, *produce], env=env, check=False, capture_output=True).returncode:
            pass  # the application has not made its topics yet
        reading = programs.enter_context(running(consume, env))
        assert reading.stdout is not None
        counts: dict[str, str] = {}
        while (counts.get("kafka"), counts.get("hello")) != ("2", "1"):
            word, _, count = reading.stdout.readline().rstrip().partition("\t")
            counts[word] = count
        shown = subprocess.run([sys.executable, *topics], env=env, check=True, capture_output=True, text=True).stdout
    assert {"text-lines", "word-counts"} <= {line.split()[0] for line in shown.splitlines()}


@pytest.mark.parametrize("threads", [0, 1])
def test_start_without_stream_threads_is_a_warning(
    short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, threads: int
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_tmp))
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("no-threads-in").to("no-threads-out")
    with EmbeddedCluster.join() as cluster:
        cluster.create_topic("no-threads-in", 1)
        config = {
            "application.id": "no-threads",
            "bootstrap.servers": "embedded",
            "state.dir": str(tmp_path / "state"),
            "num.stream.threads": threads,
        }
        with KafkaStreams(builder.build(), config) as streams:
            assert streams.wait_until(State.RUNNING, PATIENCE_S)
    warned = [record for record in caplog.records if "num.stream.threads is 0" in record.getMessage()]
    assert len(warned) == (threads == 0)
