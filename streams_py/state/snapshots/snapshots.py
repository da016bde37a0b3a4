"""Makes snapshots of open tasks in the background, and fetches them for tasks whose disk is empty.

A database contains the changelog positions of its stores, committed with them. So a checkpoint of RocksDB (hard links,
a fraction of a second) is a snapshot whenever it is taken, and the stream thread has no part in it. Only active tasks
are uploaded. A fetched snapshot is opened like any state found on disk: what its positions lack is replayed.

Nothing here can make an application fail: what cannot be uploaded is tried again later, what cannot be used is passed
over with a warning, and without a snapshot the changelog is replayed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, LockError, SnapshotError
from streams_py.state.checkpoint import DATABASE_DIRECTORY, force_to_disk, has_database
from streams_py.state.snapshots.manifest import Manifest, SnapshotFile, SnapshotOf
from streams_py.state.snapshots.storage import TaskSnapshots, hash_of

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase

__all__ = ["ChangelogNow", "KnownOffsets", "Snapshots"]

_log = logging.getLogger("streams_py")

_FETCH: Final = "snapshot-fetch"
_MAKE: Final = "snapshot-make"


class ChangelogNow(NamedTuple):
    """First and end offset of a changelog partition, and its topic's id, where the cluster gives one."""

    first: int
    end: int
    topic_id: str | None = None


KnownOffsets = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, ChangelogNow]]
"""Changelog partitions as far as known."""


class _Open(NamedTuple):
    """A task that is uploaded, and the hashes of the files that it has: another database may have others under the same
    names, and the same numbers in the file system."""

    database: TaskDatabase
    layout: Mapping[str, str]
    hashes: dict[tuple[str, int], SnapshotFile]


