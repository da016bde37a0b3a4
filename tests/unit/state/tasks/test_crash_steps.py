"""A process is killed at each step of flushing restored records to disk, and of writing to the write-ahead log.

The next process finds positions that are never ahead of the data, and ends with the fold of the changelog.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk import bulk_load
from streams_py.state.disk.bulk_load import BulkLoad
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

CHANGELOGS = [TopicPartition(f"app-{name}-changelog", 0) for name in "st"]
KEYS, REMOVES_EVERY = 97, 5
LOGGED, REPLAYED, END = 300, 1_000, 1_500
"""Offsets: up to the first the processes restore through the log, up to the second past it; the log has more."""


def changelog(partition: TopicPartition, first: int, end: int) -> list[MemoryRecord]:
    """Keys that come again and again, and every fifth record removes one."""
    return [
        MemoryRecord(
            partition.topic,
            partition.partition,
            offset,
            str(offset % KEYS).encode(),
            None if offset % REMOVES_EVERY == 0 else offset.to_bytes(8, "big"),
            timestamp_ms=1,
        )
        for offset in range(first, end)
    ]


def fold(end: int) -> dict[str, int]:
    """What the changelog's records below ``end`` leave."""
    found: dict[str, int] = {}
    for offset in range(end):
        found.pop(str(offset % KEYS), None)
        if offset % REMOVES_EVERY:
            found[str(offset % KEYS)] = offset
    return found


def opened(path: Path) -> tuple[StateDirectory, TaskState]:
    directory = StateDirectory(str(path), "app")
    directory.open()
    builders = [StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=True) for name in "st"]
    state = TaskState(TaskId(0, 0), builders, StoreEnvironment(directory, "thread"), application_id="app")
    state.open()
    return directory, state


def content(state: TaskState, store: str) -> dict[str, int]:
    return {key: stored.value for key, stored in state.store(store).all()}


RESTORER = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_crash_steps import CHANGELOGS, LOGGED, REPLAYED, changelog, opened
from streams_py.state.disk import bulk_load
from streams_py.state.disk.database import TaskDatabase

bulk_load._LOGGED_RECORDS = 2 * LOGGED
attempt, steps = TaskDatabase._attempt, int(sys.argv[3])
directory, state = opened(Path(sys.argv[2]))
for first, end in ((0, LOGGED), (LOGGED, REPLAYED)):
    for partition in CHANGELOGS:
        state.restore(partition, changelog(partition, first, end), in_bulk=True)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def step_by_step(self, action):
    global steps
    if not steps:
        die()
    steps -= 1
    return attempt(self, action)

TaskDatabase._attempt = step_by_step
while not state.flush_restored():
    time.sleep(0.001)
die()
"""


def run_until_it_is_killed(program: str, *arguments: object) -> None:
    words = [sys.executable, "-c", program, str(Path(__file__).parent), *map(str, arguments)]
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.parametrize("steps", range(4), ids=["nothing", "first-store", "both-stores", "positions"])
def test_killed_between_the_flushes_that_end_a_restoration(steps: int, tmp_path: Path) -> None:
    run_until_it_is_killed(RESTORER, tmp_path, steps)
    directory, state = opened(tmp_path)
    for number, (partition, name) in enumerate(zip(CHANGELOGS, "st", strict=True)):
        position = state.restore_position(partition)
        assert position == (REPLAYED if steps == 3 else LOGGED)
        assert content(state, name) == fold(REPLAYED if number < steps else LOGGED)
        state.restore(partition, changelog(partition, position, END), in_bulk=True)
        assert content(state, name) == fold(END)
    state.close()
    directory.close()


WRITER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_crash_steps import CHANGELOGS, bundled_beside_restored
database = bundled_beside_restored(Path(sys.argv[2]))
step = sys.argv[3]
if step == "flushed":
    database.flush()
    step = sys.argv[4]
if step == "write_out":
    database.write_out(database.store("s"))
elif step == "drop_bundles":
    database.drop_bundles(database.store("s"))
elif step == "forget":
    database.forget(CHANGELOGS[:1])
os.kill(os.getpid(), signal.SIGKILL)
"""

MANY = bulk_load._LOGGED_RECORDS + 1  # the first count that is loaded past the log
"""More than go through the write-ahead log."""
COUNTS = {str(number).encode(): b"2" for number in range(100)}


def bundled_beside_restored(path: Path) -> TaskDatabase:
    """A database in which store s has a bundle, and store t was restored past the log since."""
    database = TaskDatabase(str(path), "st")
    for value in (b"1", b"2"):  # the second one overwrites, so it becomes a bundle
        for key in COUNTS:
            database.store("s").write(key, value)
        database.commit({CHANGELOGS[0]: int(value)})
    assert database.store("s").bundle_keys
    database.commit({CHANGELOGS[1]: 0})
    BulkLoad(database).restore(
        lambda: database.store("t").write_batch([b"k"], [b"v"]), {CHANGELOGS[1]: 9}, in_bulk=MANY
    )
    assert not database.is_logged
    return database


@pytest.mark.parametrize("is_flushed", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("step", ["nothing", "write_out", "drop_bundles", "forget"])
def test_killed_after_a_write_to_the_log_beside_what_was_restored_past_it(
    step: str, is_flushed: bool, tmp_path: Path
) -> None:
    steps: Sequence[str] = ["flushed", step] if is_flushed else [step]
    run_until_it_is_killed(WRITER, tmp_path, *steps)
    database = TaskDatabase(str(tmp_path), "st")
    positions = {CHANGELOGS[0]: 2, CHANGELOGS[1]: 9 if is_flushed else 0}
    if step == "forget":
        del positions[CHANGELOGS[0]]
    assert database.positions() == positions
    counts = dict.fromkeys(COUNTS, b"1") if step == "drop_bundles" else COUNTS
    assert dict(database.store("s").scan(None, None)) == counts
    assert dict(database.store("t").scan(None, None)) == ({b"k": b"v"} if is_flushed else {})
    database.close()
