"""The directories of an application's instances on one machine, their locks, and their process files.

Several instances may run on one machine with the same ``state.dir``. The first one uses the application's directory
itself, as in Kafka Streams. Further instances use ``instance-2``, ``instance-3``, ... below it. The instance that holds
the exclusive lock on a directory's file ``.lock`` owns the directory. The operating system releases the lock when the
process ends for any reason.

After a restart, an instance should find its previous state. So it takes the free directory with the lowest number. If
instances have names (``client.id`` or ``group.instance.id``), it first tries directories that were last used under its
own name, and tries directories of other names last. Process id, name and cluster id are in
``kafka-streams-process-metadata``. The file has Kafka Streams' format: JSON, of which Kafka Streams reads only
``processId``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import IO, Final

from streams_protocol.types import ProcessId
from streams_py.errors import StateError
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.printable import named
from streams_py.system.private_files import UntrustedPathError, open_file, replace_file

LOCK_FILE: Final = ".lock"
_PROCESS_FILE: Final = "kafka-streams-process-metadata"
_PROCESS_FILE_MAX: Final = 64 << 10
_PREFIX: Final = "instance-"

_FLOCK: Final = struct.Struct("@hhqqi4x")
"""``struct flock`` of 64-bit Linux: kind, whence, start, length, pid."""

_locked_here: set[str] = set()
"""The directories locked by this process. POSIX record locks do not exclude other clients in the same process."""
_locked_here_guard = threading.Lock()
os.register_at_fork(after_in_child=_locked_here.clear)  # a forked child does not inherit record locks


@dataclass(frozen=True, slots=True)
class InstanceMetadata:
    """The content of a process file."""

    process_id: ProcessId
    cluster_id: str | None = None
    """Id of the cluster that the state in the directory belongs to; None: unknown."""
    name: str | None = None
    """Name of the instance that used the directory last; None: unknown."""


def read_metadata(directory: str) -> InstanceMetadata | None:
    """Read the process file of a directory. None if the file does not exist.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is malformed.
    """
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
    """Replace the process file. StateError if the directory is not writable."""
    content = {"processId": str(metadata.process_id), "clusterId": metadata.cluster_id, "instance": metadata.name}
    text = json.dumps({field: value for field, value in content.items() if value is not None})
    try:
        replace_file(os.path.join(directory, _PROCESS_FILE), text.encode())
    except OSError as error:
        raise not_usable(directory, error) from error


# -- directories -------------------------------------------------------------------------------------------------------


def instance_directories(application: str) -> list[str]:
    """Return the directories that instances of the application have used so far, by number."""
    try:
        names = os.listdir(application)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise not_usable(application, error) from error
    numbers = sorted(int(name.removeprefix(_PREFIX)) for name in names if is_instance_directory(name))
    return [application, *(_numbered(application, number) for number in numbers)]


def is_instance_directory(name: str) -> bool:
    """Whether ``name`` is the name of a further instance's directory, such as ``instance-2``."""
    number = name.removeprefix(_PREFIX)
    return name.startswith(_PREFIX) and number.isdecimal() and name == f"{_PREFIX}{int(number)}" and int(number) > 1


def usable_directories(application: str, name: str | None) -> Iterator[str]:
    """Yield the directories to try to lock, best first. After the existing ones come new ones, without end."""
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
    """Lock a directory. StateError if it is not writable.

    Returns:
        The open lock file. None when another client has locked the directory.
    """
    with _locked_here_guard:
        if directory in _locked_here:
            return None  # opening the lock file a second time and closing it would release the lock
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


def ask_if_unlocked(directory: str, ask: Callable[[int], bool]) -> bool | None:
    """Call ``ask`` with the lock file of a directory if no process holds the lock. The lock is not taken.

    To take the lock would make an instance that starts at this moment use another directory.

    Returns:
        The result of ``ask``. None if a process holds the lock, or if that is unknown.
    """
    with _locked_here_guard:
        if directory in _locked_here:
            return None  # opening and closing the lock file would release the lock
        try:
            with open(os.path.join(directory, LOCK_FILE), "rb", opener=open_file) as file:
                wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, *_ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, wanted))
                return ask(file.fileno()) if kind == fcntl.F_UNLCK else None
        except OSError:
            return None


def is_held(directory: str, lock: IO[bytes], process_id: ProcessId) -> bool:
    """Whether the directory is still the one that the instance has locked, with its lock file and process file.

    If not, it was deleted, and another instance may own a directory of the same name.
    """
    try:
        is_same = os.path.samestat(os.fstat(lock.fileno()), os.stat(os.path.join(directory, LOCK_FILE)))
        metadata = read_metadata(directory)
    except FileNotFoundError:
        return False
    except (OSError, ValueError):  # does not prove that the directory was deleted
        return True
    return is_same and metadata is not None and metadata.process_id == process_id


def unlock_directory(directory: str, lock: IO[bytes]) -> None:
    """Undo :func:`lock_directory`."""
    with _locked_here_guard:
        _locked_here.discard(directory)
        lock.close()  # releases the record lock


def not_usable(path: str, error: OSError) -> StateError:
    """Return the error for a directory that is not writable, or that another user of the host controls."""
    if isinstance(error, UntrustedPathError):
        return StateError(str(error))
    return StateError(
        f"cannot write the state directory {path}: {error.strerror or error}; make it writable for this user "
        f"(uid {os.geteuid()}), or set state.dir to a directory that is"
    )
