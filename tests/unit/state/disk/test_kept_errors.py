"""A stored error keeps the local variables of its traceback alive. The files must be closed all the same."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import StateError
from streams_py.state.disk import database as database_module
from streams_py.state.disk.database import TaskDatabase
from tests.support.state.counters import COUNTERS, count


def test_files_can_be_opened_again_while_somebody_keeps_the_error_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = TaskDatabase(str(tmp_path), ["a"])
    database.store("a").write(b"k", b"v")
    attempt = TaskDatabase._attempt  # every write passes it

    def fails(self: TaskDatabase, action: Callable[[], Any]) -> Any:
        def write() -> None:
            action()
            raise OSError(errno.ENOSPC, "no space left on device")

        return attempt(self, write)

    with monkeypatch.context() as patch:
        patch.setattr(TaskDatabase, "_attempt", fails)  # a full disk
        with pytest.raises(StateError) as kept:
            database.commit({TopicPartition("log", 0): 1})
    database.close()
    again = TaskDatabase(str(tmp_path), ["a"])  # a thread that replaces the failed one
    again.close()
    assert kept.value.__traceback__ is not None


def test_files_can_be_opened_again_while_somebody_keeps_the_error_of_opening_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = TaskDatabase(str(tmp_path), ["s"])
    count(database, 7)
    database.close()

    def fails(bundle: bytes) -> dict[bytes, bytes | None]:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(database_module, "unpacked", fails)
        with pytest.raises(StateError, match="input/output error") as kept:
            TaskDatabase(str(tmp_path), ["s"])
    again = TaskDatabase(str(tmp_path), ["s"])  # a thread that replaces the failed one
    assert list(again.store("s").scan(None, None)) == [(key, b"6") for key in COUNTERS]
    again.close()
    assert kept.value.__traceback__ is not None
