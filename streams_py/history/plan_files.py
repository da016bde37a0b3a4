"""The file of a plan: JSON, replaced atomically.

Two processes that work on one plan would undo each other's steps: one would write changelogs that the other deletes. So
a process holds a lock while it works on a plan.

Commands delete topics and commit offsets according to a plan. So the file contains a hash of its contents, and a file
that was edited or damaged is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from streams_py.errors import ConfigError
from streams_py.system.file_locks import FileLock, alone
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.private_files import open_file, replace_file

T = TypeVar("T")

_HASH: Final = "sha256"


def save_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """Write a plan. Raises ConfigError when the file cannot be written."""
    text = json.dumps({**plan, _HASH: _hash_of(plan)}, indent=1)
    try:
        replace_file(str(path), text.encode())
    except OSError as error:
        raise _unwritable(path, error) from None


def read_plan(path: Path, version: int) -> dict[str, Any] | None:
    """Read a plan. Returns None when the file is not a plan.

    Args:
        path: the file.
        version: the expected ``format`` of the plan.

    Raises:
        OSError: the file cannot be read.
        ConfigError: the plan has another format, or its hash does not match.
    """
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
            f"{path} has format {found['format']}, expected {version}: continue with the version of this library that "
            "created it, or name another file with --plan"
        )
    if told != hashed:
        raise ConfigError(
            f"the plan {path} was changed since it was written: restore the original file, or name another with --plan"
        )
    return found


def load_plan(kind: type[T], path: Path, version: int, what: str, remedy: str) -> T | None:
    """Read a plan. Returns None when the file does not exist.

    Args:
        kind: the dataclass of the plan.
        path: the file.
        version: the expected ``format`` of the plan.
        what: what the file should be, for messages.
        remedy: what the user can do when it is something else.

    Raises:
        ConfigError: the file cannot be read, or is not a plan of this kind.
    """
    try:
        found = read_plan(path, version)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"the plan {path} cannot be read ({error.strerror}); {remedy}") from None
    if found is not None and found.keys() <= {field.name for field in fields(kind)}:  # type: ignore[arg-type]
        with contextlib.suppress(ValidationError):
            return TypeAdapter(kind).validate_python(found)
    raise ConfigError(f"{path} is not {what}; {remedy}")


def _hash_of(plan: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def held(path: Path, load: Callable[[Path], T]) -> Iterator[T]:
    """Lock a plan and yield the result of ``load``. The plan's file need not exist.

    Raises:
        ConfigError: another process works on the plan, or the lock file cannot be written.
    """
    load(path)  # raises if the file is not a plan, before a lock file is created next to it
    try:
        lock = FileLock.take(path.with_name(f".{path.name}.lock"))  # a separate file, because saving replaces the plan
    except OSError as error:
        raise _unwritable(path, error) from None
    with alone(lock, f"is working on the plan {path}"):
        yield load(path)


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the plan {path} cannot be written ({error.strerror}); name another file with --plan")