class _Fetch:
    """One download under way."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.folder: str | None = None
        """What came, ready to be moved into place."""


class Snapshots:
    """The snapshots of one client's tasks. Thread-safe.

    ``storage`` is that of :func:`~streams_py.state.snapshots.storage.open_storage`; ``keep`` snapshots of each task are
    left. ``interval_s`` 0: only :meth:`upload_all` uploads.
    """

    def __init__(
        self,
        storage: tuple[Any, str],
        application: str,
        cluster: Callable[[], str | None],
        offsets: KnownOffsets,
        *,
        interval_s: float,
        keep: int = 2,
    ) -> None:
        self._storage = storage
        self._application = application
        self._cluster = cluster
        self._offsets = offsets
        self._keep = keep
        self._lock = threading.Lock()
        self._open: dict[TaskId, _Open] = {}
        self._fetches: dict[TaskId, _Fetch] = {}
        self._uploaded: dict[TaskId, Mapping[TopicPartition, int]] = {}
        self._stop = threading.Event()
        if interval_s > 0:
            threading.Thread(target=self._run, args=(interval_s,), name="state-snapshots", daemon=True).start()

    def stop(self) -> None:
        """No more uploads; one that is under way is left without a manifest."""
        self._stop.set()

    # -- of tasks --------------------------------------------------------------------------------------------

    def before_open(self, task: TaskId, folder: str, layout: Mapping[str, str]) -> None:
        """Fill a task's folder, if it has no database and there is a snapshot. LockError while that takes time: the
        caller comes again."""
        if has_database(folder):
            for left in (_FETCH, _MAKE):  # by a process that was killed
                shutil.rmtree(os.path.join(folder, left), ignore_errors=True)
            return
        with self._lock:
            fetch = self._fetches.get(task)
            if fetch is None:
                fetch = self._fetches[task] = _Fetch()
                arguments = (fetch, task, folder, layout)
                threading.Thread(target=self._fetch, args=arguments, name=f"snapshot-{task}", daemon=True).start()
        if not fetch.done.is_set():
            raise LockError(f"task {task} waits for its snapshot", task_id=task)
        with self._lock:
            self._fetches.pop(task, None)
        if fetch.folder is not None and os.path.isdir(fetch.folder):
            database = os.path.join(folder, DATABASE_DIRECTORY)
            shutil.rmtree(database, ignore_errors=True)  # there is none in it
            os.replace(fetch.folder, database)
            _force_names(folder)
        shutil.rmtree(os.path.join(folder, _FETCH), ignore_errors=True)  # what came of one that is not whole

    def opened(self, task: TaskId, database: TaskDatabase, layout: Mapping[str, str]) -> None:
        """Upload this one from now on."""
        with self._lock:
            self._open[task] = _Open(database, layout, {})

    def closing(self, task: TaskId) -> None:
        """The task's database is about to be closed: no copies are made of it any more."""
        with self._lock:
            self._open.pop(task, None)

    # -- uploading -------------------------------------------------------------------------------------------

    def _run(self, interval_s: float) -> None:
        while not self._stop.wait(interval_s):
            self.upload_all()

    def upload_all(self) -> int:
        """Make a snapshot of every open task that has moved since the last one; how many."""
        with self._lock:
            tasks = sorted(self._open.items())
        return sum(self._upload(task, opened) for task, opened in tasks)

    def _upload(self, task: TaskId, opened: _Open) -> bool:
        if self._stop.is_set():
            return False
        folder = os.path.join(os.path.dirname(opened.database.path), _MAKE)
        try:
            shutil.rmtree(folder, ignore_errors=True)
            copied = opened.database.checkpoint(folder)
            if copied is None or copied[0] == self._uploaded.get(task):
                return False
            self._upload_folder(task, folder, *copied, opened)
        except Exception as error:
            _log.warning("task %s: no snapshot was made, trying again later: %s", task, error)
            return False
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return True

    def _upload_folder(
        self,
        task: TaskId,
        folder: str,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
        opened: _Open,
    ) -> None:
        place = TaskSnapshots(self._storage, self._application, str(task))
        files: dict[str, SnapshotFile] = {}
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            files[name] = _hashed(path, name, opened.hashes)
            place.put_file(path, files[name])
            if self._stop.is_set():
                return
        for gone in [at for at in opened.hashes if at[0] not in files]:
            del opened.hashes[gone]
        of = SnapshotOf(self._application, self._cluster(), str(task), opened.layout)
        place.put_manifest(Manifest(of, positions, files, topic_ids))
        self._uploaded[task] = positions
        place.prune(of, self._keep)

    # -- fetching --------------------------------------------------------------------------------------------

    def _fetch(self, fetch: _Fetch, task: TaskId, folder: str, layout: Mapping[str, str]) -> None:
        try:
            place = TaskSnapshots(self._storage, self._application, str(task))
            wanted = SnapshotOf(self._application, self._cluster(), str(task), layout)
            for name in place.names():
                try:
                    fetch.folder = self._fetched(place, name, wanted, os.path.join(folder, _FETCH))
                except (SnapshotError, FileNotFoundError) as error:  # also one that its owner deletes meanwhile
                    _log.warning("task %s: snapshot %s is not used: %s", task, name, error)
                    continue
                _log.info("task %s starts from snapshot %s", task, name)
                return
        except Exception as error:
            _log.warning("task %s: no snapshot can be fetched, its changelogs are replayed: %s", task, error)
        finally:
            fetch.done.set()

    def _fetched(self, place: TaskSnapshots, name: str, wanted: SnapshotOf, into: str) -> str:
        manifest = place.manifest(name)
        manifest.check(wanted)
        self._check_positions(manifest)
        shutil.rmtree(into, ignore_errors=True)
        os.makedirs(into, mode=0o750)
        for file_name, file in manifest.files.items():
            place.get_file(file, os.path.join(into, file_name))
        _force_names(into)
        return into

    def _check_positions(self, manifest: Manifest) -> None:
        try:
            known = self._offsets(manifest.positions.keys())
        except BrokerUnavailableError:
            return  # whoever replays the rest finds out
        for changelog, (first, end, topic_id) in known.items():
            at, id_then = manifest.positions[changelog] + 1, manifest.topic_ids.get(changelog.topic)
            if id_then is not None and topic_id is not None and id_then != topic_id:
                raise SnapshotError(f"topic {changelog.topic} was deleted and created anew since")
            if at > end:
                raise SnapshotError(f"it is at {at} of {changelog}, which ends at {end}: that is another changelog")
            if at < first:
                raise SnapshotError(f"it is at {at} of {changelog}, which begins at {first} by now: it is too old")


def _force_names(folder: str) -> None:
    with contextlib.suppress(OSError):  # not every file system can
        force_to_disk(folder)


def _hashed(path: str, name: str, hashes: dict[tuple[str, int], SnapshotFile]) -> SnapshotFile:
    if not name.endswith(".sst"):  # only these never change
        return hash_of(path)
    at = (name, os.stat(path).st_ino)
    known = hashes.get(at)
    if known is None:
        known = hashes[at] = hash_of(path)
    return known
