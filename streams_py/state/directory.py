"""The state directory of one application instance, and who of its threads works on which task.

Layout::

    <state.dir>/<application.id>/
        .lock                              held by an exclusive lock for the life of the client
        kafka-streams-process-metadata     {"processId": "..."}: makes the client recognisable after a restart
        <sub-topology>_<partition>/        one per task: .checkpoint, .py-store-format, store files

Kafka Streams uses the same names, so a directory may be shared by mistake. Its store files mean nothing to us: a task
directory counts as ours only with our marker file; without it, it is neither reported nor deleted until its task is
assigned here, and then emptied. The lock is a POSIX record lock, as Java's is, so the two also exclude each other.

Locks of tasks are in memory only: a task directory belongs to a thread of this process, and other processes are kept
out by ``.lock``. Answers to Kafka Streams' ``StateDirectory``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Collection
from typing import IO, Final

from streams_protocol.types import ProcessId, TaskId
from streams_py.errors import LockError, StateError
from streams_py.state.checkpoint import CHECKPOINT_FILE, UNKNOWN_OFFSET, read_checkpoint

__all__ = ["FORMAT_MARKER", "StateDirectory"]

FORMAT_MARKER: Final = ".py-store-format"
_FORMAT: Final = b"1\n"
_LOCK_FILE: Final = ".lock"
_PROCESS_FILE: Final = "kafka-streams-process-metadata"
_PROCESS_FILE_MAX: Final = 64 << 10
_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o640

_logger = logging.getLogger(__name__)

_locked_here: set[str] = set()
"""Record locks do not exclude the process that holds them, so two clients of one process need this."""
_locked_here_guard = threading.Lock()


class StateDirectory:
    """Directory of one application instance. Thread-safe.

    With ``persistent=False`` (no store on disk) nothing is touched on disk, the process id is random, and every task
    can be locked.
    """

    def __init__(self, state_dir: str, application_id: str, *, persistent: bool = True) -> None:
        self._persistent = persistent
        self._base = os.path.abspath(state_dir)
        self.path = os.path.join(self._base, application_id)
        if os.path.dirname(self.path) != self._base or application_id in ("", ".", ".."):
            raise StateError(f"application.id {application_id!r} cannot be the name of a directory")
        self._lock_file: IO[bytes] | None = None
        self._process_id: ProcessId | None = None
        self._owners: dict[TaskId, str] = {}
        self._guard = threading.RLock()

    # -- life --------------------------------------------------------------------------------------------------

    def open(self) -> ProcessId:
        """Create the directory, lock it, and read (or make up) the process id.

        LockError when another client uses the directory; StateError when it cannot be written.
        """
        if self._process_id is not None:
            return self._process_id
        if not self._persistent:
            self._process_id = ProcessId(uuid.uuid4())
            return self._process_id
        _mention_temporary(self._base)
        self._make(self._base)
        if os.path.islink(self.path):
            raise StateError(f"{self.path} is a symbolic link; set state.dir to the directory itself")
        self._make(self.path)
        self._lock_file = self._lock()
        try:
            self._process_id = self._read_process_id()
        except BaseException:
            self.close()
            raise
        return self._process_id

    def close(self) -> None:
        """Unlock. A second call does nothing."""
        with self._guard:
            self._owners.clear()
            self._process_id = None
            file, self._lock_file = self._lock_file, None
        if file is not None:
            _unlock(file, self.path)

    @property
    def is_persistent(self) -> bool:
        """False when nothing is kept on disk."""
        return self._persistent

    @property
    def process_id(self) -> ProcessId:
        """Identity of this instance; the same after a restart when anything is persistent."""
        if self._process_id is None:
            raise StateError(f"the state directory {self.path} is not open")
        return self._process_id

    def _make(self, path: str) -> None:
        try:
            os.makedirs(path, mode=_DIRECTORY_MODE, exist_ok=True)
        except OSError as error:
            raise self._not_usable(path, error) from error
        if path == self._base:
            return  # may well be shared with others
        try:
            os.chmod(path, _DIRECTORY_MODE)
        except OSError as error:
            _logger.warning("cannot set the permissions of %s: %s", path, error)

    def _not_usable(self, path: str, error: OSError) -> StateError:
        return StateError(
            f"cannot write the state directory {path}: {error.strerror or error}; make it writable for this user "
            f"(uid {os.geteuid()}), or set state.dir to a directory that is"
        )

    def _lock(self) -> IO[bytes]:
        path = os.path.join(self.path, _LOCK_FILE)
        with _locked_here_guard:
            if self.path in _locked_here:
                raise self._in_use("another client of this process")
            try:
                file = open(path, "ab", opener=_private)  # noqa: SIM115  # stays open for the life of the client
            except OSError as error:
                raise self._not_usable(self.path, error) from error
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.close()
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise self._in_use("another process") from error
                raise self._not_usable(path, error) from error
            _locked_here.add(self.path)
            return file

    def _in_use(self, by: str) -> LockError:
        return LockError(
            f"the state directory {self.path} is in use by {by}. Every instance on a machine needs a state.dir of its "
            f"own: set state.dir, or stop the other one"
        )

    def _read_process_id(self) -> ProcessId:
        path = os.path.join(self.path, _PROCESS_FILE)
        try:
            with open(path, "rb", opener=_private) as file:
                return ProcessId.parse(json.loads(file.read(_PROCESS_FILE_MAX))["processId"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _logger.warning("%s cannot be used (%s); this instance gets a new process id", path, error)
        process_id = ProcessId(uuid.uuid4())
        beside = path + ".tmp"
        try:
            with open(beside, "wb", opener=_private) as file:
                file.write(json.dumps({"processId": str(process_id)}).encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except OSError as error:
            raise self._not_usable(self.path, error) from error
        return process_id

    # -- locks of tasks ----------------------------------------------------------------------------------------

    def lock(self, task_id: TaskId, owner: str) -> bool:
        """Make ``owner`` (a thread's name) the owner of a task; False when another one is. Re-entrant."""
        with self._guard:
            return self._owners.setdefault(task_id, owner) == owner

    def unlock(self, task_id: TaskId, owner: str) -> None:
        """Release a task; does nothing when ``owner`` does not own it."""
        with self._guard:
            if self._owners.get(task_id) == owner:
                del self._owners[task_id]

    def owner_of(self, task_id: TaskId) -> str | None:
        """Who owns a task."""
        with self._guard:
            return self._owners.get(task_id)

    def lock_stored_tasks(self, owner: str) -> list[TaskId]:
        """Lock every task that has something on disk, as far as no other owner has it: at the start of a rebalance, so
        that each is reported by one thread of the process. All that ``owner`` owns then, in order."""
        return [task_id for task_id in self.stored_tasks() if self.lock(task_id, owner)]

    def unlock_except(self, owner: str, kept: Collection[TaskId]) -> None:
        """After the rebalance: release what ``owner`` locked and does not need."""
        with self._guard:
            for task_id in [task_id for task_id, holder in self._owners.items() if holder == owner]:
                if task_id not in kept:
                    del self._owners[task_id]

    # -- task directories --------------------------------------------------------------------------------------

    def task_path(self, task_id: TaskId) -> str:
        """Where the task's files are, or would be."""
        return os.path.join(self.path, str(task_id))

    def prepare_task(self, task_id: TaskId) -> str:
        """Make the task's directory ready for our stores: created if need be, emptied when it is not ours."""
        path = self.task_path(task_id)
        if os.path.isdir(path) and not _is_ours(path):
            if os.listdir(path):
                _logger.warning("%s was not written by this library; it is emptied, and the state restored", path)
            _empty(path)
        self._make(path)
        if not _is_ours(path):
            try:
                with open(os.path.join(path, FORMAT_MARKER), "wb", opener=_private) as file:
                    file.write(_FORMAT)
            except OSError as error:
                raise self._not_usable(path, error) from error
        return path

    def wipe_task(self, task_id: TaskId) -> None:
        """Delete everything of a task. StateError when that fails."""
        path = self.task_path(task_id)
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StateError(f"cannot delete {path}: {error}; delete it by hand", task_id=task_id) from error

    def stored_tasks(self) -> list[TaskId]:
        """Tasks that have store files of ours on disk, in order."""
        return [task_id for task_id in self._task_directories() if _has_content(self.task_path(task_id))]

    def stored_offset_sum(self, task_id: TaskId) -> int | None:
        """Sum of the offsets in the task's checkpoint, as it is reported for a task that is not open here. None when
        there is no checkpoint, or none that can be read (with a warning): then the task is not reported."""
        path = self.task_path(task_id)
        if not self._persistent or not _is_ours(path):
            return None
        try:
            offsets = read_checkpoint(path)
        except (ValueError, StateError) as error:
            _logger.warning("checkpoint of task %s is not reported: %s", task_id, error)
            return None
        if not offsets and not os.path.exists(os.path.join(path, CHECKPOINT_FILE)):
            return None
        return sum(0 if offset == UNKNOWN_OFFSET else offset for offset in offsets.values())

    def _task_directories(self) -> list[TaskId]:
        if not self._persistent:
            return []
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(f"cannot list {self.path}: {error}") from error
        return sorted(task_id for name in names if (task_id := _task_id_of(name)) is not None)

    # -- cleaning ----------------------------------------------------------------------------------------------

    def delete_unused(self, *, now_ms: int, delay_ms: int) -> list[TaskId]:
        """Delete our task directories that nobody has locked and that have not changed for ``delay_ms``."""
        deleted = []
        for task_id in self._task_directories():
            path = self.task_path(task_id)
            owner = f"cleaner of {self.path}"
            if self.owner_of(task_id) is not None or not _is_ours(path):
                continue
            try:
                unchanged_ms = now_ms - int(os.stat(path).st_mtime * 1000)
                if unchanged_ms > delay_ms and self.lock(task_id, owner):
                    try:
                        self.wipe_task(task_id)
                        deleted.append(task_id)
                        _logger.info("deleted %s, unchanged for %d ms", path, unchanged_ms)
                    finally:
                        self.unlock(task_id, owner)
            except (OSError, StateError) as error:
                _logger.warning("cleaner: %s", error)
        return deleted

    def clean_up(self) -> None:
        """Delete all local state of the application. Only while no client uses it: LockError otherwise."""
        if not self._persistent or not os.path.isdir(self.path):
            return
        held = self._lock_file is not None
        file = self._lock_file or self._lock()
        try:
            for name in os.listdir(self.path):
                if name != _LOCK_FILE:
                    _delete(os.path.join(self.path, name))
        except OSError as error:
            raise StateError(f"cannot delete the local state in {self.path}: {error}") from error
        finally:
            if not held:
                _unlock(file, self.path)


def _unlock(file: IO[bytes], path: str) -> None:
    with _locked_here_guard:
        _locked_here.discard(path)
        file.close()  # releases the record lock


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, _FILE_MODE)


