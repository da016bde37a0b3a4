"""Forked processes: locks stay with the parent, databases are never closed by a child, and a child has its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams_py.system.file_locks import FileLock, LockHolder

_DATABASES = """
import os, signal, sys
from streams_py.state.disk.database import TaskDatabase

signal.alarm(60)

def opened(name):
    folder = os.path.join(sys.argv[1], name)
    os.mkdir(folder)
    return TaskDatabase(folder, ["s"])

def fill(database):
    for number in range(3):
        database.store("s").write_batch([b"%d" % n for n in range(1_000)], [b"x" * 1_000] * 1_000)
        database.commit({})
        database.store("s").flush_at_once()
    assert len(list(database.store("s").scan(None, None))) == 1_000

def child(run):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # the parent's is not inherited
        run()
        sys.exit(7)  # as any program ends: all exit handlers and destructors run
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""
_IN_CHILDREN = {
    "a child that does nothing": "child(lambda: None)",
    "a child forgets its parent's database": "child(lambda: globals().pop('first') and None)",
    "a child opens separate databases": "child(lambda: (fill(second := opened('second')), second.close()))",
    "a child leaves its own database open": "child(lambda: fill(opened('second')))",
    "a grandchild has databases, too": "child(lambda: (fill(opened('second')), child(lambda: fill(opened('third')))))",
}


def ended(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from streams_py.system.file_locks import FileLock\n"
        "lock = FileLock.take(Path(sys.argv[1]))\n"
        "reading, writing = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(writing, b'.')\n"
        "    sys.stdin.read()\n"  # until the test closes it
        "    os._exit(0)\n"
        "os.read(reading, 1)\n"
        "print('parent ends', flush=True)\n"
        "os._exit(0)\n"
    )
    path = tmp_path / "lock"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "parent ends\n"
        assert parent.wait(60) == 0
        taken = FileLock.take(path)
        assert isinstance(taken, FileLock), "its child still runs, and has no lock"
        taken.release()


def test_child_that_ends_leaves_the_lock_with_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock.take(path)
    assert isinstance(lock, FileLock)
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert isinstance(FileLock.take(path), LockHolder)
    lock.release()


@pytest.mark.parametrize("in_children", _IN_CHILDREN.values(), ids=_IN_CHILDREN.keys())
@pytest.mark.parametrize("is_open", [True, False], ids=["while a database is open", "after the last one was closed"])
def test_child_never_hangs_in_a_database_of_its_parent(tmp_path: Path, is_open: bool, in_children: str) -> None:
    before = "first = opened('first'); fill(first)\n" + ("" if is_open else "first.close()\n")
    after = "fill(first); first.close()\n" if is_open else "fill(again := opened('again')); again.close()\n"
    done = ended(_DATABASES + before + in_children + "\n" + after, tmp_path)
    assert done.returncode == 0, done.stderr


def test_library_that_cannot_be_loaded_again_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    program = _DATABASES + (
        "from streams_py.errors import StateError\n"
        "from streams_py.state.disk import library\n"
        "fill(opened('first'))\n"
        "library._file = '/nowhere'\n"
        "def run():\n"
        "    try:\n"
        "        opened('second')\n"
        "    except StateError as error:\n"
        "        assert 'start a new process instead' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError\n"
        "child(run)\n"
    )
    done = ended(program, tmp_path)
    assert done.returncode == 0, done.stderr
