"""Upload snapshots of open tasks in the background, and download them for tasks without local state.

A database contains the changelog positions of its stores, committed together with them. So a RocksDB checkpoint (hard
links, made in a fraction of a second) is a valid snapshot at any time, and the stream thread is not involved. Only
active tasks are uploaded. A downloaded snapshot is opened like any state found on disk: changelog records after its
positions are replayed.

Snapshots never make an application fail. A failed upload is retried later, an unusable snapshot is skipped with a
warning, and without a snapshot the changelog is replayed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, LockError, SnapshotError
from streams_py.state.directory.checkpoint import DATABASE_DIRECTORY, force_to_disk, has_database
from streams_py.state.snapshots.manifest import Manifest, SnapshotFile, SnapshotOf
from streams_py.state.snapshots.storage import TaskSnapshots, hash_of, time_of
from streams_py.state.snapshots.transfers import Download, Upload
from streams_py.system.printable import text_of
from streams_py.system.private_files import make_folder

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase

_log = logging.getLogger("streams_py")

_FETCH: Final = "snapshot-fetch"
_MAKE: Final = "snapshot-make"

_NOTICE_S: Final = 600.0
"""Time after which a process that was frozen has noticed that other members own its tasks, in s."""
DELETE_RETENTION_MS: Final = 86_400_000
"""Kafka's default of ``delete.retention.ms``, in ms, for topics whose configuration may not be read."""
_FETCHED_MAX_MS: Final = 600_000
"""Maximum age of a finished download, in ms.

A task may move away before it opens its downloaded snapshot. When it comes back later than this, it downloads again:
there are newer snapshots, and the old one may be too old by now.
"""
_HOUR_MS: Final = 3_600_000
_SHARE_TO_REPLAY: Final = 10
"""One in this many parts of ``delete.retention.ms`` is reserved for the download and for replaying newer records."""
_SHARE_TO_LEAVE_FREE: Final = 10
"""One in this many parts of the free disk space is not used for a snapshot."""
_SILENCE_MAX_MS: Final = 120_000
"""Time after which a download is given up if less than ``PROGRESS_BYTES`` have arrived, in ms.

Clients of object stores have timeouts of about a minute, and retry.
"""
_UPLOAD_SILENCE_MAX_MS: Final = 600_000
"""The same for uploads, in ms.

It is longer because no task waits for an upload, and clients report parts of 50 MB, or only whole files.
"""
_ASK_AGAIN_S: Final = 0.5
_WARNING_MS: Final = 10_000
"""Interval between warnings while the cluster does not answer, in ms."""
_LOOK_S: Final = 2.0
"""Interval between checks of a running upload, in s."""
_KEPT_PER_TASK: Final = 2
_HANGING_MAX: Final = 8
"""With this number of hanging upload threads, no more uploads start. The object store may never answer them."""


class ChangelogNow(NamedTuple):
    """The current offsets of a changelog partition, and facts about its topic."""

    first: int
    """Log start offset."""
    end: int
    """End offset."""
    topic_id: str | None = None
    """Id of the topic. None when the cluster does not report one."""
    delete_retention_ms: int | None = DELETE_RETENTION_MS
    """The topic's ``delete.retention.ms``. None when the topic is not compacted."""


KnownOffsets = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, ChangelogNow]]
"""A function that looks up changelog partitions. Unknown partitions are missing in its result."""


class _Open(NamedTuple):
    """An open task whose state is uploaded."""

    database: TaskDatabase
    layout: Mapping[str, str]
    written: frozenset[str]
    """The changelog topics that only the task writes."""
    hashes: dict[tuple[str, int], SnapshotFile]
    """(Name, inode) -> hash, of this database's files. Another database may have the same names and inodes."""


