"""Snapshots: an empty disk is filled from the newest one that can be used, and from no other."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.state.snapshots import CHANGELOG, TASK, Machine

pytest.importorskip("fsspec")

from streams_py import KafkaStreams
from streams_py.errors import ConfigError, LockError, SnapshotError
from streams_py.ports import OffsetAndMetadata
from streams_py.state.snapshots import snapshots as snapshots_module
from streams_py.state.snapshots.manifest import Manifest, SnapshotFile, SnapshotOf
from streams_py.state.snapshots.snapshots import ChangelogNow
from streams_py.state.snapshots.storage import TaskSnapshots, hash_of, open_storage
from streams_py.topology.declare.nodes import RecordContext
from tests.support.runtime.world import World, counting
from tests.support.waiting import PATIENCE_S, until

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "snapshots.md").read_text(encoding="utf-8")


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Makes machines with an empty disk."""
    numbers = iter(range(100))
    return lambda **options: Machine(tmp_path / f"machine-{next(numbers)}", **options)


def test_empty_disk_is_filled_from_the_newest_snapshot(machine: Callable[..., Machine]) -> None:
    first = machine().open().restore(0, 9).upload().restore(10, 19).upload()
    first.restore(20, 29)  # not uploaded
    first.close()
    second = machine().open()
    assert second.position == 20
    assert [second.get(n) for n in (0, 19, 20)] == ["value-0", "value-19", None]
    second.restore(20, 29)
    assert second.get(25) == "value-25"
    second.close()


def test_disk_that_has_state_is_left_alone(machine: Callable[..., Machine]) -> None:
    first = machine().open().restore(0, 9).upload().restore(10, 19)
    first.state.close()
    assert first.open().position == 20
    first.close()


def test_nothing_is_uploaded_twice_and_old_snapshots_go(machine: Callable[..., Machine]) -> None:
    one = machine().open().restore(0, 9).upload()
    assert one.snapshots.upload_all() == 0  # nothing has moved
    for number in range(1, 5):
        one.restore(10 * number, 10 * number + 9).upload()
    assert len(one.manifests()) == 2
    needed = {file.sha256 for path in one.manifests() for file in Manifest.decode(path.read_bytes()).files.values()}
    assert {path.name for path in one.files()} == needed
    assert not list(one.folder.rglob("snapshot-*"))
    one.close()
    assert one.snapshots.upload_all() == 0


@pytest.mark.parametrize("other", [{"ttl": 1_000}, {"cluster": "other"}])
def test_snapshots_of_another_topology_or_cluster_are_left_alone(
    machine: Callable[..., Machine], other: dict[str, Any]
) -> None:
    machine().open().restore(0, 9).upload().restore(10, 19).upload().close()
    two = machine(**other).open()
    for last in (9, 19, 29):
        two.restore(last - 9, last).upload()
    two.close()
    three = machine().open()
    assert three.position == 20
    assert three.get(19) == "value-19"
    assert len(three.manifests()) == 4  # the newest two of both
    three.close()


