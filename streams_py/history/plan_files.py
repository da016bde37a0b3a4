"""The file of a plan: JSON, the old one or the new one whatever happens while it is written.

Two processes at work on one plan would undo each other's steps: one writes changelogs that the other one has deleted.
So a process holds a lock as long as it works on it.

Topics are deleted, and positions committed, as a plan says. So it ends with the hash of what it says: of one that was
changed by hand, or is damaged, nothing is believed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from streams_py.errors import ConfigError
from streams_py.system.file_locks import FileLock, alone
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.private_files import open_file, replace_file

__all__ = ["held", "read_plan", "save_plan"]

T = TypeVar("T")

_HASH: Final = "sha256"


def save_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """Write it. ConfigError when that cannot be."""
    text = json.dumps({**plan, _HASH: _hash_of(plan)}, indent=1)
    try:
        replace_file(str(path), text.encode())
    except OSError as error:
        raise _unwritable(path, error) from None


def read_plan(path: Path, version: int) -> dict[str, Any] | None:
    """What was saved, with ``format`` as the ``version`` of its layout; None when it is no plan at all. OSError when
    there is no such file, ConfigError when it is one of another version, or was changed by others."""
    try:
        with open(path, "rb", opener=open_file) as file:
            found = loads_foreign(file.read())
        if not isinstance(found, dict) or type(found.get("format")) is not int:
            return None
        told = found.pop(_HASH, None)
        hashed = _hash_of(found)
    except (ValueError, RecursionError):
        return None
    if found["format"] != version:
        raise ConfigError(
            f"{path} has format {found['format']}, not {version}: go on with the version of this library that made it, "
            "or name another file with --plan"
        )
    if told != hashed:
        raise ConfigError(
            f"the plan {path} was changed since it was written: put it back as it was, or name another file with --plan"
        )
    return found


def _hash_of(plan: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


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
