"""The state directory of one application instance, and who of its threads works on which task.

Layout::

    <state.dir>/<application.id>/
        .lock                              held by an exclusive lock for the life of the client
        kafka-streams-process-metadata     {"processId": "..."}: makes the client recognisable after a restart
        <sub-topology>_<partition>/        one per task: .py-checkpoint, .py-store-format, store files; as in global/
        instance-2/, instance-3/, ...      the same for further instances on this machine
        of-cluster-<id>/                   tasks and global stores of another cluster, set aside
        of-another-library/                those whose files are not ours, set aside (:mod:`.set_aside`)
        of-another-layout/                 as they were before their stores were declared otherwise

Kafka Streams uses the same names, so a directory may be shared. A task directory counts as ours only with our marker
file; without it, it is neither reported nor touched until its task is assigned here, and then set aside. Kafka Streams
finds no checkpoint of its own in ours. The lock is a POSIX record lock, as Java's is, so the two exclude each other.

State belongs to a cluster: on another one the offsets of its checkpoints mean nothing, and counting would go on from
results of records that are not there. So nothing stored is reported or used before the cluster has said who it is
(:meth:`StateDirectory.check_cluster`). What belongs to another one is set aside; that of an embedded cluster is
deleted, because its cluster is gone for good.

Locks of tasks are in memory only: ``.lock`` keeps other processes out. Answers to Kafka Streams' ``StateDirectory``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import IO, Final

from streams_protocol import OFFSET_UNKNOWN
from streams_protocol.types import ProcessId, TaskId
from streams_py.errors import BrokerUnavailableError, LockError, StateError
from streams_py.ports import EMBEDDED_CLUSTER_ID
from streams_py.state.directory.checkpoint import CHECKPOINT_FILE, has_database, stored_offsets
from streams_py.state.directory.instances import (
    LOCK_FILE,
    InstanceMetadata,
    instance_directories,
    is_held,
    is_instance_directory,
    lock_directory,
    not_usable,
    read_metadata,
    unlock_directory,
    usable_directories,
    write_metadata,
)
from streams_py.state.directory.set_aside import ANOTHER_LIBRARY, free_place
from streams_py.state.directory.task_files import (
    FORMAT_MARKER,
    delete_ours,
    has_content,
    is_ours,
    task_id_of,
    write_marker,
)
from streams_py.system.private_files import FOLDER_MODE, check_shared_folder, delete, make_folder

__all__ = ["StateDirectory"]

_GLOBAL_DIRECTORY: Final = "global"
_ASIDE: Final = "of-cluster-"

_logger = logging.getLogger(__name__)


class StateDirectory:
    """Directory of one application instance. Thread-safe.

    With ``persistent=False`` (no store on disk) nothing is touched on disk, the process id is random, and every task
    can be locked. ``name``: ``client.id`` or ``group.instance.id``, where instances have such names. ``cluster_id``
    asks the cluster for its id (BrokerUnavailableError while it does not answer, None when it has none).
    ``warns_of_temporary``: whether to warn when ``state_dir`` is below the folder for temporary files.

    Every directory is created with mode 0700, and one that another user of the host controls is refused with a
    StateError (:mod:`streams_py.system.private_files`).
    """

    def __init__(
        self,
        state_dir: str,
        application_id: str,
        *,
        persistent: bool = True,
        name: str | None = None,
        cluster_id: Callable[[], str | None] | None = None,
        warns_of_temporary: bool = True,
    ) -> None:
        self._persistent = persistent
        self._base = os.path.abspath(state_dir)
        self._application = os.path.join(self._base, application_id)
        if os.path.dirname(self._application) != self._base or application_id in ("", ".", ".."):
            raise StateError(f"application.id {application_id!r} cannot be the name of a directory")
        self._name = name
        self._warns_of_temporary = warns_of_temporary
        self._ask_cluster_id = cluster_id
        self._cluster_guard = threading.Lock()
        self._cluster_checked = cluster_id is None or not persistent
        self._path = self._application
        self._lock_file: IO[bytes] | None = None
        self._metadata: InstanceMetadata | None = None
        self._owners: dict[TaskId, str] = {}
        self._guard = threading.RLock()

    # -- life --------------------------------------------------------------------------------------------------

    def open(self) -> ProcessId:
        """Take a directory that no other instance has, and read (or make up) the process id.

        StateError when it cannot be written.
        """
        if self._metadata is not None:
            return self._metadata.process_id
        if not self._persistent:
            self._metadata = InstanceMetadata(ProcessId(uuid.uuid4()))
            return self._metadata.process_id
        if self._warns_of_temporary:
            _warn_of_temporary(self._base)
        self._make_base()
        self._make(self._application)
        self._path, self._lock_file = self._take()
        try:
            self._metadata = self._read_metadata()
        except BaseException:
            self.close()
            raise
        return self._metadata.process_id

    def _take(self) -> tuple[str, IO[bytes]]:
        for path in usable_directories(self._application, self._name):
            self._make(path)
            lock = lock_directory(path)
            if lock is not None:
                if path != self._application:
                    _logger.info("other instances use %s and more; this one has %s", self._application, path)
                return path, lock
        raise AssertionError("there is always another number")

    def _hold(self) -> None:
        """Take a directory once more when somebody has deleted the one that this instance had: others may have it now.
        The group knows the process id, so that stays."""
        with self._guard:
            known, lock = self._metadata, self._lock_file
            if known is None or not self._persistent or (lock and is_held(self._path, lock, known.process_id)):
                return
            lost = self._path
            if lock is not None:
                self._lock_file = None
                unlock_directory(lost, lock)
            self._make_base()
            self._make(self._application)
            self._path, self._lock_file = self._take()
            found = None
            with contextlib.suppress(OSError, ValueError):
                found = read_metadata(self._path)
            self._metadata = replace(known, cluster_id=known.cluster_id if found is None else found.cluster_id)
            write_metadata(self._path, self._metadata)
            _logger.warning(
                "the state directory %s was deleted, at least in part, while it was in use; going on in %s, where what "
                "is needed is restored",
                lost,
                self._path,
            )
            if known.cluster_id is not None:
                self._belong_to(known.cluster_id)

    def close(self) -> None:
        """Unlock. A second call does nothing."""
        with self._guard:
            self._owners.clear()
            self._metadata = None
            file, self._lock_file = self._lock_file, None
        self._cluster_checked = self._ask_cluster_id is None or not self._persistent
        if file is not None:
            unlock_directory(self._path, file)

    @property
    def path(self) -> str:
        """This instance's directory; the application's before :meth:`open`."""
        return self._path

    @property
    def is_persistent(self) -> bool:
        """False when nothing is kept on disk."""
        return self._persistent

    @property
    def process_id(self) -> ProcessId:
        """Identity of this instance; the same after a restart when anything is persistent."""
        if self._metadata is None:
            raise StateError(f"the state directory {self.path} is not open")
        return self._metadata.process_id

    def _make_base(self) -> None:
        """Create ``state.dir``, or check the one that is there: other users may share it, but not control it."""
        try:
            os.makedirs(self._base, mode=FOLDER_MODE, exist_ok=True)
            check_shared_folder(self._base)
        except OSError as error:
            raise not_usable(self._base, error) from error

    def _make(self, path: str) -> None:
        try:
            make_folder(path)
        except OSError as error:
            raise not_usable(path, error) from error

    def _read_metadata(self) -> InstanceMetadata:
        known: InstanceMetadata | None = None
        try:
            known = read_metadata(self.path)
        except (OSError, ValueError) as error:
            _logger.warning(
                "the process file in %s is of no use (%s); this instance gets a new process id", self.path, error
            )
        metadata = replace(known or InstanceMetadata(ProcessId(uuid.uuid4())), name=self._name)
        if metadata != known:
            write_metadata(self.path, metadata)
        return metadata

    # -- whose state it is -------------------------------------------------------------------------------------

    def check_cluster(self) -> bool:
        """Make sure that the state here is that of the cluster that is used now; another's is set aside. False while
        that cluster does not answer: nothing here may be used then. Asks only once."""
        if self._cluster_checked or self._ask_cluster_id is None:
            return True
        with self._cluster_guard:
            if not self._cluster_checked:
                try:
                    cluster_id = self._ask_cluster_id()
                except BrokerUnavailableError as error:
                    _logger.info(
                        "local state in %s is not used before the cluster says who it is: %s", self.path, error
                    )
                    return False
                if cluster_id:
                    self._belong_to(cluster_id)
                self._cluster_checked = True
        return True

    def _belong_to(self, cluster_id: str) -> None:
        metadata = self._metadata
        if metadata is None or metadata.cluster_id == cluster_id:
            return
        # State that does not say where it comes from is an older version's; an embedded cluster cannot be that old.
        is_foreign = metadata.cluster_id is not None or cluster_id.startswith(EMBEDDED_CLUSTER_ID)
        folders = (*map(str, self._task_directories()), _GLOBAL_DIRECTORY)
        filled = [name for name in folders if is_ours(os.path.join(self.path, name))]
        try:
            if is_foreign and filled:
                self._set_aside(filled, metadata.cluster_id or "unknown", cluster_id)
        except OSError as error:
            raise StateError(
                f"the state in {self.path} belongs to cluster {metadata.cluster_id}, not to {cluster_id}, and cannot "
                f"be set aside: {error}; delete it by hand"
            ) from error
        self._metadata = replace(metadata, cluster_id=cluster_id)
        write_metadata(self.path, self._metadata)

    def _set_aside(self, folders: Collection[str], old: str, new: str) -> None:
        if old.startswith(EMBEDDED_CLUSTER_ID):
            _logger.info("deleting the state in %s: the embedded cluster that it belongs to is gone", self.path)
            for name in folders:
                delete(os.path.join(self.path, name))
            return
        aside = os.path.join(self.path, _ASIDE + re.sub(r"[^A-Za-z0-9_-]", "_", old)[:64])
        _logger.warning(
            "the state in %s belongs to cluster %s, and this application is connected to cluster %s now: it is set "
            "aside in %s, and what this cluster has is restored",
            self.path,
            old,
            new,
            aside,
        )
        self._make(aside)
        for name in folders:
            target = os.path.join(aside, name)
            if os.path.lexists(target):
                delete(target)
            os.rename(os.path.join(self.path, name), target)

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
        if not self.check_cluster():
            return []
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
        """Make the task's directory ready for our stores: created if need be; what is not ours is set aside. LockError
        while the cluster has not said who it is."""
        if not self.check_cluster():
            raise LockError(f"task {task_id} waits for an answer of the cluster", task_id=task_id)
        return self._prepare(str(task_id))

    @property
    def global_path(self) -> str:
        """Where the files of global stores are, or would be."""
        return os.path.join(self.path, _GLOBAL_DIRECTORY)

    def prepare_global(self) -> str:
        """Make the directory of the global stores ready; as :meth:`prepare_task`."""
        if not self.check_cluster():
            raise LockError("global stores wait for an answer of the cluster")
        return self._prepare(_GLOBAL_DIRECTORY)

    def wipe_global(self) -> None:
        """Delete everything of the global stores. StateError when that fails."""
        try:
            delete_ours(self.global_path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StateError(f"cannot delete {self.global_path}: {error}; delete it by hand") from error

    def _prepare(self, name: str) -> str:
        self._hold()
        path = os.path.join(self.path, name)
        self._make(path)
        if not is_ours(path) and set(os.listdir(path)) - {FORMAT_MARKER}:
            self._set_foreign_aside(path)  # a marker alone, and empty, is what a full disk leaves
            self._make(path)
        if not is_ours(path):
            try:
                write_marker(path)
            except OSError as error:
                raise not_usable(path, error) from error
        return path

    def _set_foreign_aside(self, path: str) -> None:
        """Whoever wrote these files, in another format, may want them back."""
        folder = os.path.join(self.path, ANOTHER_LIBRARY)
        try:
            self._make(folder)
            aside = free_place(folder, os.path.basename(path))
            os.rename(path, aside)
        except OSError as error:
            raise StateError(f"{path} was not written by this library: move it away by hand ({error})") from error
        _logger.warning(
            "%s was not written by this library (but by Kafka Streams for the JVM, or by a later version): it is kept "
            "in %s, and the state restored; delete it, or give this application a state.dir of its own",
            path,
            aside,
        )

    def wipe_task(self, task_id: TaskId) -> None:
        """Delete everything of a task. StateError when that fails."""
        path = self.task_path(task_id)
        try:
            # First of all: a checkpoint that outlives its store, when the process is killed in between, would make an
            # empty store pass for a complete one.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(path, CHECKPOINT_FILE))
            while os.path.isdir(path):
                with contextlib.suppress(FileNotFoundError):  # somebody else deletes here, too: go on with the rest
                    delete_ours(path)
        except OSError as error:
            raise StateError(f"cannot delete {path}: {error}; delete it by hand", task_id=task_id) from error

    def stored_tasks(self) -> list[TaskId]:
        """Tasks that have store files of ours on disk, in order."""
        return [task_id for task_id in self._task_directories() if has_content(self.task_path(task_id))]

    def stored_offset_sum(self, task_id: TaskId) -> int | None:
        """Sum of the offsets in the task's checkpoint, as it is reported for a task that is not open here. None when
        there is no checkpoint, or none that can be read (with a warning): then the task is not reported."""
        path = self.task_path(task_id)
        if not self._persistent or not is_ours(path):
            return None
        try:
            offsets = stored_offsets(path)
        except (ValueError, StateError) as error:
            _logger.warning("checkpoint of task %s is not reported: %s", task_id, error)
            return None
        if not offsets and not (has_database(path) and os.path.exists(os.path.join(path, CHECKPOINT_FILE))):
            return None
        return sum(0 if offset == OFFSET_UNKNOWN else offset for offset in offsets.values())

    def _task_directories(self) -> list[TaskId]:
        if not self._persistent:
            return []
        self._hold()  # what is there may be another instance's
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(f"cannot list {self.path}: {error}") from error
        return sorted(task_id for name in names if (task_id := task_id_of(name)) is not None)

    # -- cleaning ----------------------------------------------------------------------------------------------

    def delete_unused(self, *, now_ms: int, delay_ms: int) -> list[TaskId]:
        """Delete our task directories that nobody has locked and that have not changed for ``delay_ms``."""
        deleted = []
        for task_id in self._task_directories():
            path = self.task_path(task_id)
            owner = f"cleaner of {self.path}"
            if self.owner_of(task_id) is not None or not is_ours(path):
                continue
            if not self.lock(task_id, owner):
                continue
            try:  # its age is looked at under the lock: an owner that has just gone may have written
                unchanged_ms = now_ms - int(os.stat(path).st_mtime * 1000)
                if unchanged_ms > delay_ms:
                    self.wipe_task(task_id)
                    deleted.append(task_id)
                    _logger.info("deleted %s, unchanged for %d ms", path, unchanged_ms)
            except FileNotFoundError:
                pass
            except (OSError, StateError) as error:
                _logger.warning("cleaner: %s", error)
            finally:
                self.unlock(task_id, owner)
        return deleted

    def clean_up(self) -> list[str]:
        """Delete all local state of the application on this machine, that of instances which are running excepted: the
        directories that stayed."""
        stayed: list[str] = []
        if not self._persistent:
            return stayed
        for path in self._checked_directories():
            own = self._lock_file if path == self._path else None
            lock = own or lock_directory(path)
            if lock is None:
                _logger.info("local state in %s stays: another client uses it", path)
                stayed.append(path)
                continue
            try:
                for name in os.listdir(path):
                    if name != LOCK_FILE and not is_instance_directory(name):
                        delete(os.path.join(path, name))
            except OSError as error:
                raise StateError(f"cannot delete the local state in {path}: {error}") from error
            finally:
                if own is None:
                    unlock_directory(path, lock)
        return stayed

    def _checked_directories(self) -> list[str]:
        """The directories of all instances. StateError when another user controls one of them, or the way to it."""
        if not os.path.lexists(self._application):
            return []
        self._make_base()
        self._make(self._application)
        found = instance_directories(self._application)
        for path in found:
            self._make(path)
        return found


def _warn_of_temporary(base: str) -> None:
    temporary = os.path.realpath(tempfile.gettempdir())
    if os.path.commonpath([temporary, os.path.realpath(base)]) == temporary:
        _logger.warning(
            "state.dir %s is below the folder for temporary files: the system may delete it, then the state has to be "
            "restored from the changelog topics; and another user of this host can create it first, then this "
            "application does not start. Set state.dir to a folder that belongs to this user",
            base,
        )
