"""The file of a plan: JSON, the old one or the new one whatever happens while it is written.

Two processes at work on one plan would undo each other's steps: one writes changelogs that the other one has deleted.
So a process holds a lock as long as it works on it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from streams_py.errors import ConfigError
from streams_py.file_locks import FileLock, alone

__all__ = ["held", "save_plan"]

T = TypeVar("T")


def save_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """Write it. ConfigError when that cannot be."""
    beside = path.with_name(f"{path.name}.new")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(json.dumps(plan, indent=1))
            file.flush()
            os.fsync(file.fileno())  # or a machine that loses its power may have the new name with nothing in it
        os.replace(beside, path)
    except OSError as error:
        raise _unwritable(path, error) from None


@contextlib.contextmanager
def held(path: Path, load: Callable[[Path], T]) -> Iterator[T]:
    """Work on a plan alone, whether it is there already or not: what ``load`` makes of the file. ConfigError when
    another process is at work on it."""
    load(path)  # nothing is left beside a file that is none
    try:
        lock = FileLock.take(path.with_name(f".{path.name}.lock"))  # of its own, because saving replaces the plan's
    except OSError as error:
        raise _unwritable(path, error) from None
    with alone(lock, f"is at work on the plan {path}"):
        yield load(path)


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the plan {path} cannot be written ({error.strerror}); name another file with --plan")