def _mention_temporary(base: str) -> None:
    temporary = os.path.realpath(tempfile.gettempdir())
    if os.path.commonpath([temporary, os.path.realpath(base)]) == temporary:
        _logger.info(
            "state.dir %s is below the directory for temporary files: when the system deletes it, the state has to be "
            "restored from the changelog topics",
            base,
        )


def _task_id_of(name: str) -> TaskId | None:
    try:
        task_id = TaskId.parse(name)
    except ValueError:
        return None
    return task_id if str(task_id) == name else None


def _is_ours(task_directory: str) -> bool:
    try:
        with open(os.path.join(task_directory, FORMAT_MARKER), "rb") as file:
            return file.read(16) == _FORMAT
    except OSError:
        return False


def _has_content(task_directory: str) -> bool:
    """More than our own marker, a checkpoint, and left-over lock files (which are removed)."""
    if not _is_ours(task_directory):
        return False
    found = False
    for name in os.listdir(task_directory):
        if name.endswith(".lock"):
            _delete(os.path.join(task_directory, name))
        elif name not in (FORMAT_MARKER, CHECKPOINT_FILE, CHECKPOINT_FILE + ".tmp"):
            found = True
    return found


def _empty(directory: str) -> None:
    for name in os.listdir(directory):
        _delete(os.path.join(directory, name))


def _delete(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
