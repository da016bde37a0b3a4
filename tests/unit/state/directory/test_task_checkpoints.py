"""The checkpoint file of a task: when it is written; and how long what it is of stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from streams_py.state.directory.checkpoint import read_checkpoint
from streams_py.state.directory.state_directory import StateDirectory
from tests.support.state.task_stores import DISK, SOURCE, TASK, Record, opened


def test_checkpoint_is_written_only_after_enough_records_when_not_enforced(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("streams_py.state.directory.checkpoint.time.monotonic", lambda: now[0])
    state = opened(directory)
    state.restore(DISK, [Record(6_000, "a", 1)])
    state.restore(SOURCE, [Record(4_000, "a", 1)])
    state.checkpoint(enforce=False)
    assert read_checkpoint(directory.task_path(TASK)) == {}
    state.update_offsets({SOURCE: 4_001})
    state.checkpoint(enforce=False)
    assert read_checkpoint(directory.task_path(TASK)) == {}  # not committed
    state.commit()
    state.checkpoint(enforce=False)
    assert read_checkpoint(directory.task_path(TASK)) == {DISK: 6_000, SOURCE: 4_001}
    state.update_offsets({DISK: 160_000})
    state.commit()
    state.checkpoint(enforce=False)
    assert read_checkpoint(directory.task_path(TASK))[DISK] == 6_000
    now[0] += 11
    state.checkpoint(enforce=False)
    assert read_checkpoint(directory.task_path(TASK))[DISK] == 160_000
    state.close()


def test_checkpoint_that_says_the_same_is_not_forced_to_the_disk_again(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written after a restore, while the task runs, and when it is closed."""
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    state.checkpoint(enforce=True)
    with monkeypatch.context() as patch:
        patch.setattr(
            "streams_py.state.directory.checkpoint.write_checkpoint", lambda *_: pytest.fail("it says the same")
        )
        state.checkpoint(enforce=True)
    state.restore(DISK, [Record(5, "a", 1)])
    state.checkpoint(enforce=True)
    assert read_checkpoint(directory.task_path(TASK))[DISK] == 5
    state.close()
    again = opened(directory)
    again.checkpoint(enforce=True)
    assert read_checkpoint(directory.task_path(TASK))[DISK] == 5
    again.close()


def test_processing_goes_on_with_a_warning_when_the_checkpoint_cannot_be_written(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    monkeypatch.setattr("streams_py.state.directory.checkpoint.write_checkpoint", refuse)
    state.checkpoint(enforce=True)
    assert "No space left" in caplog.text
    monkeypatch.undo()
    state.checkpoint(enforce=True)
    assert read_checkpoint(directory.task_path(TASK))[DISK] == 4
    state.close()


@pytest.mark.parametrize("ends", ["clean", "dirty"])
def test_state_stays_for_the_whole_delay_after_the_task_is_closed(directory: StateDirectory, ends: str) -> None:
    """Whatever was written last, and when."""
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    state.checkpoint(enforce=True)
    path = Path(directory.task_path(TASK))
    os.utime(path, (1_000, 1_000))
    if ends == "clean":
        state.checkpoint(enforce=True)  # it says the same
    state.close()
    now_ms = round(time.time() * 1000)
    assert directory.delete_unused(now_ms=now_ms, delay_ms=3_600_000) == []
    assert directory.delete_unused(now_ms=now_ms + 7_200_000, delay_ms=3_600_000) == [TASK]
