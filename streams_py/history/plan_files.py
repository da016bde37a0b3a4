"""The file of a plan: JSON, the old one or the new one whatever happens while it is written.

Two processes at work on one plan would undo each other's steps: one writes changelogs that the other one has deleted.
So a process holds a lock as long as it works on it. The lock is the kernel's, which drops it with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from streams_py.errors import ConfigError

__all__ = ["held", "save_plan"]

T = TypeVar("T")


def save_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """Write it. ConfigError when that cannot be."""
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_text(json.dumps(plan, indent=1), encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise _unwritable(path, error) from None


@contextlib.contextmanager
def held(path: Path, load: Callable[[Path], T]) -> Iterator[T]:
    """Work on a plan alone, whether it is there already or not: what ``load`` makes of the file. ConfigError when
    another process is at work on it."""
    load(path)  # nothing is left beside a file that is none
    beside = path.with_name(f".{path.name}.lock")  # a file of its own, because saving replaces the plan's
    lock = _locked(path, beside)
    try:
        yield load(path)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()  # while it is locked: whoever has opened it by now sees that it is gone, and makes another
        os.close(lock)


def _locked(path: Path, beside: Path) -> int:
    """The descriptor of the file ``beside``, locked. ConfigError when another process has it."""
    while True:
        try:
            lock = os.open(beside, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ConfigError(f"another process is at work on the plan {path}; end it, or wait until it ends") from None
        except OSError:
            return lock  # this file system knows no locks
        if _is_at(beside, lock):
            return lock
        os.close(lock)  # its owner has removed it since it was opened


def _is_at(place: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.fstat(file))
    except FileNotFoundError:
        return False


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the plan {path} cannot be written ({error.strerror}); name another file with --plan")
