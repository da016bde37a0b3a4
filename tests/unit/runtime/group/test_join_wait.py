"""A member that waits for its group says for whom, and for how long at most."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.ports import GroupAdmin
from streams_py.ports.described_groups import DescribedGroup, DescribedMember
from streams_py.runtime.group.join_wait import JoinWait
from streams_py.state.directory.instances import lock_directory, unlock_directory
from streams_py.state.directory.member_record import (
    RECORD_FILE,
    LockIdentity,
    MemberRecord,
    RecordedMember,
    write_record,
)
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes")


class Group:
    def __init__(self, *members: str) -> None:
        self.members = members
        self.described = 0
        self.problem: Exception | None = None
        self.open = 0

    def connect(self) -> GroupAdmin:
        self.open += 1
        return cast("GroupAdmin", self)

    def find_group(self, group: str) -> DescribedGroup:
        self.described += 1
        if self.problem is not None:
            raise self.problem
        found = tuple(DescribedMember(member, None, "client", "/10.0.0.7", b"", b"") for member in self.members)
        return DescribedGroup(group, "PreparingRebalance", "consumer", "stream", found)

    def close(self) -> None:
        self.open -= 1


def stopped(folder: Path, *members: str, ago_s: float, **changes: object) -> Path:
    """Leave the record of an instance that stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_directory(str(folder))
    assert lock is not None
    found = tuple(RecordedMember(number, member) for number, member in enumerate(members))
    record = MemberRecord("app", "cluster", None, LockIdentity.of(lock.fileno()), found, stopped=True)
    write_record(str(folder), replace(record, **changes))  # type: ignore[arg-type]  # of any field
    unlock_directory(str(folder), lock)
    at = time.time() - ago_s
    os.utime(folder / RECORD_FILE, (at, at))
    return folder


def wait_of(group: Group, application: Path | None) -> JoinWait:
    return JoinWait(
        group.connect, "app", 45.0, lambda: {"own"}, lambda: None if application is None else str(application)
    )


def test_member_of_a_former_run_is_named_with_the_time_that_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stopped(tmp_path, "old", ago_s=1_000)
    stopped(tmp_path / "instance-2", "older", "gone", ago_s=-1_000)  # the clock was set back
    stopped(tmp_path / "instance-3", "another", ago_s=0, group="another")
    group = Group("own", "old", "older", "another")
    wait_of(group, tmp_path).report()
    assert "waiting for members old, older of a former run, up to 45 s" in caplog.text
    assert group.open == 0
    caplog.clear()
    group.members = ("own", "old")
    wait_of(group, tmp_path).report()
    assert "waiting for member old of a former run, up to 0 s" in caplog.text


@pytest.mark.parametrize("is_running", [False, True])
def test_members_without_a_record_of_their_end_are_named_with_their_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_running: bool
) -> None:
    caplog.set_level(logging.INFO)
    application = stopped(tmp_path, "a", ago_s=0) if is_running else None
    lock = lock_directory(str(tmp_path)) if is_running else None
    wait_of(Group("own", "a", "b\x1b", "c", "d"), application).report()
    if lock is not None:
        unlock_directory(str(tmp_path), lock)
    assert "the group has members a at /10.0.0.7, " in caplog.text
    assert " and 1 more; up to 45 s if one of them has died" in caplog.text
    assert "\x1b" not in caplog.text
    assert "former run" not in caplog.text


def test_group_without_other_members_needs_no_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wait_of(Group("own"), tmp_path).report()
    assert not caplog.records


def test_long_wait_is_reported_by_one_thread_and_a_short_one_is_not(tmp_path: Path) -> None:
    group = Group("own", "other")
    wait = wait_of(group, tmp_path)
    wait.note(0.0)
    wait.note(3.9)
    assert not [thread for thread in threading.enumerate() if thread.name == "join-wait"]
    for _ in range(3):
        wait.note(4.1)
    until(lambda: not wait._reporting.locked(), "the report")  # held until the report has ended
    assert group.described == 1


def test_group_that_cannot_be_described_costs_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    group.problem = BrokerUnavailableError("away")
    wait = wait_of(group, tmp_path)
    wait.note(5.0)
    until(lambda: not wait._reporting.locked(), "the report")  # held until the report has ended
    assert (group.described, group.open) == (1, 0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
