"""Global tables are restored in bulk: the state after a kill, and that nothing is lost at the end."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_py.errors import StateError
from streams_py.ports import BEGINNING
from streams_py.state.directory.checkpoint import read_checkpoint
from streams_py.state.disk import bulk_load
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.tasks.global_stores import GlobalStores
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreKind
from tests.support.state.global_stores import KEYS, PARTITIONS, opened, restore


def fold(end: int) -> dict[str, int]:
    """What both partitions have in the first ``end`` records of each."""
    keys = [(f"{partition.partition} {n * 577 % KEYS}", n) for partition in PARTITIONS for n in range(end)]
    return dict(keys)


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GlobalStores]:
    monkeypatch.setattr(bulk_load, "_LOGGED_RECORDS", 10)
    found, directory = opened(tmp_path)
    yield found
    found.close()
    directory.close()


def database_of(stores: GlobalStores) -> TaskDatabase:
    database = stores._database  # the stores do not say how it is being loaded
    assert database is not None
    return database


def test_positions_of_what_is_restored_in_bulk_are_noted_with_it(stores: GlobalStores, tmp_path: Path) -> None:
    for _ in range(3):
        for partition in PARTITIONS:
            restore(stores, partition, 20)
            stores.note_positions({partition: stores.restore_position(partition)})
    database = database_of(stores)
    assert database.mode.is_loading
    assert not database.is_logged
    stores.checkpoint(enforce=True)
    assert read_checkpoint(str(tmp_path / "app" / "global")) == {}
    while not stores.flush_restored():
        time.sleep(0.001)
    stores.attach(RecordContext(), None)
    assert not database.mode.is_loading
    assert database.positions() == dict.fromkeys(PARTITIONS, 60)
    stores.checkpoint(enforce=True)
    assert read_checkpoint(str(tmp_path / "app" / "global")) == dict.fromkeys(PARTITIONS, 60)
    for name in "st":
        assert {key: stored.value for key, stored in stores.store(name).all()} == fold(60)


def test_position_that_moved_without_records_is_noted_after_what_was_restored_in_bulk(stores: GlobalStores) -> None:
    for _ in range(3):
        restore(stores, PARTITIONS[0], 20)
    stores.note_positions({PARTITIONS[0]: 62})  # past the marker of a transaction
    assert database_of(stores).is_logged
    assert database_of(stores).positions() == {PARTITIONS[0]: 62}
    assert stores.restore_position(PARTITIONS[1]) == BEGINNING


FILLER = f"""
import random, sys
sys.path.insert(0, {str(Path(__file__).parents[4])!r})
from streams_py.state.disk import bulk_load, options
from tests.unit.state.tasks.test_global_stores import PARTITIONS, opened, restore

bulk_load._LOGGED_RECORDS = 1_000  # what comes after them is on the disk when RocksDB flushes
options._WRITE_BUFFER_BYTES = 128 << 10
stores, _ = opened(sys.argv[1])
draw = random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    for partition in PARTITIONS:
        restore(stores, partition, draw.choice((1, 10, 500)))
"""


def test_killed_process_leaves_what_its_topic_has_up_to_its_positions(tmp_path: Path) -> None:
    draw = random.Random(11)
    reached = [0, 0]
    for run in range(5):
        filler = subprocess.Popen(
            [sys.executable, "-c", FILLER, str(tmp_path), str(run)], stdout=subprocess.PIPE, text=True
        )
        assert filler.stdout is not None
        assert filler.stdout.readline() == "ready\n"
        try:
            filler.wait(draw.uniform(0.05, 0.6))
        except subprocess.TimeoutExpired:
            filler.send_signal(signal.SIGKILL)
        assert filler.wait() == -signal.SIGKILL
        filler.stdout.close()
        stores, directory = opened(tmp_path)
        positions = [max(0, stores.restore_position(partition)) for partition in PARTITIONS]
        expected = {
            f"{at.partition} {n * 577 % KEYS}": n
            for at, end in zip(PARTITIONS, positions, strict=True)
            for n in range(max(0, end - KEYS), end)
        }
        for name in "st":
            assert {key: stored.value for key, stored in stores.store(name).all()} == expected
        stores.close()
        directory.close()
        assert all(now >= before for now, before in zip(positions, reached, strict=True))
        reached = positions
    assert min(reached) > 0


@pytest.mark.parametrize("error", [OSError("the disk is gone"), SystemExit(3)], ids=repr)
def test_store_that_cannot_be_closed_keeps_nothing_else_open(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    stores, directory = opened(tmp_path)
    restore(stores, PARTITIONS[0], 20)
    stores.note_positions({PARTITIONS[0]: 20})
    monkeypatch.setattr(next(iter(stores._stores.values())), "close", fail)  # not its view for readers
    with pytest.raises((OSError, StateError), match=r"the disk is gone|SystemExit: 3"):
        stores.close()
    directory.close()
    again, directory = opened(tmp_path)  # no handle of its files is open
    assert again.restore_position(PARTITIONS[0]) == 20
    again.close(wipe=True)
    assert not Path(directory.global_path).exists()
    directory.close()


def test_store_that_is_declared_otherwise_is_filled_anew_and_what_it_had_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(folder: Path, kind: StoreKind) -> tuple[int, dict[str, int]]:
        """Return the position in the topic from which it continues, and its previous content."""
        stores, directory = opened(folder, kind)
        try:
            found = {key: getattr(value, "value", value) for key, value in stores.store("s").all()}
            position = stores.restore_position(PARTITIONS[0])
            if position == BEGINNING:
                restore(stores, PARTITIONS[0], 20)
                while not stores.flush_restored():
                    time.sleep(0.001)
                stores.note_positions({PARTITIONS[0]: stores.restore_position(PARTITIONS[0])})
            return position, found
        finally:
            stores.close()
            directory.close()

    content = {f"0 {number * 577 % KEYS}": number for number in range(20)}
    run(tmp_path, StoreKind.TIMESTAMPED_KEY_VALUE)
    assert run(tmp_path, StoreKind.KEY_VALUE) == (BEGINNING, {})
    assert run(tmp_path, StoreKind.KEY_VALUE) == (20, content)
    kept = tmp_path / "app" / "of-another-layout" / "global"
    assert caplog.text.count(f"is kept in {kept};") == 2
    kept.rename(tmp_path / "global")
    shutil.rmtree(tmp_path / "app" / "global")
    (tmp_path / "global").rename(tmp_path / "app" / "global")
    assert run(tmp_path, StoreKind.TIMESTAMPED_KEY_VALUE) == (20, content)
