"""A process is killed at any moment: the disk has a committed state, with the position that belongs to it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

CHANGELOGS = [TopicPartition(f"app-{name}-changelog", 0) for name in "st"]
BUILDERS = [StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=True) for name in "st"]
KEYS = 997

WRITER = """
import random, sys
from streams_protocol.types import TaskId, TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

directory = StateDirectory(sys.argv[1], "app")
directory.open()
builders = [StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=True) for name in "st"]
state = TaskState(TaskId(0, 0), builders, StoreEnvironment(directory, "thread"), application_id="app")
state.open()
changelogs = [TopicPartition(f"app-{name}-changelog", 0) for name in "st"]
number = max(0, *(state.restore_position(changelog) for changelog in changelogs))
state.attach(RecordContext(), None)
stores = [state.store(name) for name in "st"]
draw = random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    for _ in range(draw.choice((1, 10, 1000))):
        for store in stores:
            store.put_value(str(number % 997), number, 1)
        number += 1
    state.update_offsets(dict.fromkeys(changelogs, number - 1))
    state.commit()
    state.checkpoint(enforce=False)
"""

RESTORER = """
import random, sys
from streams_protocol.types import TaskId, TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk import bulk_load, options
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

bulk_load._LOGGED_RECORDS = 1_000  # what comes after them is on the disk when RocksDB flushes
options._WRITE_BUFFER_BYTES = 128 << 10
directory = StateDirectory(sys.argv[1], "app")
directory.open()
builders = [StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=True) for name in "st"]
state = TaskState(TaskId(0, 0), builders, StoreEnvironment(directory, "thread"), application_id="app")
state.open()
changelogs = [TopicPartition(f"app-{name}-changelog", 0) for name in "st"]
draw = random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    count = draw.choice((1, 10, 500))
    for changelog in changelogs:
        first = max(0, state.restore_position(changelog))
        state.restore(changelog, [
            MemoryRecord(changelog.topic, 0, n, str(n % 997).encode(), n.to_bytes(8, "big"), timestamp_ms=1)
            for n in range(first, first + count)
        ], in_bulk=True)
"""


@pytest.mark.parametrize("program", [WRITER, RESTORER], ids=["processing", "restoring"])
def test_killed_process_leaves_the_fold_of_the_changelog_up_to_its_position(program: str, tmp_path: Path) -> None:
    draw = random.Random(11)
    reached = [-1, -1]
    for run in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(run)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        try:
            writer.wait(draw.uniform(0.05, 0.6))
        except subprocess.TimeoutExpired:
            writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        positions = positions_of_what_is_there(tmp_path)
        assert all(now >= before for now, before in zip(positions, reached, strict=True))
        assert program is RESTORER or len(set(positions)) == 1, "of both stores, which were written together"
        reached = positions
    assert min(reached) > 0


def positions_of_what_is_there(path: Path) -> list[int]:
    directory = StateDirectory(str(path), "app")
    directory.open()
    state = TaskState(TaskId(0, 0), BUILDERS, StoreEnvironment(directory, "thread"), application_id="app")
    state.open()
    positions = [state.changelog_offsets.get(changelog, -1) for changelog in CHANGELOGS]
    for builder, position in zip(BUILDERS, positions, strict=True):
        fold = {str(number % KEYS): number for number in range(max(0, position - KEYS + 1), position + 1)}
        assert {key: stored.value for key, stored in state.store(builder.name).all()} == fold
    assert (directory.stored_offset_sum(TaskId(0, 0)) or 0) <= sum(positions)
    state.close()
    directory.close()
    return positions
