"""The state directory of one application instance, and the ownership of its tasks by stream threads.

Layout::

    <state.dir>/<application.id>/
        .lock                              exclusively locked for the life of the client
        kafka-streams-process-metadata     {"processId": "..."}: identifies the client after a restart
        group-members.json                 members of the group, for after a crash (:mod:`.member_record`)
        <sub-topology>_<partition>/        one per task: .py-checkpoint, .py-store-format, store files; global/ likewise
        instance-2/, instance-3/, ...      the same for further instances on this machine
        of-cluster-<id>/                   tasks and global stores of another cluster, set aside
        of-another-library/                task directories that another library wrote, set aside (:mod:`.set_aside`)
        of-another-layout/                 copies of task directories made before the layout of their stores changed

Kafka Streams uses the same names, so a Java application may use the same directory. A task directory belongs to this
library only if it has the marker file. A directory without it is neither reported nor changed until its task is
assigned here; then it is set aside. Kafka Streams finds no checkpoint of its own in this library's directories. The
lock is a POSIX record lock, as in Java, so the two exclude each other.

State belongs to a cluster. On another cluster the offsets in its checkpoints are meaningless, and aggregates would
include records that do not exist there. So no stored state is reported or used before the id of the cluster is known
(:meth:`StateDirectory.check_cluster`). State of another cluster is set aside. State of an embedded cluster is deleted,
because that cluster no longer exists.

Task locks are only in memory, because ``.lock`` excludes other processes. Corresponds to Kafka Streams'
``StateDirectory``.
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
from streams_py.state.directory.member_record import RECORD_FILE
from streams_py.state.directory.run_directory import LockedFolder
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

_GLOBAL_DIRECTORY: Final = "global"
_ASIDE: Final = "of-cluster-"

_logger = logging.getLogger(__name__)


class StateDirectory:
    """The state directory of one application instance. Thread-safe.

    Every directory is created with mode 0700. A directory that another user of the host controls is refused with a
    StateError (:mod:`streams_py.system.private_files`).

    Args:
        state_dir: ``state.dir``.
        application_id: ``application.id``.
        persistent: Whether any store is on disk. If not, nothing on disk is accessed, the process id is random, and
            every task can be locked.
        name: ``client.id`` or ``group.instance.id``, if instances have such names.
        cluster_id: Requests the cluster's id. Returns None when the cluster has none, and raises BrokerUnavailableError
            while the cluster does not answer.
        warns_of_temporary: Whether to warn when ``state_dir`` is below the folder for temporary files.
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
            raise StateError(f"application.id {application_id!r} is not a valid name for a directory")
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
        """Lock a directory that no other instance uses, and read or create the process id.

        Raises:
            StateError: The directory is not writable, or another user controls it.
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
                    _logger.info("another instance uses %s; using %s instead", self._application, path)
                return path, lock
        raise AssertionError("unreachable: there is always another number")

    def _hold(self) -> None:
        """Lock a directory again if the directory of this instance was deleted.

        Another instance may own the old path now. The process id stays the same, because the group knows it.
        """
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
                "the state directory %s was deleted, at least in part, while it was in use; continuing in %s, where "
                "missing state is restored",
                lost,
                self._path,
            )
            if known.cluster_id is not None:
                self._belong_to(known.cluster_id)

    def close(self) -> None:
        """Release all locks. A second call does nothing."""
        with self._guard:
            self._owners.clear()
            self._metadata = None
            file, self._lock_file = self._lock_file, None
        self._cluster_checked = self._ask_cluster_id is None or not self._persistent
        if file is not None:
            unlock_directory(self._path, file)

    @property
    def path(self) -> str:
        """The directory of this instance. Before :meth:`open`, the directory of the application."""
        return self._path

    @property
    def locked(self) -> LockedFolder | None:
        """The directory of this instance and its lock file. None before :meth:`open`, and if nothing is persistent."""
        with self._guard:
            if self._lock_file is None:
                return None
            return LockedFolder(self._path, self._lock_file, self._application)

    @property
    def is_persistent(self) -> bool:
        """Whether anything is kept on disk."""
        return self._persistent

    @property
    def process_id(self) -> ProcessId:
        """The identity of this instance. If anything is persistent, it is the same after a restart."""
        if self._metadata is None:
            raise StateError(f"the state directory {self.path} is not open")
        return self._metadata.process_id

    def _make_base(self) -> None:
        """Create ``state.dir``, or check an existing one: other users may share it, but not control it."""
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
                "cannot read the process file in %s (%s); using a new process id for this instance", self.path, error
            )
        metadata = replace(known or InstanceMetadata(ProcessId(uuid.uuid4())), name=self._name)
        if metadata != known:
            write_metadata(self.path, metadata)
        return metadata

    # -- the cluster of the state ------------------------------------------------------------------------------

    def check_cluster(self) -> bool:
        """Ensure that the local state belongs to the current cluster. State of another cluster is set aside.

        Requests the cluster's id only until it is known.

        Returns:
            False while the cluster does not answer. No local state may be used then.
        """
        if self._cluster_checked or self._ask_cluster_id is None:
            return True
        with self._cluster_guard:
            if not self._cluster_checked:
                try:
                    cluster_id = self._ask_cluster_id()
                except BrokerUnavailableError as error:
                    _logger.info(
                        "not using the local state in %s until the id of the cluster is known: %s", self.path, error
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
        # State without a cluster id was written by an older version. An embedded cluster cannot be that old.
        is_foreign = metadata.cluster_id is not None or cluster_id.startswith(EMBEDDED_CLUSTER_ID)
        folders = (*map(str, self._task_directories()), _GLOBAL_DIRECTORY)
        filled = [name for name in folders if is_ours(os.path.join(self.path, name))]
        try:
            if is_foreign and filled:
                self._set_aside(filled, metadata.cluster_id or "unknown", cluster_id)
        except OSError as error:
            raise StateError(
                f"the state in {self.path} belongs to cluster {metadata.cluster_id}, not to {cluster_id}, and moving "
                f"it away failed: {error}; delete it by hand"
            ) from error
        self._metadata = replace(metadata, cluster_id=cluster_id)
        write_metadata(self.path, self._metadata)

    def _set_aside(self, folders: Collection[str], old: str, new: str) -> None:
        if old.startswith(EMBEDDED_CLUSTER_ID):
            _logger.info("deleting the state in %s: its embedded cluster no longer exists", self.path)
            for name in folders:
                delete(os.path.join(self.path, name))
            return
        aside = os.path.join(self.path, _ASIDE + re.sub(r"[^A-Za-z0-9_-]", "_", old)[:64])
        _logger.warning(
            "the state in %s belongs to cluster %s, but this application is connected to cluster %s: moving it to %s "
            "and restoring from the topics of this cluster",
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

    # -- task locks --------------------------------------------------------------------------------------------

    def lock(self, task_id: TaskId, owner: str) -> bool:
        """Make ``owner`` (a thread's name) the owner of a task. Returns False if it has another owner. Reentrant."""
        with self._guard:
            return self._owners.setdefault(task_id, owner) == owner

    def unlock(self, task_id: TaskId, owner: str) -> None:
        """Release a task. Does nothing if ``owner`` does not own it."""
        with self._guard:
            if self._owners.get(task_id) == owner:
                del self._owners[task_id]

    def owner_of(self, task_id: TaskId) -> str | None:
        """Return the owner of a task; None if it has none."""
        with self._guard:
            return self._owners.get(task_id)

    def lock_stored_tasks(self, owner: str) -> list[TaskId]:
        """Lock every task with state on disk that no other owner has locked.

        Called at the start of a rebalance, so that only one thread of the process reports each task.

        Returns:
            The stored tasks that ``owner`` owns afterwards, in order.
        """
        if not self.check_cluster():
            return []
        return [task_id for task_id in self.stored_tasks() if self.lock(task_id, owner)]

    def unlock_except(self, owner: str, kept: Collection[TaskId]) -> None:
        """Release the tasks that ``owner`` has locked, except ``kept``. Called after a rebalance."""
        with self._guard:
            for task_id in [task_id for task_id, holder in self._owners.items() if holder == owner]:
                if task_id not in kept:
                    del self._owners[task_id]

    # -- task directories --------------------------------------------------------------------------------------

    def task_path(self, task_id: TaskId) -> str:
        """Return the task's directory, which may not exist."""
        return os.path.join(self.path, str(task_id))

    def prepare_task(self, task_id: TaskId) -> str:
        """Prepare the task's directory for stores. It is created if necessary; another library's files are set aside.

        Raises:
            LockError: The id of the cluster is not known yet.
            StateError: The directory is not writable, or files cannot be moved away.
        """
        if not self.check_cluster():
            raise LockError(f"task {task_id} waits for the id of the cluster", task_id=task_id)
        return self._prepare(str(task_id))

    @property
    def global_path(self) -> str:
        """The directory of the global stores, which may not exist."""
        return os.path.join(self.path, _GLOBAL_DIRECTORY)

    def prepare_global(self) -> str:
        """Prepare the directory of the global stores; see :meth:`prepare_task`."""
        if not self.check_cluster():
            raise LockError("global stores wait for the id of the cluster")
        return self._prepare(_GLOBAL_DIRECTORY)

    def wipe_global(self) -> None:
        """Delete all files of the global stores. StateError if that fails."""
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
            self._set_foreign_aside(path)  # but not a directory with only an empty marker, which a full disk leaves
            self._make(path)
        if not is_ours(path):
            try:
                write_marker(path)
            except OSError as error:
                raise not_usable(path, error) from error
        return path

    def _set_foreign_aside(self, path: str) -> None:
        """Move away files of another format. The library that wrote them may need them again."""
        folder = os.path.join(self.path, ANOTHER_LIBRARY)
        try:
            self._make(folder)
            aside = free_place(folder, os.path.basename(path))
            os.rename(path, aside)
        except OSError as error:
            raise StateError(f"this library did not write {path}: move it away by hand ({error})") from error
        _logger.warning(
            "%s was not written by this library (but by Kafka Streams for the JVM, or by a later version): moved it to "
            "%s and restoring the state; delete it, or use a separate state.dir for this application",
            path,
            aside,
        )

    def wipe_task(self, task_id: TaskId) -> None:
        """Delete all files of a task. StateError if that fails."""
        path = self.task_path(task_id)
        try:
            # The checkpoint goes first: if the process is killed before the stores are deleted, a checkpoint without
            # stores would make an empty store count as complete.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(path, CHECKPOINT_FILE))
            while os.path.isdir(path):
                with contextlib.suppress(FileNotFoundError):  # another process deletes too: continue with the rest
                    delete_ours(path)
        except OSError as error:
            raise StateError(f"cannot delete {path}: {error}; delete it by hand", task_id=task_id) from error

    def stored_tasks(self) -> list[TaskId]:
        """Return the tasks that have store files of this library on disk, in order."""
        return [task_id for task_id in self._task_directories() if has_content(self.task_path(task_id))]

    def stored_offset_sum(self, task_id: TaskId) -> int | None:
        """Return the sum of the offsets in the task's checkpoint, to report a task that is not open on this instance.

        None without a checkpoint, or if it cannot be read (which is logged as a warning). The task is not reported
        then.
        """
        path = self.task_path(task_id)
        if not self._persistent or not is_ours(path):
            return None
        try:
            offsets = stored_offsets(path)
        except (ValueError, StateError) as error:
            _logger.warning("not reporting task %s, because its checkpoint cannot be read: %s", task_id, error)
            return None
        if not offsets and not (has_database(path) and os.path.exists(os.path.join(path, CHECKPOINT_FILE))):
            return None
        return sum(0 if offset == OFFSET_UNKNOWN else offset for offset in offsets.values())

    def _task_directories(self) -> list[TaskId]:
        if not self._persistent:
            return []
        self._hold()  # otherwise the path may belong to another instance
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(f"cannot list {self.path}: {error}") from error
        return sorted(task_id for name in names if (task_id := task_id_of(name)) is not None)

    # -- cleaning ----------------------------------------------------------------------------------------------

    def delete_unused(self, *, now_ms: int, delay_ms: int) -> list[TaskId]:
        """Delete task directories of this library that are not locked and have not changed for ``delay_ms``.

        Returns:
            The tasks whose directories were deleted.
        """
        deleted = []
        for task_id in self._task_directories():
            path = self.task_path(task_id)
            owner = f"cleaner of {self.path}"
            if self.owner_of(task_id) is not None or not is_ours(path):
                continue
            if not self.lock(task_id, owner):
                continue
            try:  # check the age under the lock, because the last owner may have written just before it left
                unchanged_ms = now_ms - int(os.stat(path).st_mtime * 1000)
                if unchanged_ms > delay_ms:
                    self.wipe_task(task_id)
                    deleted.append(task_id)
                    _logger.info("deleted %s, unchanged for %d ms", path, unchanged_ms)
            except FileNotFoundError:
                pass
            except (OSError, StateError) as error:
                _logger.warning("cleaning the state directory failed: %s", error)
            finally:
                self.unlock(task_id, owner)
        return deleted

    def clean_up(self) -> list[str]:
        """Delete the local state of all instances of the application on this machine that are not running.

        Returns:
            The directories that were not deleted, because other clients use them.
        """
        stayed: list[str] = []
        if not self._persistent:
            return stayed
        for path in self.instances():
            own = self._lock_file if path == self._path else None
            lock = own or lock_directory(path)
            if lock is None:
                _logger.info("not deleting the local state in %s: another client uses it", path)
                stayed.append(path)
                continue
            try:
                for name in os.listdir(path):
                    if name not in (LOCK_FILE, RECORD_FILE) and not is_instance_directory(name):
                        delete(os.path.join(path, name))
            except OSError as error:
                raise StateError(f"cannot delete the local state in {path}: {error}") from error
            finally:
                if own is None:
                    unlock_directory(path, lock)
        return stayed

    def instances(self) -> list[str]:
        """Return the directories of all instances of the application on this machine.

        Raises:
            StateError: Another user controls a directory or a parent of it, or this user may not look.
        """
        try:
            os.lstat(self._application)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:  # without the right to look, nothing would be deleted, and no one would notice
            raise StateError(f"cannot delete the local state in {self._application}: {error}") from error
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
            "state.dir %s is below the folder for temporary files. The system may delete it, and then the state has to "
            "be restored from the changelog topics. Another user of this host can also create it first, and then this "
            "application does not start. Set state.dir to a folder that belongs to this user",
            base,
        )
