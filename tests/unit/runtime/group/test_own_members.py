"""Members on record: a restarted instance removes the members of its predecessor, and only those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import GroupAdmin
from streams_py.ports.described_groups import DescribedGroup, DescribedMember
from streams_py.runtime.group.dead_members import DeadMembers
from streams_py.runtime.group.own_members import OwnMembers
from streams_py.state.directory.instances import lock_directory, unlock_directory
from streams_py.state.directory.member_record import (
    RECORD_FILE,
    LockIdentity,
    MemberRecord,
    RecordedMember,
    read_record,
    write_record,
)
from streams_py.state.directory.run_directory import LockedFolder, lock_run_directory, unlock_run_directory
from streams_py.system.process_proof import ProcessIdentity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes")


class Group:
    """The group of one application, as its coordinator knows it."""

    def __init__(self, *members: str) -> None:
        self.members = set(members)
        self.requests: list[tuple[str, ...]] = []
        self.problem: Exception | None = None
        self.open = 0

    def connect(self) -> GroupAdmin:
        self.open += 1
        return cast("GroupAdmin", self)

    def remove_dead_members(self, group: str, member_ids: Collection[str], reason: str) -> frozenset[str]:
        assert group == "app"
        self.requests.append(tuple(member_ids))
        if self.problem is not None:
            raise self.problem
        removed = self.members & set(member_ids)
        self.members -= removed
        return frozenset(removed)

    def find_group(self, group: str) -> DescribedGroup | None:
        assert group == "app"
        members = tuple(DescribedMember(member, None, "client", "/host", b"", b"") for member in sorted(self.members))
        return DescribedGroup(group, "Stable", "consumer", "stream", members) if members else None

    def close(self) -> None:
        self.open -= 1


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LockedFolder]:
    lock = lock_directory(str(tmp_path))
    assert lock is not None
    yield LockedFolder(str(tmp_path), lock, str(tmp_path))
    unlock_directory(str(tmp_path), lock)


def killed() -> ProcessIdentity:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = ProcessIdentity.of(process.pid)
        process.kill()
    assert found is not None
    return found


def leave_record(folder: LockedFolder, by: ProcessIdentity | None, **changes: object) -> None:
    record = MemberRecord(
        "app",
        "cluster",
        by,
        LockIdentity.of(folder.lock.fileno()),
        (RecordedMember(1, "old-1"), RecordedMember(2, "old-2", 5, "static-2")),
        ("older",),
    )
    write_record(folder.path, replace(record, **changes))  # type: ignore[arg-type]  # of any field


def own(
    folder: LockedFolder | None,
    group: Group,
    *,
    cluster: Callable[[], str | None] = lambda: "cluster",
    instance_id: str | None = None,
) -> OwnMembers:
    return OwnMembers(lambda: folder, "app", cluster, DeadMembers(group.connect, "app"), instance_id=instance_id)


def test_removal_is_reported_with_the_process_and_the_members_that_the_group_had() -> None:
    group = Group("m-1", "m-2", "other")
    reported: list[tuple[int | None, list[str]]] = []
    dead = DeadMembers(group.connect, "app", lambda pid, members: reported.append((pid, sorted(members))))
    assert dead.remove(["m-1", "m-2", "gone"], "process 4711 of this host", pid=4711)
    assert dead.remove(["m-1", "m-2"], "process 4711 of this host", pid=4711)
    assert reported == [(4711, ["m-1", "m-2"])]


@pytest.mark.parametrize(
    ("members", "done", "left"),
    [
        (["dead", "other"], True, {"other"}),
        (["dead"], False, {"dead"}),
        (["other"], True, {"other"}),
        ([], True, set()),
    ],
)
def test_last_members_of_a_group_are_spared_until_it_has_others(members: list[str], done: bool, left: set[str]) -> None:
    group = Group(*members)
    dead = DeadMembers(group.connect, "app", spares_last=True)
    assert dead.remove(["dead", "gone"], "process 4711 of this host") is done
    assert group.members == left
    assert group.open == 0


def join(members: OwnMembers, thread: int = 1, member_id: str = "new-1") -> None:
    """Send JoinGroup, which waits for the group."""
    members.joining(thread, member_id, -1)
    members.remove_predecessor()


def test_restarted_instance_removes_its_dead_predecessor_once_it_joins(folder: LockedFolder) -> None:
    group = Group("old-1", "old-2", "older", "other")
    leave_record(folder, killed())
    members = own(folder, group)
    members.remove_predecessor()
    members.joining(1, "", -1)
    members.joining(1, "new-1", -1)
    assert group.requests == []  # an empty group would wait for its initial rebalance delay
    members.remove_predecessor()
    members.remove_predecessor()
    join(members, 2, "new-2")
    assert group.requests == [("older", "old-1")]
    assert group.members == {"old-2", "other"}  # static members stay
    assert group.open == 0


def test_id_is_on_record_before_the_join_and_stays_until_it_changes(folder: LockedFolder) -> None:
    members = own(folder, Group())
    members.joining(1, "", -1)
    assert read_record(folder.path) is None
    members.joining(1, "new-1", -1)
    found = read_record(folder.path)
    assert found is not None
    assert (found.group, found.cluster_id, found.stopped) == ("app", "cluster", False)
    assert found.members == (RecordedMember(1, "new-1", -1),)
    assert found.process == ProcessIdentity.of(os.getpid())
    written = os.stat(Path(folder.path) / RECORD_FILE).st_ino
    members.joining(1, "new-1", 8)
    assert os.stat(Path(folder.path) / RECORD_FILE).st_ino == written  # not rewritten in every rebalance
    members.joining(1, "newer-1", 9)
    members.joining(2, "new-2", 9)
    found = read_record(folder.path)
    assert found is not None
    assert [member.member_id for member in found.members] == ["newer-1", "new-2"]
    members.close()
    found = read_record(folder.path)
    assert found is not None
    assert found.stopped


def test_members_of_a_closed_instance_are_removed_at_the_next_start(folder: LockedFolder) -> None:
    first = own(folder, Group())
    first.joining(1, "new-1", -1)
    group = Group("new-1")
    join(own(folder, group), 1, "")
    assert group.requests == []  # the process lives and has not said that it stopped
    first.close()
    join(own(folder, group))
    assert group.members == set()


def test_frozen_process_is_never_evicted(folder: LockedFolder) -> None:
    group = Group("old-1")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.send_signal(signal.SIGSTOP)
        leave_record(folder, ProcessIdentity.of(process.pid))
        join(own(folder, group))
        process.kill()
    assert (group.requests, group.members) == ([], {"old-1"})


@pytest.mark.parametrize(
    "changes",
    [
        {"group": "another"},
        {"cluster_id": "another"},
        {"process": None},
        {"members": (RecordedMember(1, "old-1", 5, "static-1"),), "former": ()},
    ],
)
def test_record_of_something_else_evicts_nothing(folder: LockedFolder, changes: dict[str, object]) -> None:
    group = Group("old-1")
    leave_record(folder, killed(), **changes)
    join(own(folder, group))
    assert (group.requests, group.members) == ([], {"old-1"})


def test_damaged_record_is_ignored_with_a_warning_and_replaced(
    folder: LockedFolder, caplog: pytest.LogCaptureFixture
) -> None:
    Path(folder.path, RECORD_FILE).write_bytes(b"{")
    Path(folder.path, RECORD_FILE).chmod(0o600)
    group = Group("old-1")
    join(own(folder, group))
    assert group.requests == []
    assert f"ignoring the record of group members in {folder.path}" in caplog.text
    assert read_record(folder.path) is not None


def test_removal_that_no_broker_answers_is_repeated_and_stays_on_record(folder: LockedFolder) -> None:
    group = Group("old-1", "older")
    leave_record(folder, killed())
    group.problem = BrokerUnavailableError("away")
    members = own(folder, group)
    join(members)
    assert former_ids(folder) == ("older", "old-1")
    group.problem = None
    members.remove_predecessor()
    assert group.members == set()
    assert former_ids(folder) == ()


def test_former_members_that_are_not_removed_stay_on_record_when_the_instance_closes(folder: LockedFolder) -> None:
    leave_record(folder, killed())
    members = own(folder, Group("old-1"))
    members.joining(1, "new-1", -1)
    members.close()
    members.remove_predecessor()
    assert former_ids(folder) == ("older", "old-1")


def former_ids(folder: LockedFolder) -> tuple[str, ...]:
    found = read_record(folder.path)
    assert found is not None
    return found.former


@pytest.mark.parametrize("problem", [StreamsError("no right READ on the group"), RuntimeError("a bug")])
def test_removal_that_is_refused_does_not_keep_the_instance_from_joining(
    folder: LockedFolder, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group("old-1")
    leave_record(folder, killed())
    group.problem = problem
    members = own(folder, group)
    join(members)
    members.remove_predecessor()
    assert len(group.requests) == 1
    assert str(problem) in caplog.text


def test_nothing_is_on_record_while_the_cluster_is_unknown(folder: LockedFolder) -> None:
    def away() -> str:
        raise BrokerUnavailableError("away")

    group = Group("old-1")
    leave_record(folder, killed())
    join(own(folder, group, cluster=away))
    assert group.requests == []
    found = read_record(folder.path)
    assert found is not None
    assert found.members[0].member_id == "old-1"


def test_disk_that_is_full_costs_a_warning(folder: LockedFolder, caplog: pytest.LogCaptureFixture) -> None:
    Path(folder.path, RECORD_FILE).mkdir()
    members = own(folder, Group())
    members.joining(1, "new-1", -1)
    assert "the group members of this instance are not on record" in caplog.text
    members.close()


def test_static_members_are_recorded_as_such(folder: LockedFolder) -> None:
    members = own(folder, Group(), instance_id="me")
    members.joining(3, "id-3", -1)
    found = read_record(folder.path)
    assert found is not None
    assert found.members == (RecordedMember(3, "id-3", -1, "me-3"),)


def test_instance_without_a_directory_works(caplog: pytest.LogCaptureFixture) -> None:
    members = own(None, Group())
    members.joining(1, "new-1", -1)
    members.close()
    assert not caplog.records


def test_instances_without_stores_have_directories_of_their_own(tmp_path: Path) -> None:
    one, two = (lock_run_directory(str(tmp_path / "state"), "app") for _ in range(2))
    assert one is not None
    assert two is not None
    assert [Path(found.path).name for found in (one, two)] == ["app", "instance-2"]
    unlock_run_directory(one)
    again = lock_run_directory(str(tmp_path / "state"), "app")
    assert again is not None
    assert again.path == one.path
    unlock_run_directory(again)
    unlock_run_directory(two)


def test_directory_that_cannot_be_used_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert lock_run_directory(str(tmp_path / "file"), "app") is None
