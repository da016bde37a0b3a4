"""Stores on disk whose declaration has changed so that their files cannot be read."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError
from streams_py.ports import BEGINNING
from streams_py.serdes import INT64, STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, key_value_store
from streams_py.topology.declare.window_stores import session_store, window_store
from streams_py.topology.declare.windows import TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder

TASK = TaskId(0, 0)
CHANGELOG = TopicPartition("app-s-changelog", 0)


def windows(retention_ms: int, size_ms: int = 10) -> StoreBuilder:
    return window_store("s", retention=retention_ms, size=size_ms, key=STRING, value=INT64)


def pairs(ttl: int | None = None) -> StoreBuilder:
    return key_value_store("s", key=STRING, value=INT64, ttl=ttl)


def opened(folder: Path, *declared: StoreBuilder) -> tuple[StateDirectory, TaskState]:
    directory = StateDirectory(str(folder), "app", warns_of_temporary=False)
    directory.open()
    state = TaskState(TASK, declared, StoreEnvironment(directory, "me"), application_id="app")
    try:
        state.open()
    except StateError:
        directory.close()
        raise
    state.attach(RecordContext(), None)
    return directory, state


def run(folder: Path, declared: StoreBuilder, put: Any = None, *, beside: StoreBuilder | None = None) -> list[Any]:
    """Open, put, commit as if up to offset 7, close.

    Returns the content of the store after opening, followed by the position from which a restore starts. ``beside``:
    another store of the task, to which the same entry is put.
    """
    builders = [declared] if beside is None else [declared, beside]
    directory, state = opened(folder, *builders)
    store: Any = state.store(declared.name)
    found = [*store.all(), state.restore_position(TopicPartition(f"app-{declared.name}-changelog", 0))]
    if put is not None:
        for builder in builders:
            filled: Any = state.store(builder.name)
            filled.put(*put)
        state.update_offsets(dict.fromkeys(state.changelog_partitions, 7))
        state.commit()
    state.close()
    directory.close()
    return found


def aside(folder: Path) -> Path:
    return folder / "app" / "of-another-layout"


def put_back(folder: Path, name: str = "0_0") -> Path:
    """A state directory where the task has what is kept under this name."""
    other = folder / f"with {name}"
    shutil.copytree(aside(folder) / name, other / "app" / "0_0")
    return other


@pytest.mark.parametrize(
    ("before", "put", "after"),
    [
        (windows(100), ("k", 1, 50), windows(100_000)),
        (windows(100), ("k", 1, 50), windows(100, size_ms=50)),
        (windows(100), ("k", 1, 50), session_store("s", retention=100, key=STRING, value=INT64)),
        (pairs(), ("k", 1), pairs(ttl=9)),
        (pairs(ttl=3_200), ("k", 1), pairs(ttl=1_600)),
    ],
    ids=["retention", "size", "kind", "time to live", "shorter time to live"],
)
def test_store_whose_files_are_laid_out_otherwise_starts_empty_and_is_restored(
    before: StoreBuilder, put: tuple[Any, ...], after: StoreBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(tmp_path, before, put) == [BEGINNING]
    as_before = run(tmp_path, before)
    with caplog.at_level(logging.WARNING):
        assert run(tmp_path, after) == [BEGINNING]
    [sentence] = [record.getMessage() for record in caplog.records if "starts empty" in record.getMessage()]
    assert sentence.startswith(f"store s in {tmp_path / 'app' / '0_0'} was stored as ")
    assert "it starts empty and is restored from its changelog topic. A copy of the old files is kept in" in sentence
    assert f" {aside(tmp_path) / '0_0'};" in sentence
    caplog.clear()
    assert run(tmp_path, after) == [BEGINNING]
    assert not caplog.records
    assert os.listdir(aside(tmp_path)) == ["0_0"]
    assert len(as_before) > 1
    assert run(put_back(tmp_path), before) == as_before


def test_store_without_changelog_is_kept_and_others_of_its_task_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def unlogged(ttl: int | None = None) -> StoreBuilder:
        return key_value_store("u", key=STRING, value=INT64, ttl=ttl, logging=False)

    run(tmp_path, unlogged(), ("k", 1), beside=pairs())
    assert run(tmp_path, unlogged(ttl=9), beside=pairs()) == [BEGINNING]
    assert "it starts empty, and has no changelog to restore from. A copy of the old files" in caplog.text
    assert run(tmp_path, pairs()) == [("k", 1), 8]
    back = put_back(tmp_path)
    assert run(back, unlogged()) == [("k", 1), BEGINNING]
    assert run(back, pairs()) == [("k", 1), 8]


def test_what_was_kept_before_is_not_replaced(tmp_path: Path) -> None:
    for number, declared in enumerate((pairs(), pairs(ttl=9), pairs())):
        run(tmp_path, declared, ("k", number))
    run(tmp_path, pairs(ttl=9))
    assert sorted(os.listdir(aside(tmp_path))) == ["0_0", "0_0.2", "0_0.3"]
    assert run(put_back(tmp_path, "0_0"), pairs()) == [("k", 0), 8]
    assert run(put_back(tmp_path, "0_0.2"), pairs(ttl=9)) == [("k", 1), 8]
    assert run(put_back(tmp_path, "0_0.3"), pairs()) == [("k", 2), 8]


def test_nothing_is_emptied_that_cannot_be_kept(tmp_path: Path) -> None:
    run(tmp_path, pairs(), ("k", 1))
    aside(tmp_path).write_text("in the way")
    with pytest.raises(StateError, match=r"0_0 has changed, .* cannot be kept in .*of-another-layout"):
        run(tmp_path, pairs(ttl=9))
    assert run(tmp_path, pairs()) == [("k", 1), 8]


def test_what_is_kept_is_no_task_and_goes_only_with_a_clean_up(tmp_path: Path) -> None:
    run(tmp_path, pairs(), ("k", 1))
    run(tmp_path, pairs(ttl=9))
    directory = StateDirectory(str(tmp_path), "app", warns_of_temporary=False)
    directory.open()
    assert directory.stored_tasks() == [TASK]
    assert directory.delete_unused(now_ms=10**15, delay_ms=0) == [TASK]
    assert os.listdir(aside(tmp_path)) == ["0_0"]
    directory.clean_up()
    assert not aside(tmp_path).exists()
    directory.close()


def drop_only(database: Any, name: str) -> None:
    database._database.drop_column_family(name)  # the first half of a step, before its process is killed


STEPS: list[tuple[Any, str, Any]] = [
    (TaskDatabase, "checkpoint", None),
    (TaskDatabase, "checkpoint", TaskDatabase.checkpoint),
    (TaskDatabase, "forget", TaskDatabase.forget),
    (TaskDatabase, "empty_family", None),
    (TaskDatabase, "empty_family", drop_only),
    (TaskDatabase, "empty_family", TaskDatabase.empty_family),
    (TaskDatabase, "note_layouts", None),
    (TaskDatabase, "note_layouts", TaskDatabase.note_layouts),
    (os, "rename", None),
    (os, "rename", os.rename),
]
"""Where the process is killed, the first time it comes there, and what is done before."""

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_layouts import STEPS, declared, run
from streams_py.state.disk import layouts

place, name, done = STEPS[int(sys.argv[3])]
begin = layouts.set_changed_aside

def die(*arguments):
    if done is not None:
        done(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

def begin_to_die(*arguments):
    setattr(place, name, die)
    begin(*arguments)

layouts.set_changed_aside = begin_to_die
s, u = declared(ttl=9)
run(Path(sys.argv[2]), s, beside=u)
"""


