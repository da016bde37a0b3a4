"""Processes that die, freeze or come back, with a session timeout that no test could wait for."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker.kit import PYTHON, Application, Instance, text, true_counts
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.broker

SESSION_MS = 10 * int(PATIENCE_S) * 1_000
REMOVED = re.compile(r"the former run of this instance \(process \d+\) has ended; removed 1 member from group")
IN_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def two_that_work(app: Application, command: tuple[str, ...] = PYTHON) -> tuple[Instance, Instance]:
    a, b = (app.start(name, command=command) for name in "ab")
    app.await_shared(a, b)
    return a, b


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_killed_process_that_is_back_works_without_waiting_for_its_session(
    application: Callable[..., Application], guarantee: str
) -> None:
    app = application(session_timeout_ms=SESSION_MS, processing_guarantee=guarantee)
    lines = text(4_000)
    half = len(lines) // 2
    a, b = two_that_work(app)
    app.feed(lines[:half])
    app.until(app.read, "first results")
    b.kill()
    app.feed(lines[half:])
    b = app.start("b")
    app.await_shared(a, b)
    app.await_caught_up()
    assert REMOVED.search(b.log_text)
    counts = app.counts()
    expected = true_counts(lines)
    if guarantee == "exactly_once_v2":
        assert counts == expected
    else:  # the killed process had not committed everything
        assert counts.keys() == expected.keys()
        assert all(counts[word] >= expected[word] for word in expected)


def test_stopped_process_that_is_back_works_without_waiting_for_its_session(
    application: Callable[..., Application],
) -> None:
    app = application(session_timeout_ms=SESSION_MS)
    lines = text(2_000)
    a, b = two_that_work(app)
    before = set(b.running)
    assert b.close() == 0
    app.feed(lines)
    b = app.start("b")
    app.await_shared(a, b)
    assert b.running == before
    app.await_caught_up()
    assert app.counts() == true_counts(lines)


def test_only_process_of_a_group_is_back_with_one_rebalance(application: Callable[..., Application]) -> None:
    app = application(session_timeout_ms=SESSION_MS)
    a = app.start("a")
    app.await_shared(a)
    [before] = a.status["generations"].values()
    assert a.close() == 0
    a = app.start("a")
    app.await_shared(a)
    # An empty group is one more generation. On most clusters its next member waits for the initial rebalance delay.
    assert list(a.status["generations"].values()) == [before + 1]


def test_frozen_process_is_not_removed_by_a_copy_of_its_directory(application: Callable[..., Application]) -> None:
    app = application(session_timeout_ms=SESSION_MS)
    a, b = two_that_work(app)
    b.process.send_signal(signal.SIGSTOP)
    shutil.copytree(app.folder / "b", app.folder / "copy")
    copy = app.start("copy")
    app.until(lambda: "joining group" in copy.log_text, "the copy to join")
    b.process.send_signal(signal.SIGCONT)
    app.until(lambda: a.running | b.running | copy.running == app.all_tasks(), "all tasks to run")
    for instance in (a, b, copy):
        assert not REMOVED.search(instance.log_text)
        assert "was removed from the group" not in instance.log_text


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_process_that_dies_for_good_is_replaced_without_waiting_for_its_session(
    application: Callable[..., Application], guarantee: str
) -> None:
    app = application(session_timeout_ms=SESSION_MS, processing_guarantee=guarantee)
    shared = {"state.dir": str(app.folder / "shared")}
    lines = text(4_000)
    half = len(lines) // 2
    a, b = (app.start(name, config=shared) for name in "ab")
    app.await_shared(a, b)
    app.feed(lines[:half])
    app.until(app.read, "first results")
    b.kill()
    app.feed(lines[half:])
    app.until(lambda: a.running == app.all_tasks(), "all tasks on the survivor")
    app.await_caught_up()
    assert re.search(rf"process {b.process.pid} of this host has ended; removed 1 member", a.log_text)
    counts, expected = app.counts(), true_counts(lines)
    if guarantee == "exactly_once_v2":
        assert counts == expected
    else:
        assert counts.keys() == expected.keys()
        assert all(counts[word] >= expected[word] for word in expected)


def test_supervisor_removes_the_members_of_its_processes_that_hang_and_are_all_killed(
    application: Callable[..., Application],
) -> None:
    app = application(session_timeout_ms=SESSION_MS)
    a = app.start("a")
    app.await_shared(a)
    hold, log = app.folder / "hold", app.folder / "supervised.log"
    config = {**app.config, "state.dir": str(app.folder / "supervised")}
    order = {"input": app.input, "output": app.output, "config": config, "hold": str(hold)}
    command = [sys.executable, "-m", "tests.support.broker.supervised", json.dumps(order)]
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as supervisor:
        try:
            app.until(lambda: len(find_pids(log)) == 2, "two processes")
            pids = find_pids(log)
            app.until(
                lambda: all(re.search(rf"(?m)^{pid} .*-> RUNNING", log.read_text()) for pid in pids), "both to work"
            )
            hold.touch()
            for number in (signal.SIGSTOP, signal.SIGKILL):  # frozen, they cannot remove one another
                for pid in pids:
                    os.kill(pid, number)
            app.until(lambda: a.running == app.all_tasks(), "all tasks on the process of another host")
            for pid in pids:
                removed = rf"(?m)^{supervisor.pid} process {pid} of this host has ended; removed 1 member"
                app.until(lambda removed=removed: re.search(removed, log.read_text()), "the supervisor's removal")
            hold.unlink()
            app.until(lambda: a.running < app.all_tasks(), "the processes to be back")
        finally:
            supervisor.terminate()
    assert supervisor.returncode == 0, log.read_text()[-4000:]


def find_pids(log: Path) -> list[int]:
    return [int(pid) for pid in re.findall(r"started process \d of 2 \(pid (\d+)\)", log.read_text())]


@pytest.mark.parametrize("leave", ["always", "never"])
def test_setting_decides_whether_the_tasks_of_a_stopped_process_move(
    application: Callable[..., Application], leave: str
) -> None:
    app = application(session_timeout_ms=SESSION_MS, leave_group_on_close=leave)
    a, b = two_that_work(app)
    members = members_of(app)
    assert b.close() == 0
    if leave == "always":
        app.until(lambda: a.running == app.all_tasks(), "all tasks on the survivor")
        assert len(members_of(app)) == 1
    else:
        assert members_of(app) == members


def test_process_says_that_it_waits_for_one_that_has_stopped(application: Callable[..., Application]) -> None:
    app = application(session_timeout_ms=SESSION_MS)
    shared = {"state.dir": str(app.folder / "shared")}
    a, b = (app.start(name, config=shared) for name in "ab")
    app.await_shared(a, b)
    members = members_of(app)
    assert (a.close(), b.close()) == (0, 0)
    c = app.start("c", config=shared)  # has the directory of one of the two
    waits = re.compile(r"waiting for member (\S+) of a former run, up to \d+ s")
    app.until(lambda: waits.search(c.log_text), "the report")
    assert set(waits.findall(c.log_text)) < members
    d = app.start("d", config=shared)
    app.await_shared(c, d)


def members_of(app: Application) -> set[str]:
    admin = app.clients.group_admin()
    try:
        return {member.member_id for member in admin.describe_group(app.id).members}
    finally:
        admin.close()


def test_frozen_and_stopped_siblings_stay_in_the_group(application: Callable[..., Application]) -> None:
    app = application(session_timeout_ms=SESSION_MS)
    shared = {"state.dir": str(app.folder / "shared")}
    a, b, c = (app.start(name, config=shared) for name in "abc")
    app.await_shared(a, b, c)
    frozen, stopped = b.running, c.running
    b.process.send_signal(signal.SIGSTOP)
    assert c.close() == 0
    d = app.start("d", config=shared, command=PYTHON)  # takes the directory of c, and works only when b does
    app.until(lambda: "joining group" in d.log_text, "the next process to join")
    assert not re.search(r"of this host has ended", a.log_text + d.log_text)
    b.process.send_signal(signal.SIGCONT)
    app.await_shared(a, b, d)
    assert b.running == frozen
    assert d.running == stopped
    assert not re.search(r"of this host has ended", a.log_text + b.log_text + d.log_text)


def test_restarted_container_works_without_waiting_for_its_session(application: Callable[..., Application]) -> None:
    if subprocess.run([*IN_NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not create pid namespaces")
    app = application(session_timeout_ms=SESSION_MS)
    lines = text(2_000)
    command = (*IN_NAMESPACE, *PYTHON)
    a, b = two_that_work(app, command)
    b.kill()
    app.feed(lines)
    b = app.start("b", command=command)
    app.await_shared(a, b)
    assert REMOVED.search(b.log_text)
    app.await_caught_up()
    assert app.counts() == true_counts(lines)
