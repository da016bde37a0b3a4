"""Proof that a process has ended: real processes that run, are frozen, are killed, or live in another namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streams_py.system import process_proof
from streams_py.system.process_proof import Life, ProcessIdentity, has_reliable_locks
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def identity(pid: int) -> ProcessIdentity:
    found = ProcessIdentity.of(pid)
    assert found is not None
    return found


def state_letter(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_running_process_is_alive(child: subprocess.Popen[bytes]) -> None:
    assert identity(child.pid).life() is Life.ALIVE
    assert identity(os.getpid()).life() is Life.ALIVE
    assert identity(1).life() is Life.ALIVE


def test_frozen_process_is_alive(child: subprocess.Popen[bytes]) -> None:
    known = identity(child.pid)
    child.send_signal(signal.SIGSTOP)
    until(lambda: state_letter(child.pid) == "T", "the process to be frozen")
    assert known.life() is Life.ALIVE


def test_killed_process_has_ended_even_before_its_parent_notices(child: subprocess.Popen[bytes]) -> None:
    known = identity(child.pid)
    child.kill()
    until(lambda: state_letter(child.pid) == "Z", "the process to end")
    assert known.life() is Life.ENDED
    child.wait()
    assert known.life() is Life.ENDED


def test_process_with_a_reused_number_is_another_one(child: subprocess.Popen[bytes]) -> None:
    known = identity(child.pid)
    assert replace(known, start_ticks=known.start_ticks - 1).life() is Life.ENDED


def test_process_of_another_boot_is_never_judged(child: subprocess.Popen[bytes]) -> None:
    known = replace(identity(child.pid), boot_id="another")
    child.kill()
    child.wait()
    assert known.life() is Life.UNKNOWN


def test_process_of_another_namespace_is_invisible() -> None:
    known = identity(os.getpid())
    assert replace(known, pid_namespace=known.pid_namespace + 1).life() is Life.INVISIBLE


@pytest.mark.parametrize("pid", [(1 << 31) - 1, 1 << 40])
def test_impossible_numbers_prove_nothing_wrong(pid: int) -> None:
    assert replace(identity(os.getpid()), pid=pid).life() in (Life.ENDED, Life.UNKNOWN)


def test_main_thread_that_ended_before_its_process_is_alive() -> None:
    code = (
        "import ctypes, threading, sys\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.PyDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            known = identity(process.pid)
            until(lambda: state_letter(process.pid) == "Z", "the main thread to end")
            assert known.life() is Life.ALIVE
        finally:
            process.kill()


def test_locks_count_on_known_file_systems_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/proc/self/stat", "rb") as of_proc:
        assert not has_reliable_locks(of_proc.fileno())
    with open("/dev/shm/streams-py-test" if os.path.isdir("/dev/shm") else tmp_path / "file", "wb") as file:
        os.unlink(file.name)
        assert has_reliable_locks(file.fileno())
        monkeypatch.setattr(process_proof, "_LOCKS_WORK", frozenset({"nothing"}))
        assert not has_reliable_locks(file.fileno())
