"""A task whose database is damaged: its files are set aside, and it starts with an empty database."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError
from streams_py.state.disk.beginning import database_of
from streams_py.state.disk.database import TaskDatabase

TASK, AT = TaskId(0, 3), TopicPartition("app-s-changelog", 3)


def filled(folder: Path) -> Path:
    database = database_of(TASK, str(folder), {"s": ""}, None)
    database.commit({AT: 7})
    database.close()
    return folder / "rocksdb"


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*"])
@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"garbage"], ids=["empty", "zeros", "garbage"])
def test_damaged_database_is_set_aside_with_one_warning(
    tmp_path: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # one copy is kept
        (damaged,) = filled(tmp_path).glob(name)
        damaged.write_bytes(content)
        caplog.clear()
        database = database_of(TASK, str(tmp_path), {"s": ""}, None)
        assert database.positions() == {}
        database.close()
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == 1
        assert "task 0_3: its store files are damaged" in warned[0]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["rocksdb", "rocksdb-damaged"]


def test_database_that_is_in_use_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    open_one = TaskDatabase(str(tmp_path), ["s"])
    try:
        with pytest.raises(StateError):
            database_of(TASK, str(tmp_path), {"s": ""}, None)
    finally:
        open_one.close()
    assert [path.name for path in tmp_path.iterdir()] == ["rocksdb"]
