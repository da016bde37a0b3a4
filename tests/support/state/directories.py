"""State directories of tests, and their content."""

from __future__ import annotations

from pathlib import Path

from streams_protocol.types import TaskId
from streams_py.state.directory.state_directory import StateDirectory

T0, T1, T2 = TaskId(0, 0), TaskId(0, 1), TaskId(1, 10)


def store_something(directory: StateDirectory, task_id: TaskId) -> Path:
    path = Path(directory.prepare_task(task_id))
    (path / "rocksdb").mkdir()
    return path


def opened(state_dir: Path, name: str | None = None) -> StateDirectory:
    directory = StateDirectory(str(state_dir), "app", name=name, warns_of_temporary=False)
    directory.open()
    return directory
