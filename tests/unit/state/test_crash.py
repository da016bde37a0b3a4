"""A process is killed: what the checkpoint claims is on disk."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from streams_protocol.types import TaskId, TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.directory import StateDirectory
from streams_py.state.task_state import TaskState
from streams_py.topology.stores import StoreBuilder, StoreKind

CHANGELOG = TopicPartition("app-s-changelog", 0)
BUILDER = StoreBuilder("s", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=True)

KILLED_AFTER_A_CHECKPOINT = """
import os, signal, sys
from streams_protocol.types import TaskId, TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.directory import StateDirectory
from streams_py.state.task_state import TaskState
from streams_py.topology.nodes import RecordContext
from streams_py.topology.stores import StoreBuilder, StoreKind

directory = StateDirectory(sys.argv[1], "app")
directory.open()
builder = StoreBuilder("s", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=True)
state = TaskState(TaskId(0, 0), [builder], application_id="app", directory=directory, owner="thread")
state.open()
changelog = TopicPartition("app-s-changelog", 0)
offset = -1

def log(*change):
    global offset
    offset += 1

state.attach(RecordContext(), lambda topic, partition: log)
store = state.store("s")
for round in range(1, 4):
    for i in range(1000):
        store.put_value(f"{i:04}", round, round)
    if round < 3:
        state.update_offsets({changelog: offset})
        state.checkpoint(enforce=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_stores_contain_what_the_checkpoint_claims_when_the_process_is_killed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED_AFTER_A_CHECKPOINT, str(tmp_path)], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    directory = StateDirectory(str(tmp_path), "app")
    directory.open()
    assert directory.stored_tasks() == [TaskId(0, 0)]
    assert directory.stored_offset_sum(TaskId(0, 0)) == 1999
    state = TaskState(TaskId(0, 0), [BUILDER], application_id="app", directory=directory, owner="thread")
    state.open()
    assert state.restore_position(CHANGELOG) == 2000
    entries = list(state.store("s").all())
    assert [key for key, _ in entries] == [f"{i:04}" for i in range(1000)]
    assert all(stored.value >= 2 for _, stored in entries)  # what came later may or may not be there
    state.close()
    directory.close()