class Snapshots:
    """The snapshots of one client's tasks. Thread-safe.

    Args:
        storage: The result of :func:`~streams_py.state.snapshots.storage.open_storage`.
        application: The ``application.id``.
        cluster: Returns the id of the cluster, None if it has none.
        offsets: Looks up changelog partitions.
        interval_s: Interval between uploads. 0: only :meth:`upload_all` uploads.
        transactional: Whether tasks write to changelogs in transactions.
        now_ms: The wall clock.
    """

    def __init__(
        self,
        storage: tuple[Any, str],
        application: str,
        cluster: Callable[[], str | None],
        offsets: KnownOffsets,
        *,
        interval_s: float,
        transactional: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._storage = storage
        self._application = application
        self._cluster = cluster
        self._offsets = offsets
        self._transactional = transactional
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._open: dict[TaskId, _Open] = {}
        self._fetches: dict[TaskId, Download] = {}
        self._hanging: list[Upload] = []  # given up, but their threads still run
        self._uploaded: dict[TaskId, Mapping[TopicPartition, int]] = {}
        self._stop = threading.Event()
        if interval_s > 0:
            threading.Thread(target=self._run, args=(interval_s,), name="state-snapshots", daemon=True).start()

    def stop(self) -> None:
        """Stop uploading and downloading.

        A running upload ends without a manifest. Running downloads stop after the current file.
        """
        self._stop.set()
        with self._lock:
            for fetch in self._fetches.values():
                fetch.given_up = True

    # -- of tasks --------------------------------------------------------------------------------------------

    def before_open(self, task: TaskId, folder: str, layout: Mapping[str, str]) -> bool:
        """Download a snapshot into a task's directory, if it has no database.

        A download that receives less than 256 KiB in two minutes is given up.

        Returns:
            Whether a snapshot was put in place.

        Raises:
            LockError: The download is still running. The caller tries again later.
        """
        if has_database(folder):
            _remove_left(folder)  # left by a process that was killed
            return False
        now_ms = self._now_ms()
        with self._lock:
            fetch = self._fetches.get(task)
            if fetch is not None and fetch.done.is_set() and now_ms - fetch.ended_ms > _FETCHED_MAX_MS:
                fetch = None
            if fetch is None:
                _remove_left(folder)
                fetch = Download(folder, _FETCH, now_ms, silence_max_ms=_SILENCE_MAX_MS)
                self._fetches[task] = fetch
                arguments = (fetch, task, layout)
                threading.Thread(target=self._fetch, args=arguments, name=f"snapshot-{task}", daemon=True).start()
            is_late = not fetch.done.is_set()
            if is_late and not fetch.is_silent(now_ms):
                raise LockError(f"task {task} waits for its snapshot", task_id=task)
            fetch.given_up |= is_late
            del self._fetches[task]
        if is_late:
            _log.warning(
                "task %s: the download of its snapshot made no progress (%s) for %d s; replaying its changelogs",
                task,
                fetch.what,
                _SILENCE_MAX_MS // 1_000,
            )
        elif fetch.result is not None and os.path.isdir(fetch.result):
            database = os.path.join(folder, DATABASE_DIRECTORY)
            shutil.rmtree(database, ignore_errors=True)  # contains no database
            os.replace(fetch.result, database)
            _force_names(folder)
            return True
        return False

    def opened(
        self, task: TaskId, database: TaskDatabase, layout: Mapping[str, str], logs: Collection[TopicPartition]
    ) -> None:
        """Upload the state of this task from now on.

        Args:
            task: The task.
            database: Its open database.
            layout: The layout of its stores; see :class:`SnapshotOf`.
            logs: The changelog partitions that only the task writes.
        """
        with self._lock:
            self._open[task] = _Open(database, layout, frozenset(log.topic for log in logs), {})

    def closing(self, task: TaskId) -> None:
        """Stop uploading a task, because its database is about to be closed."""
        with self._lock:
            self._open.pop(task, None)

    # -- uploading -------------------------------------------------------------------------------------------

    def _run(self, interval_s: float) -> None:
        notice_s = min(interval_s, _NOTICE_S)
        while not self._stop.wait(interval_s - notice_s):
            taken_ms = self._now_ms()
            if self._stop.wait(notice_s):
                return
            self.upload_all(taken_ms)

    def upload_all(self, taken_ms: int | None = None) -> int:
        """Upload a snapshot of every open task whose positions have changed since its last one.

        Args:
            taken_ms: A time at which no other member owned these tasks, so that their changelogs had no other records.
                Default: now.

        Returns:
            The number of new snapshots.
        """
        taken_ms = self._now_ms() if taken_ms is None else taken_ms
        with self._lock:
            tasks = sorted(self._open.items())
        return sum(self._upload(task, opened, taken_ms) for task, opened in tasks)

    def _upload(self, task: TaskId, opened: _Open, taken_ms: int) -> bool:
        """Upload on a separate thread, which is abandoned when the store hangs."""
        self._hanging = [one for one in self._hanging if not one.done.is_set()]
        if self._stop.is_set():
            return False
        if len(self._hanging) >= _HANGING_MAX:
            _log.warning("task %s: not uploading a snapshot while %d uploads hang", task, len(self._hanging))
            return False
        folder = os.path.dirname(opened.database.path)
        upload = Upload(folder, _MAKE, self._now_ms(), silence_max_ms=_UPLOAD_SILENCE_MAX_MS)
        arguments = (upload, task, opened, taken_ms)
        threading.Thread(target=self._make, args=arguments, name=f"snapshot-upload-{task}", daemon=True).start()
        while not upload.done.wait(_LOOK_S):
            if self._stop.is_set():
                upload.given_up = True
                break
            if upload.is_silent(self._now_ms()):
                upload.given_up = True
                self._hanging.append(upload)
                shutil.rmtree(upload.folder, ignore_errors=True)
                _log.warning(
                    "task %s: the upload of its snapshot made no progress (%s) for %d s; retrying later",
                    task,
                    upload.what,
                    _UPLOAD_SILENCE_MAX_MS // 1_000,
                )
                break
        return upload.is_made

    def _make(self, upload: Upload, task: TaskId, opened: _Open, taken_ms: int) -> None:
        try:
            upload.begin("the copy of its stores")
            copied = opened.database.checkpoint(upload.folder)
            if copied is None or not copied[0] or copied[0] == self._uploaded.get(task):
                return  # unchanged; or without positions, so that everything would be replayed anyway
            self._upload_folder(upload, task, *copied, opened, taken_ms)
            upload.is_made = True
        except Exception as error:
            if not upload.given_up:
                _log.warning("task %s: uploading a snapshot failed, retrying later: %s", task, text_of(error))
        finally:
            shutil.rmtree(upload.folder, ignore_errors=True)
            upload.done.set()

    def _upload_folder(
        self,
        upload: Upload,
        task: TaskId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
        opened: _Open,
        taken_ms: int,
    ) -> None:
        upload.begin("the list of its snapshots")
        place = TaskSnapshots(self._storage, self._application, str(task))
        files: dict[str, SnapshotFile] = {}
        for name in sorted(os.listdir(upload.folder)):
            path = os.path.join(upload.folder, name)
            upload.begin(f"the hash of {name}")
            files[name] = _hashed(path, name, opened.hashes)
            upload.begin(name)
            place.put_file(path, files[name], upload.note_part)
        upload.begin("the manifest")
        for gone in [at for at in opened.hashes if at[0] not in files]:
            del opened.hashes[gone]
        of = SnapshotOf(self._application, self._cluster(), str(task), opened.layout)
        in_transactions = opened.written if self._transactional else frozenset()
        place.put_manifest(Manifest(of, positions, files, topic_ids, taken_ms, in_transactions))
        upload.begin("the files of older snapshots")
        self._uploaded[task] = positions
        place.prune(of, _KEPT_PER_TASK, upload.begin)

    # -- fetching --------------------------------------------------------------------------------------------

    def _fetch(self, fetch: Download, task: TaskId, layout: Mapping[str, str]) -> None:
        folder: str | None = None
        try:
            fetch.begin("the list of its snapshots")
            place = TaskSnapshots(self._storage, self._application, str(task))
            wanted = SnapshotOf(self._application, self._cluster(), str(task), layout)
            for name in place.names():
                fetch.begin(f"snapshot {name}")
                try:
                    self._fetch_files(fetch, task, place, name, wanted)
                except (SnapshotError, FileNotFoundError) as error:  # its owner may be deleting it
                    if fetch.given_up:  # the local folder is gone
                        raise
                    _log.warning("task %s: skipping snapshot %s: %s", task, name, error)
                    continue
                folder = fetch.folder
                _log.info("task %s: starting from snapshot %s", task, name)
                break
        except Exception as error:
            if not fetch.given_up:
                _log.warning(
                    "task %s: cannot download a snapshot, replaying its changelogs instead: %s", task, text_of(error)
                )
        finally:
            if folder is None:  # delete before the task can continue
                shutil.rmtree(fetch.folder, ignore_errors=True)
            with self._lock:
                fetch.result = None if fetch.given_up else folder
                fetch.ended_ms = self._now_ms()
                fetch.done.set()
            if fetch.result != folder:  # given up meanwhile
                shutil.rmtree(fetch.folder, ignore_errors=True)

    def _fetch_files(self, fetch: Download, task: TaskId, place: TaskSnapshots, name: str, wanted: SnapshotOf) -> None:
        manifest = place.manifest(name)
        manifest.check(wanted)
        if not manifest.positions:
            raise SnapshotError("it has no changelog positions, so everything would be replayed anyway")
        known = self._known(fetch, task, name, manifest.positions.keys())
        self._check_positions(manifest, known, time_of(name) if manifest.taken_ms is None else manifest.taken_ms)
        shutil.rmtree(fetch.folder, ignore_errors=True)
        _check_space(manifest, os.path.dirname(fetch.folder))
        make_folder(fetch.folder)  # not its parents: the task may have been deleted
        for file_name, file in manifest.files.items():
            path = os.path.join(fetch.folder, file_name)
            fetch.begin_file(f"{file_name} of snapshot {name}", path)
            place.get_file(file, path)
        fetch.begin(f"snapshot {name}")
        _force_names(fetch.folder)

    def _known(
        self, fetch: Download, task: TaskId, name: str, changelogs: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ChangelogNow]:
        """Look up the changelogs of a snapshot, waiting for the cluster as long as necessary.

        No later check would detect a snapshot that is too old. And without the cluster, replaying would not work
        either.
        """
        warned_ms: int | None = None
        fetch.waits_for_cluster = True
        try:
            while True:
                fetch.begin(f"the changelog offsets for snapshot {name}")
                try:
                    return self._offsets(changelogs)
                except BrokerUnavailableError as error:
                    now_ms = self._now_ms()
                    if warned_ms is None or now_ms - warned_ms >= _WARNING_MS:
                        warned_ms = now_ms
                        _log.warning("task %s: cannot check snapshot %s yet: %s; retrying", task, name, error)
                self._stop.wait(_ASK_AGAIN_S)
        finally:
            fetch.waits_for_cluster = False

    def _check_positions(self, manifest: Manifest, known: Mapping[TopicPartition, ChangelogNow], taken_ms: int) -> None:
        for changelog in sorted(manifest.positions):
            # In a transactional changelog, a marker follows the last record of the snapshot. So an end offset that is
            # larger by one does not mean that there are new records: those would add at least a record and a marker.
            markers = 1 if self._transactional and changelog.topic in manifest.in_transactions else 0
            end = manifest.positions[changelog] + 1 + markers
            self._check_age(changelog, known.get(changelog), end, taken_ms)
        for changelog, (first, end, topic_id, _) in known.items():
            at, id_then = manifest.positions[changelog] + 1, manifest.topic_ids.get(changelog.topic)
            if id_then is not None and topic_id is not None and id_then != topic_id:
                raise SnapshotError(f"topic {changelog.topic} was deleted and created again since")
            if at > end:
                raise SnapshotError(
                    f"it is at offset {at} of {changelog}, which ends at {end}: this is a different changelog"
                )
            if at < first:
                raise SnapshotError(
                    f"it is at offset {at} of {changelog}, which now starts at {first}: the snapshot is too old"
                )

    def _check_age(self, changelog: TopicPartition, now: ChangelogNow | None, end: int, taken_ms: int) -> None:
        """Check that the changelog still has every tombstone written since the snapshot.

        Keys that were deleted since are deleted when their tombstones are replayed. Compaction removes tombstones after
        ``delete.retention.ms``; from then on such a key would stay forever. No later check would detect this.

        Args:
            changelog: The changelog partition.
            now: Its current offsets; None: unknown.
            end: The end offset that it has without new records.
            taken_ms: A time at which the snapshot was complete.

        Raises:
            SnapshotError: The snapshot is too old.
        """
        retention_ms = DELETE_RETENTION_MS if now is None else now.delete_retention_ms
        if retention_ms is None or (now is not None and now.end <= end):
            return  # the topic is not compacted, or has not changed
        age_ms = self._now_ms() - taken_ms
        if age_ms >= retention_ms - retention_ms // _SHARE_TO_REPLAY:
            raise SnapshotError(
                f"it is {age_ms / _HOUR_MS:.1f} h old, and topic {changelog.topic} keeps tombstones for "
                f"{retention_ms / _HOUR_MS:.1f} h (delete.retention.ms), of which a tenth is reserved for replaying: "
                "keys that were deleted since could reappear"
            )


def _check_space(manifest: Manifest, folder: str) -> None:
    """Check that the disk has room for a snapshot. A full disk would stop all tasks of the process.

    Raises:
        SnapshotError: The disk has not enough free space.
    """
    size, free = sum(file.size for file in manifest.files.values()), shutil.disk_usage(folder).free
    if size > free - free // _SHARE_TO_LEAVE_FREE:
        raise SnapshotError(
            f"its files have {size} bytes, but {folder} has {free} bytes free, of which a tenth is reserved"
        )


def _remove_left(folder: str) -> None:
    """Delete what downloads and uploads have left in a task's directory."""
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith((_MAKE, _FETCH)):
                shutil.rmtree(entry.path, ignore_errors=True)


def _force_names(folder: str) -> None:
    with contextlib.suppress(OSError):  # not every file system supports fsync of a folder
        force_to_disk(folder)


def _hashed(path: str, name: str, hashes: dict[tuple[str, int], SnapshotFile]) -> SnapshotFile:
    if not name.endswith(".sst"):  # only these never change
        return hash_of(path)
    at = (name, os.stat(path).st_ino)
    known = hashes.get(at)
    if known is None:
        known = hashes[at] = hash_of(path)
    return known
