"""Members whose process has ended on this host, as ``streams-py inspect`` shows them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from streams_py.cli.groups.group_tables import render, to_json
from streams_py.cli.groups.inspecting import _view  # the command would need a broker
from streams_py.inspection.ended_processes import EndedProcess, ended_processes
from streams_py.state.directory.member_record import RECORD_FILE, mark_stopped, read_record
from tests.support.inspection.groups import GROUP, FakeCluster, rebalanced, said, topics

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes")

INSTANCE = """
import os, sys
from streams_py.state.directory.instances import lock_directory
from streams_py.state.directory.member_record import LockIdentity, MemberRecord, RecordedMember, write_record
from streams_py.system.process_proof import ProcessIdentity

folder, *ids = sys.argv[1:]
lock = lock_directory(folder)
members = tuple(RecordedMember(n, id, -1, "i-" + id if id.startswith("s") else None) for n, id in enumerate(ids))
process = ProcessIdentity.of(os.getpid())
write_record(folder, MemberRecord("app", "cluster", process, LockIdentity.of(lock.fileno()), members, ("former",)))
print("ready", flush=True)
sys.stdin.read()
"""


class Instances:
    """Processes of the application "app" on this host."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = str(state_dir)
        self.application = state_dir / "app"
        self.application.mkdir(mode=0o700)
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *ids: str) -> subprocess.Popen[bytes]:
        number = len(self._started) + 1
        folder = self.application if number == 1 else self.application / f"instance-{number}"
        folder.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", INSTANCE, str(folder), *ids], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def ended(self, *present: str, group: str = "app", cluster_id: str | None = "cluster") -> tuple[EndedProcess, ...]:
        return ended_processes(group, cluster_id, present, [self.state_dir])

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Instances]:
    made = Instances(tmp_path)
    yield made
    made.close()


def die(process: subprocess.Popen[bytes]) -> int:
    process.kill()
    process.wait()
    return process.pid


def test_killed_process_is_shown_with_the_members_that_the_group_still_has(instances: Instances) -> None:
    first, _, frozen = instances.start("m-1", "m-2", "s-1"), instances.start("m-3"), instances.start("m-4")
    frozen.send_signal(signal.SIGSTOP)
    everybody = ("m-1", "m-3", "m-4", "s-1", "other", "former")
    assert instances.ended(*everybody) == ()
    pid = die(first)
    assert instances.ended(*everybody) == (EndedProcess(pid, ("former", "m-1", "s-1"), stopped=False),)
    assert instances.ended("m-3", "other") == ()


def test_process_that_stopped_is_shown_as_such(instances: Instances) -> None:
    pid = die(instances.start("m-1"))
    record = read_record(str(instances.application))
    assert record is not None
    mark_stopped(str(instances.application), record)
    assert instances.ended("m-1") == (EndedProcess(pid, ("m-1",), stopped=True),)


@pytest.mark.parametrize("cluster_id", ["another", "", None])
def test_record_of_another_cluster_proves_nothing(instances: Instances, cluster_id: str | None) -> None:
    die(instances.start("m-1"))
    assert instances.ended("m-1", cluster_id=cluster_id) == ()


@pytest.mark.parametrize("group", ["", ".", "..", "../app", "app/instance-2", "a\0b", "another"])
def test_group_whose_name_is_no_directory_of_it_has_no_records(instances: Instances, group: str) -> None:
    die(instances.start("m-1"))
    die(instances.start("m-1"))
    assert instances.ended("m-1", group=group) == ()


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 2}', b"\xff" * 100])
def test_damaged_record_is_ignored(instances: Instances, content: bytes) -> None:
    die(instances.start("m-1"))
    pid = die(instances.start("m-2"))
    (instances.application / RECORD_FILE).write_bytes(content)
    assert instances.ended("m-1", "m-2") == (EndedProcess(pid, ("m-2",), stopped=False),)


def test_record_that_others_may_write_is_ignored(instances: Instances) -> None:
    die(instances.start("m-1"))
    os.chmod(instances.application / RECORD_FILE, 0o644)
    assert instances.ended("m-1") == ()


class Cluster(FakeCluster):
    """Two members, m0 and m1, as the connection of a command shows them."""

    def __init__(self, state_dir: str) -> None:
        super().__init__(topics(2), {"in": 7})
        rebalanced(self, {f"m{n}": said(n) for n in range(2)}, 2)
        self.state_dirs = [state_dir]

    def cluster_id(self) -> str:
        return "cluster"

    def consumer(self) -> object:
        raise AssertionError("no __consumer_offsets to read")


def test_command_shows_the_dead_process_and_its_members_and_changes_nothing(instances: Instances) -> None:
    cluster = Cluster(instances.state_dir)
    process = instances.start("m1")
    before = {path: path.read_bytes() for path in instances.application.iterdir()}
    view = _view(cluster, GROUP)  # type: ignore[arg-type]  # a fake connection
    assert view.ended == ()
    assert [member["process_has_ended"] for member in to_json(view)["members"]] == [None, None]
    pid = die(process)
    view = _view(cluster, GROUP)  # type: ignore[arg-type]  # a fake connection
    assert [member["process_has_ended"] for member in to_json(view)["members"]] == [None, True]
    assert {path: path.read_bytes() for path in instances.application.iterdir()} == before
    for stopped, words in ((False, "has died, and the group still has its members"), (True, "waits for its restart")):
        shown = replace(view, ended=tuple(replace(one, stopped=stopped) for one in view.ended))
        screen = io.StringIO()
        Console(file=screen, width=300).print(render(shown, all_tasks=False))
        assert f"process {pid} of this host" in screen.getvalue()
        assert words in screen.getvalue()
        assert "B1" in screen.getvalue().partition(words)[2]
