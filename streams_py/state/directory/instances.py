"""Which directory an instance of an application uses, and what it leaves there about itself.

Several instances may run on one machine with one ``state.dir``. The first one takes the application's directory itself,
as in Kafka Streams; further ones take ``instance-2``, ``instance-3``, ... below it. Whoever holds the exclusive lock on
a directory's file ``.lock`` has the directory; the system drops the lock when the process ends, however it ends.

After a restart an instance should find what it had. So it takes the lowest directory that is free; where instances have
names (``client.id`` or ``group.instance.id``), one that was last used under its own name comes first, and one that
belongs to another name last. Process id, name and cluster are in ``kafka-streams-process-metadata``, in Kafka Streams'
format: JSON, of which others read ``processId`` only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import IO, Final

from streams_protocol.types import ProcessId
from streams_py.errors import StateError
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.printable import named
from streams_py.system.private_files import UntrustedPathError, open_file, replace_file

__all__ = [
    "LOCK_FILE",
    "InstanceMetadata",
    "instance_directories",
    "is_held",
    "is_instance_directory",
    "lock_directory",
    "not_usable",
    "read_metadata",
    "unlock_directory",
    "usable_directories",
    "write_metadata",
]

LOCK_FILE: Final = ".lock"
_PROCESS_FILE: Final = "kafka-streams-process-metadata"
_PROCESS_FILE_MAX: Final = 64 << 10
_PREFIX: Final = "instance-"

_locked_here: set[str] = set()
"""Record locks do not exclude the process that holds them, so two clients of one process need this."""
_locked_here_guard = threading.Lock()
os.register_at_fork(after_in_child=_locked_here.clear)  # record locks stay with the process that took them


@dataclass(frozen=True, slots=True)
class InstanceMetadata:
    """What the process file says. ``cluster_id``: of the cluster that the state in the directory belongs to;
    ``name``: that of the instance which had the directory last; None when unknown."""

    process_id: ProcessId
    cluster_id: str | None = None
    name: str | None = None


def read_metadata(directory: str) -> InstanceMetadata | None:
    """None when there is no process file; OSError or ValueError when it is of no use."""
    try:
        with open(os.path.join(directory, _PROCESS_FILE), "rb", opener=open_file) as file:
            found = loads_foreign(file.read(_PROCESS_FILE_MAX))
        return InstanceMetadata(
            ProcessId.parse(found["processId"]), _text(found.get("clusterId")), _text(found.get("instance"))
        )
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(named(error)) from error


def _text(found: object) -> str | None:
    return found if isinstance(found, str) and found else None


def write_metadata(directory: str, metadata: InstanceMetadata) -> None:
    """Replace the process file. StateError when the directory cannot be written."""
    content = {"processId": str(metadata.process_id), "clusterId": metadata.cluster_id, "instance": metadata.name}
    text = json.dumps({field: value for field, value in content.items() if value is not None})
    try:
        replace_file(os.path.join(directory, _PROCESS_FILE), text.encode())
    except OSError as error:
        raise not_usable(directory, error) from error


# -- which directories there are ---------------------------------------------------------------------------------------


def instance_directories(application: str) -> list[str]:
    """The directories that instances of the application have used so far, by number."""
    try:
        names = os.listdir(application)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise not_usable(application, error) from error
    numbers = sorted(int(name.removeprefix(_PREFIX)) for name in names if is_instance_directory(name))
    return [application, *(_numbered(application, number) for number in numbers)]


def is_instance_directory(name: str) -> bool:
    """True for the name of a further instance's directory."""
    number = name.removeprefix(_PREFIX)
    return name.startswith(_PREFIX) and number.isdecimal() and name == f"{_PREFIX}{int(number)}" and int(number) > 1


def usable_directories(application: str, name: str | None) -> Iterator[str]:
    """Directories to try to lock, best first; those that nobody has used yet come in the end, and never end."""
    known = instance_directories(application) or [application]
    yield from sorted(known, key=lambda directory: _rank(directory, name))  # stable: by number among equals
    for number in count(2):
        directory = _numbered(application, number)
        if directory not in known:
            yield directory


def _rank(directory: str, name: str | None) -> int:
    try:
        metadata = read_metadata(directory)
    except (OSError, ValueError):
        metadata = None
    last_name = None if metadata is None else metadata.name
    return 0 if last_name == name else 1 if last_name is None else 2


def _numbered(application: str, number: int) -> str:
    return os.path.join(application, f"{_PREFIX}{number}")


# -- locks -------------------------------------------------------------------------------------------------------------


def lock_directory(directory: str) -> IO[bytes] | None:
    """The open lock file, None when another client has the directory. StateError when it cannot be written."""
    with _locked_here_guard:
        if directory in _locked_here:
            return None  # opening its lock file once more would end the lock when that is closed
        try:
            file = open(os.path.join(directory, LOCK_FILE), "ab", opener=open_file)  # noqa: SIM115  # open while locked
        except OSError as error:
            raise not_usable(directory, error) from error
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return None
            raise not_usable(directory, error) from error
        _locked_here.add(directory)
        return file


def is_held(directory: str, lock: IO[bytes], process_id: ProcessId) -> bool:
    """Whether the directory still is as the instance that locked it has left it: with its lock file and its process
    file. Else somebody has deleted it, and another instance may have one of that name."""
    try:
        is_same = os.path.samestat(os.fstat(lock.fileno()), os.stat(os.path.join(directory, LOCK_FILE)))
        metadata = read_metadata(directory)
    except FileNotFoundError:
        return False
    except (OSError, ValueError):  # that tells nothing
        return True
    return is_same and metadata is not None and metadata.process_id == process_id


def unlock_directory(directory: str, lock: IO[bytes]) -> None:
    """Undo :func:`lock_directory`."""
    with _locked_here_guard:
        _locked_here.discard(directory)
        lock.close()  # releases the record lock


def not_usable(path: str, error: OSError) -> StateError:
    """Return the error for a directory that cannot be written, or that another user of the host controls."""
    if isinstance(error, UntrustedPathError):
        return StateError(str(error))
    return StateError(
        f"cannot write the state directory {path}: {error.strerror or error}; make it writable for this user "
        f"(uid {os.geteuid()}), or set state.dir to a directory that is"
    )
