"""Instances on one host watch one another: real processes that hold locks, die, freeze and stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.ports import GroupAdmin
from streams_py.runtime.group.dead_members import DeadMembers
from streams_py.runtime.group.sibling_watch import SiblingWatch
from streams_py.state.directory.instances import lock_directory, unlock_directory
from streams_py.state.directory.member_record import RECORD_FILE, mark_stopped, read_record
from streams_py.system.process_proof import Life
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes")

INSTANCE = """
import os, sys
from streams_py.state.directory.instances import lock_directory
from streams_py.state.directory.member_record import LockIdentity, MemberRecord, RecordedMember, write_record
from streams_py.system.process_proof import ProcessIdentity
folder, member, cluster = sys.argv[1:]
lock = lock_directory(folder)
process = ProcessIdentity.of(os.getpid())
members = (RecordedMember(1, member),)
write_record(folder, MemberRecord("app", cluster, process, LockIdentity.of(lock.fileno()), members))
print("ready", flush=True)
sys.stdin.read()
"""


class Group:
    def __init__(self) -> None:
        self.removed: list[str] = []
        self.away = 0

    def connect(self) -> GroupAdmin:
        return cast("GroupAdmin", self)

    def remove_dead_members(self, group: str, member_ids: Collection[str], reason: str) -> frozenset[str]:
        if self.away:
            self.away -= 1
            raise BrokerUnavailableError("away")
        self.removed += member_ids
        return frozenset(member_ids)

    def close(self) -> None:
        pass


class Host:
    """The directories of one application on a host, an instance in each but the second, and a watch in the second."""

    def __init__(self, folder: Path) -> None:
        self.application = folder / "app"
        self.own = self.application / "instance-2"
        self.own.mkdir(parents=True)
        lock = lock_directory(str(self.own))
        assert lock is not None
        self._lock = lock
        self.group = Group()
        self.instances: list[subprocess.Popen[bytes]] = []
        self.watch = SiblingWatch(
            str(self.application),
            SimpleNamespace(directory=str(self.own), cluster_id="cluster"),
            "app",
            DeadMembers(self.group.connect, "app"),
            lambda: self.ends.append("end"),
        )
        self.ends: list[str] = []

    def start(self, member: str, number: int = 1, cluster: str = "cluster") -> subprocess.Popen[bytes]:
        folder = self.application if number == 1 else self.application / f"instance-{number}"
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-c", INSTANCE, str(folder), member, cluster]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.instances.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def turn(self) -> list[str]:
        """Look once, remove who has died, and return the members removed so far."""
        for directory, record in self.watch._look().items():  # what its thread does in each round
            self.watch._remove(directory, record)  # see above
        return self.group.removed

    def close(self) -> None:
        for process in self.instances:
            process.kill()
            process.communicate()
        unlock_directory(str(self.own), self._lock)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def test_members_of_a_killed_sibling_are_removed_once(host: Host) -> None:
    one, three = host.start("one"), host.start("three", 3)
    assert host.turn() == []
    assert host.ends == []
    one.kill()
    one.wait()
    assert host.turn() == ["one"]
    assert host.turn() == ["one"]
    assert host.ends == ["end"]
    three.kill()
    three.wait()
    assert host.turn() == ["one", "three"]


def test_sibling_that_died_before_the_watch_began_is_removed_too(host: Host) -> None:
    one = host.start("one")
    one.kill()
    one.wait()
    assert host.turn() == ["one"]


def test_frozen_sibling_is_not_removed(host: Host) -> None:
    host.start("one").send_signal(signal.SIGSTOP)
    assert host.turn() == []


def test_sibling_without_its_lock_is_not_removed_while_it_lives(host: Host) -> None:
    host.start("one")
    (host.application / ".lock").unlink()
    (host.application / ".lock").touch(0o600)
    assert host.turn() == []


def test_sibling_that_stopped_cleanly_is_not_removed(host: Host) -> None:
    one = host.start("one")
    host.turn()
    record = read_record(str(host.application))
    assert record is not None
    mark_stopped(str(host.application), record)
    one.kill()
    one.wait()
    assert host.turn() == []
    assert host.ends == ["end"]  # it may return soon


@pytest.mark.parametrize("change", [lambda file: file.chmod(0o644), lambda file: file.write_bytes(b"{}")])
def test_record_that_does_not_count_removes_nothing(host: Host, change: Callable[[Path], object]) -> None:
    one = host.start("one")
    one.kill()
    one.wait()
    change(host.application / RECORD_FILE)
    assert host.turn() == []


def test_sibling_of_another_cluster_is_ignored(host: Host) -> None:
    one = host.start("one", cluster="another")
    one.kill()
    one.wait()
    assert host.turn() == []


def test_restarted_sibling_is_left_to_itself(host: Host) -> None:
    one = host.start("one")
    host.turn()
    one.kill()
    one.wait()
    died = host.watch._look()  # the instance returns between the look and the removal
    host.start("again")
    for directory, record in died.items():
        host.watch._remove(directory, record)  # see above
    assert host.group.removed == []


def test_removal_is_repeated_while_no_broker_answers(host: Host) -> None:
    one = host.start("one")
    one.kill()
    one.wait()
    host.group.away = 1
    assert host.turn() == []
    assert host.turn() == ["one"]


def test_look_does_not_release_or_take_a_lock(host: Host) -> None:
    one = host.start("one")
    host.turn()
    assert lock_directory(str(host.application)) is None
    record = read_record(str(host.application))
    assert record is not None
    assert record.process is not None
    assert record.process.life() is Life.ALIVE
    one.kill()
    one.wait()
    host.turn()
    lock = lock_directory(str(host.application))
    assert lock is not None  # a starting process finds it free
    assert host.turn() == ["one"]  # it is locked by this process: not touched
    with subprocess.Popen(
        [sys.executable, "-c", INSTANCE, str(host.application), "x", "cluster"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    ) as rival:
        assert rival.wait() != 0  # the look did not release this process's lock
    unlock_directory(str(host.application), lock)


def test_thread_notices_a_death_and_stops(host: Host) -> None:
    one = host.start("one")
    host.watch.start()
    one.kill()
    until(lambda: host.group.removed == ["one"], "the members to be removed")
    host.watch.close()