def declared(ttl: int | None = None) -> tuple[StoreBuilder, StoreBuilder]:
    """Two stores of a task, one of them without a changelog."""
    return pairs(ttl), key_value_store("u", key=STRING, value=INT64, ttl=ttl, logging=False)


def start_and_kill(folder: Path, step: int) -> None:
    s, u = declared()
    run(folder, s, ("k", 1), beside=u)
    words = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(folder), str(step)]
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


each_step = pytest.mark.parametrize(
    "step",
    range(len(STEPS)),
    ids=[f"{'before' if done is None else 'half' if done is drop_only else 'after'} {name}" for _, name, done in STEPS],
)


@each_step
def test_killed_at_any_step_it_is_kept_once(step: int, tmp_path: Path) -> None:
    start_and_kill(tmp_path, step)
    s, u = declared(ttl=9)
    assert run(tmp_path, s, beside=u) == [BEGINNING]
    assert run(tmp_path, u, beside=s) == [BEGINNING]
    assert os.listdir(aside(tmp_path)) == ["0_0"]
    back = put_back(tmp_path)
    s, u = declared()
    assert run(back, s, beside=u) == [("k", 1), 8]
    assert run(back, u, beside=s) == [("k", 1), BEGINNING]


@each_step
def test_killed_at_any_step_nothing_is_lost_when_the_former_program_runs_before_it_is_tried_again(
    step: int, tmp_path: Path
) -> None:
    start_and_kill(tmp_path, step)
    s, u = declared()
    run(tmp_path, s, ("l", 2), beside=u)
    assert ("l", 2) in run(tmp_path, u, beside=s)
    s, u = declared(ttl=9)
    assert run(tmp_path, s, beside=u) == [BEGINNING]
    names = sorted(os.listdir(aside(tmp_path)))
    assert names == ["0_0", "0_0.2", "0_0.3"][: len(names)]  # as it was at each change that came to its end
    kept = [run(put_back(tmp_path, name), declared()[1], beside=declared()[0])[:-1] for name in names]
    assert ("k", 1) in kept[0]
    assert ("l", 2) in kept[-1]


def test_store_that_is_declared_as_before_keeps_its_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, windows(100), ("k", 1, 50))
    *entries, position = run(tmp_path, windows(101))  # not long enough to need longer segments
    assert [(window.key, window.start, value) for window, value in entries] == [("k", 50, 1)]
    assert position == 8
    assert not caplog.records


def test_longer_grace_of_a_windowed_count_is_noticed(tmp_path: Path) -> None:
    def declared(grace_ms: int) -> StoreBuilder:
        builder = StreamsBuilder(key=STRING, value=INT64)
        grouped = builder.stream("in").group_by_key()
        grouped.windowed_by(TimeWindows.of(10, grace=grace_ms)).count(store="s")
        return builder.build().stores["s"]

    run(tmp_path, declared(0), ("k", (1, 50), 50))
    assert run(tmp_path, declared(3_600_000)) == [BEGINNING]
