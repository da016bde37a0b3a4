"""The record of group members: its format, who may have written it, and when it proves that members have ended."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streams_py.state.directory import member_record
from streams_py.state.directory.instances import lock_directory, unlock_directory
from streams_py.state.directory.member_record import (
    RECORD_FILE,
    LockIdentity,
    MemberRecord,
    RecordedMember,
    mark_stopped,
    read_record,
    write_record,
)
from streams_py.system.process_proof import ProcessIdentity

HERE = ProcessIdentity.of(os.getpid())
MEMBERS = (RecordedMember(1, "a-1", 7), RecordedMember(2, "a-2", -1, "static-2"))


A_LOCK = LockIdentity(1, 2)


def a_record(lock: LockIdentity = A_LOCK, process: ProcessIdentity | None = HERE) -> MemberRecord:
    return MemberRecord("app", "cluster", process, lock, MEMBERS, ("old",))


def test_record_is_read_as_it_was_written_and_private(tmp_path: Path) -> None:
    assert read_record(str(tmp_path)) is None
    write_record(str(tmp_path), a_record())
    assert read_record(str(tmp_path)) == a_record()
    assert stat.S_IMODE((tmp_path / RECORD_FILE).stat().st_mode) == 0o600
    mark_stopped(str(tmp_path), a_record())
    assert read_record(str(tmp_path)) == replace(a_record(), stopped=True)


def test_static_members_are_never_among_those_to_remove() -> None:
    assert a_record().dynamic_ids() == ("old", "a-1")


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def act(content: bytes) -> bytes:
        found = json.loads(content)
        change(found)
        return json.dumps(found).encode()

    return act


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: b"\xff" + content,
        lambda content: b"[" * 100_000,
        lambda content: content + b" " * (256 << 10),
        lambda content: b"[]",
        lambda content: b"null",
        changed(lambda found: found.update(version=2)),
        changed(lambda found: found.update(version=True)),
        changed(lambda found: found.pop("group")),
        changed(lambda found: found.update(group="x" * 2_000)),
        changed(lambda found: found.update(clusterId=None)),
        changed(lambda found: found.update(stopped="yes")),
        changed(lambda found: found.update(process=[1])),
        changed(lambda found: found["process"].update(pid=0)),
        changed(lambda found: found["process"].update(pid=-1)),
        changed(lambda found: found["process"].update(startTicks=1.5)),
        changed(lambda found: found["lock"].update(inode=1 << 70)),
        changed(lambda found: found.update(members={})),
        changed(lambda found: found.update(members=[{}])),
        changed(lambda found: found.update(members=found["members"] * 1_000)),
        changed(lambda found: found["members"][0].update(memberId="a\nforged log line")),
        changed(lambda found: found["members"][0].update(memberId=5)),
        changed(lambda found: found.update(former=[None])),
    ],
)
def test_damaged_or_hostile_record_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    write_record(str(tmp_path), a_record())
    file = tmp_path / RECORD_FILE
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"."):
        read_record(str(tmp_path))


def test_record_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    write_record(str(tmp_path), a_record())
    file = tmp_path / RECORD_FILE
    file.chmod(0o640)
    with pytest.raises(OSError, match="not a private file"):
        read_record(str(tmp_path))
    file.chmod(0o600)
    file.rename(tmp_path / "real")
    file.symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="symbolic link"):
        read_record(str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_record_of_another_user_is_refused(tmp_path: Path) -> None:
    write_record(str(tmp_path), a_record())
    os.chown(tmp_path / RECORD_FILE, 65_534, -1)
    with pytest.raises(OSError, match="belongs to"):
        read_record(str(tmp_path))


# -- proof ---------------------------------------------------------------------------------------------------------


def killed_process() -> ProcessIdentity:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = ProcessIdentity.of(process.pid)
        process.kill()
    assert found is not None
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes")
def test_members_have_ended_with_their_process_or_by_its_own_word(tmp_path: Path) -> None:
    lock = lock_directory(str(tmp_path))
    assert lock is not None
    assert HERE is not None
    file, own = lock.fileno(), LockIdentity.of(lock.fileno())
    dead, other_host = killed_process(), replace(killed_process(), boot_id="another")
    assert not a_record(own).has_ended(file)  # this process lives, although its lock is in the reader's hands
    assert a_record(own, dead).has_ended(file)
    assert a_record(LockIdentity(0, 0), dead).has_ended(file)
    assert not a_record(own, other_host).has_ended(file)
    assert not a_record(own, None).has_ended(file)
    assert replace(a_record(own, other_host), stopped=True).has_ended(file)
    unlock_directory(str(tmp_path), lock)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes")
def test_released_lock_proves_the_end_in_another_namespace_unless_the_directory_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_record, "has_reliable_locks", lambda file: True)
    assert HERE is not None
    elsewhere = replace(HERE, pid_namespace=HERE.pid_namespace + 1)
    (tmp_path / "one").mkdir()
    lock = lock_directory(str(tmp_path / "one"))
    assert lock is not None
    record = a_record(LockIdentity.of(lock.fileno()), elsewhere)
    assert record.has_ended(lock.fileno())
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    of_copy = lock_directory(str(tmp_path / "copy"))
    assert of_copy is not None
    assert not record.has_ended(of_copy.fileno())
    monkeypatch.setattr(member_record, "has_reliable_locks", lambda file: False)  # a network file system
    assert not record.has_ended(lock.fileno())
    unlock_directory(str(tmp_path / "one"), lock)
    unlock_directory(str(tmp_path / "copy"), of_copy)