def test_hash_that_was_taken_while_a_task_closed_is_not_one_of_the_files_it_has_later(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a newly created database may have the same names and inode numbers."""
    one = machine().open().restore(0, 9)
    hashed: list[str] = []
    database, layout = one.state._database, one.state._disk_layouts  # what the state passes to `opened`
    assert database is not None

    def hash_and_close(path: str) -> SnapshotFile:
        found = hash_of(path)
        if path.endswith(".sst"):
            if not hashed:
                one.snapshots.closing(TASK)
                one.snapshots.opened(TASK, database, layout, {CHANGELOG})
            hashed.append(Path(path).name)
        return found

    monkeypatch.setattr(snapshots_module, "hash_of", hash_and_close)
    one.upload()
    first = list(hashed)
    one.restore(10, 19).upload()
    assert first
    assert hashed[: len(first)] == hashed[len(first) : 2 * len(first)]
    one.restore(20, 29).upload()
    assert hashed.count(first[0]) == 2
    one.close()


def test_standby_uploads_nothing(machine: Callable[..., Machine]) -> None:
    one = machine().open().restore(0, 9)
    one.state.attach(RecordContext(), None)
    assert one.snapshots.upload_all() == 0
    one.close()


def _cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _changed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [_cut_off, _changed, Path.unlink])
@pytest.mark.parametrize("what", ["manifest", "file"])
def test_damaged_snapshot_is_passed_over_for_the_one_before(
    machine: Callable[..., Machine], damage: Callable[[Path], None], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = machine().open().restore(0, 9).upload()
    before = {path.name for path in one.files()}
    one.restore(10, 19).upload()
    one.close()
    newest = Manifest.decode(one.manifests()[-1].read_bytes())
    only = next(
        path for path in one.files() if path.name not in before and path.stat().st_size
    )  # needed by the newest alone
    assert only.name in {file.sha256 for file in newest.files.values()}
    damage(one.manifests()[-1] if what == "manifest" else only)
    two = machine().open()
    assert two.position == 10
    assert (two.get(9), two.get(10)) == ("value-9", None)
    if (damage, what) != (Path.unlink, "manifest"):
        assert ".json: its" in caplog.text
    two.close()


def test_what_came_of_a_snapshot_that_is_not_whole_is_removed(machine: Callable[..., Machine]) -> None:
    one = machine().open().restore(0, 9).upload()
    one.close()
    last = max(Manifest.decode(one.manifests()[-1].read_bytes()).files.items())[1]  # fetched after the others
    next(path for path in one.files() if path.name == last.sha256).unlink()
    two = machine().open()
    assert two.restore(0, 9).position == 10
    assert not list(two.folder.rglob("snapshot-*"))
    two.close()


def test_snapshot_that_is_deleted_meanwhile_is_passed_over_for_another(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task's owner keeps the newest ones only, also while somebody fetches."""
    machine().open().restore(0, 9).upload().close()
    names = TaskSnapshots.names
    monkeypatch.setattr(TaskSnapshots, "names", lambda self: ["999-deleted.json", *names(self)])
    two = machine().open()
    assert two.position == 10
    assert "skipping snapshot 999-deleted.json" in caplog.text
    two.close()


def test_hashes_of_files_that_are_gone_are_forgotten(machine: Callable[..., Machine]) -> None:
    one = machine().open().restore(0, 9).upload()
    (opened,) = one.snapshots._open.values()  # RocksDB decides when it deletes a file
    opened.hashes["000001.sst", 1] = SnapshotFile("0" * 64, 1)
    before = opened.hashes.keys() - {("000001.sst", 1)}
    one.restore(10, 19).upload()
    assert before < opened.hashes.keys()
    assert ("000001.sst", 1) not in opened.hashes
    one.close()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cluster": "other"}, "it belongs to cluster c, not to other"),
        ({"store": "others"}, "store 'names' is .* in the snapshot, but missing in this topology"),
        ({"end": 5}, "it is at offset 10 of app-names-changelog-1, which ends at 5: this is a different changelog"),
    ],
)
def test_snapshot_of_something_else_is_refused_in_one_sentence(
    machine: Callable[..., Machine], options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine().open().restore(0, 9).upload().close()
    two = machine(**options).open()
    assert re.search(f"skipping snapshot .*: {reason}", caplog.text)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert two.position < 0  # from the beginning
    two.close()


def test_snapshot_from_before_the_changelogs_beginning_is_refused(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture
) -> None:
    machine().open().restore(0, 9).upload().close()
    two = machine()
    two.bounds[CHANGELOG] = ChangelogNow(11, 20)
    assert two.open().position < 0
    assert "which now starts at 11: the snapshot is too old" in caplog.text
    two.close()


def test_snapshot_of_a_changelog_that_was_created_anew_is_refused(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture
) -> None:
    one = machine().open()
    assert one.state.is_of(CHANGELOG, "first")
    one.restore(0, 9).upload().close()
    two = machine()
    two.bounds[CHANGELOG] = ChangelogNow(0, 50, "second")
    assert two.open().position < 0
    assert "topic app-names-changelog was deleted and created again since" in caplog.text
    two.close()
    three = machine()
    three.bounds[CHANGELOG] = ChangelogNow(0, 50, "first")
    assert three.open().position == 10
    assert not three.state.is_of(CHANGELOG, "second")  # what is in the files is known there, too
    three.close()


def test_manifest_of_somebody_else_cannot_name_files_outside(tmp_path: Path) -> None:
    of = SnapshotOf("app", None, "0_1", {})
    for name in ("../../etc/passwd", "/etc/passwd", "", ".", "a/b"):
        with pytest.raises(SnapshotError, match="it has a file with the invalid name"):
            Manifest.decode(Manifest(of, {}, {name: SnapshotFile("0" * 64, 1)}).encode())
    with pytest.raises(SnapshotError, match="is not a valid SHA-256"):
        Manifest.decode(Manifest(of, {}, {"a": SnapshotFile("../x", 1)}).encode())
    for data in (b"", b"[]", b"{}", b'{"sha256": 1, "snapshot": 2}', b"\xff"):
        with pytest.raises(SnapshotError):
            Manifest.decode(data)


class _NoWait(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        raise AssertionError("the other tasks of the thread wait with it")


def test_task_waits_for_a_slow_snapshot_without_holding_its_thread(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine().open().restore(0, 9).upload().close()
    two = machine()
    storage = two.storage
    released = threading.Event()

    def slow(remote: str, local: str, **options: Any) -> None:
        assert released.wait(PATIENCE_S)
        storage.get_file(remote, local, **options)

    patched = SimpleNamespace(
        **{name: getattr(storage, name) for name in ("ls", "size", "cat_file", "exists", "invalidate_cache")},
        get_file=slow,
    )
    two.use(patched)
    monkeypatch.setattr(snapshots_module, "threading", SimpleNamespace(Event=_NoWait, Thread=threading.Thread))
    with pytest.raises(LockError, match="task 0_1 waits for its snapshot"):
        two.state.open()
    released.set()
    assert two.open().position == 10
    two.close()


def test_place_that_does_not_answer_means_to_replay(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture
) -> None:
    one = machine()
    one.place.write_text("no folder")
    one.open().restore(0, 9)
    assert one.snapshots.upload_all() == 0
    assert "uploading a snapshot failed, retrying later" in caplog.text
    one.place.unlink()
    assert one.snapshots.upload_all() == 1
    one.close()


_KILLED = """
import sys
from pathlib import Path
from tests.unit.state.snapshots.test_snapshots import Machine
one = Machine(Path(sys.argv[1]), end=1 << 40).open().restore(0, 9).upload().restore(10, 19)
storage, root = one.snapshots._storage
put = storage.put_file
def slow(local, remote, **options):
    put(local, remote, **options)
    print("uploading", flush=True)
    sys.stdin.read()
storage.put_file = slow
one.snapshots.upload_all()
"""


def test_process_killed_while_it_uploads_leaves_the_snapshot_before(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path / "killed")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[4],
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "uploading\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    two = machine().open()
    assert two.position == 10
    two.restore(10, 29).upload()  # files of the interrupted upload do no harm
    two.close()
    assert machine().open().position == 30
    again = Machine(tmp_path / "killed")  # its own disk is better than any snapshot, and is cleaned
    assert again.open().position == 20
    assert not list(again.folder.rglob("snapshot-*"))
    again.close()


def test_address_of_no_use_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"state.snapshot.store = 'nothing://x' cannot be used"):
        open_storage("nothing://x")
    config = {"application.id": "a", "bootstrap.servers": "127.0.0.1:1", "state.snapshot.store": "nothing://x"}
    with pytest.raises(ConfigError, match=r"state.snapshot.store = 'nothing://x' cannot be used"):
        KafkaStreams(counting(), config)


def test_place_for_snapshots_is_called_useless_when_nothing_is_on_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"application.id": "a", "bootstrap.servers": "127.0.0.1:1", "dsl.store.suppliers.class": "in_memory"}
    KafkaStreams(counting(), {**config, "state.snapshot.store": tmp_path.as_uri()}).close()
    assert "state.snapshot.store has no effect: this topology has no store on disk" in caplog.messages


def test_page_about_snapshots_describes_a_client_that_can_be_made(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"topology": counting()}
    exec(compile(block, "snapshots.md", "exec"), names)
    assert names["streams"].config.state_snapshot_store == "file:///srv/snapshots"
    assert names["streams"].close()


def test_client_with_an_empty_disk_starts_from_what_another_one_uploaded(tmp_path: Path) -> None:
    from tests.support.runtime.world import Steps, task, tp

    world = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    settings: dict[str, Any] = {
        "dsl.store.suppliers.class": "rocksdb",
        "state.snapshot.store": (tmp_path / "place").as_uri(),
    }
    for partition in (0, 1):
        for number in range(20):
            count = (number + 1).to_bytes(8, "big")
            world.log.produce("app-counts-changelog", count, b"old-%d" % partition, partition, None, 1, None)
    both = {task("0_0"): [tp("in-0")], task("0_1"): [tp("in-1")]}
    world.committed[tp("in-0")] = world.committed[tp("in-1")] = OffsetAndMetadata(0)
    one = Steps(world, counting(), tmp_path / "one", **settings)
    one.membership.round(both)

    def has_started(steps: Steps) -> bool:
        world.clock.advance(20_000)
        steps.turn()
        return set(steps.tasks.values()) == {"RUNNING"}

    until(lambda: has_started(one), "both tasks to run")
    snapshots: Any = one.instance.snapshots
    assert snapshots.upload_all() == 2
    one.close()
    one.instance.close()
    shutil.rmtree(tmp_path / "one")
    two = Steps(world, counting(), tmp_path / "two", **settings)
    two.membership.round(both)
    until(lambda: has_started(two), "both tasks to run")
    assert two.updater.metrics["restore-records-total"] == 0
    store: Any = two.parts.table.shown[0].stores.store("counts")
    assert store.get("old-0").value == 20
    two.close()
    two.instance.close()
