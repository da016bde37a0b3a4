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

__all__ = ["DELETE_RETENTION_MS", "ChangelogNow", "KnownOffsets", "Snapshots"]

_log = logging.getLogger("streams_py")

_FETCH: Final = "snapshot-fetch"
_MAKE: Final = "snapshot-make"

_NOTICE_S: Final = 600.0
"""Within so long a process that was frozen has noticed that its tasks are somebody else's."""
DELETE_RETENTION_MS: Final = 86_400_000
"""Kafka's default of ``delete.retention.ms``, for topics whose configuration may not be read."""
_FETCHED_MAX_MS: Final = 600_000
"""What was fetched longer ago, for a task that went away before it was opened, is fetched anew: there are newer ones,
and it may be too old by now."""
_HOUR_MS: Final = 3_600_000
_SHARE_TO_REPLAY: Final = 10
"""Of that time a tenth is for fetching, and for replaying what came since."""
_SILENCE_MAX_MS: Final = 120_000
"""A store that brings nothing for so long is given up. Clients of object stores have time-outs of about a minute, and
try again."""
_UPLOAD_SILENCE_MAX_MS: Final = 600_000
"""The same of uploads, for which nobody waits: their clients tell of parts of 50 MB, and some only of whole files."""
_ASK_AGAIN_S: Final = 0.5
_WARNING_MS: Final = 10_000
"""So often it is said that the cluster does not answer, while that lasts."""
_LOOK_S: Final = 2.0
_HANGING_MAX: Final = 8
"""Threads that wait for a store which may never answer. With so many, nothing more is uploaded."""


class ChangelogNow(NamedTuple):
    """First and end offset of a changelog partition, its topic's id, where the cluster gives one, and the topic's
    ``delete.retention.ms``; None when it is not compacted."""

    first: int
    end: int
    topic_id: str | None = None
    delete_retention_ms: int | None = DELETE_RETENTION_MS


KnownOffsets = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, ChangelogNow]]
"""Changelog partitions as far as known."""


class _Open(NamedTuple):
    """A task that is uploaded; the changelog topics that it writes itself; and the hashes of the files that it has:
    another database may have others under the same names, and the same numbers in the file system."""

    database: TaskDatabase
    layout: Mapping[str, str]
    written: frozenset[str]
    hashes: dict[tuple[str, int], SnapshotFile]


class Snapshots:
    """The snapshots of one client's tasks. Thread-safe.

    ``storage`` is that of :func:`~streams_py.state.snapshots.storage.open_storage`; ``keep`` snapshots of each task are
    left. ``interval_s`` 0: only :meth:`upload_all` uploads. ``transactional``: whether tasks write to changelogs in
    transactions. ``now_ms`` is the wall clock.
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
        keep: int = 2,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._storage = storage
        self._application = application
        self._cluster = cluster
        self._offsets = offsets
        self._transactional = transactional
        self._keep = keep
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._open: dict[TaskId, _Open] = {}
        self._fetches: dict[TaskId, Download] = {}
        self._hanging: list[Upload] = []  # that were given up
        self._uploaded: dict[TaskId, Mapping[TopicPartition, int]] = {}
        self._stop = threading.Event()
        if interval_s > 0:
            threading.Thread(target=self._run, args=(interval_s,), name="state-snapshots", daemon=True).start()

    def stop(self) -> None:
        """No more uploads; one that is under way is left without a manifest. Downloads end with the file that they are
        at."""
        self._stop.set()
        with self._lock:
            for fetch in self._fetches.values():
                fetch.given_up = True

    # -- of tasks --------------------------------------------------------------------------------------------

    def before_open(self, task: TaskId, folder: str, layout: Mapping[str, str]) -> bool:
        """Fill a task's folder, if it has no database and there is a snapshot; True when that is there now. LockError
        while it takes time: the caller comes again. A store that brings nothing for two minutes is given up."""
        if has_database(folder):
            _remove_left(folder)  # by a process that was killed
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
                "task %s: nothing came of %s for %d s, its snapshot is given up and its changelogs are replayed",
                task,
                fetch.what,
                _SILENCE_MAX_MS // 1_000,
            )
        elif fetch.result is not None and os.path.isdir(fetch.result):
            database = os.path.join(folder, DATABASE_DIRECTORY)
            shutil.rmtree(database, ignore_errors=True)  # there is none in it
            os.replace(fetch.result, database)
            _force_names(folder)
            return True
        return False

    def opened(
        self, task: TaskId, database: TaskDatabase, layout: Mapping[str, str], logs: Collection[TopicPartition]
    ) -> None:
        """Upload this one from now on. ``logs``: the changelogs that nobody but its owner writes."""
        with self._lock:
            self._open[task] = _Open(database, layout, frozenset(log.topic for log in logs), {})

    def closing(self, task: TaskId) -> None:
        """The task's database is about to be closed: no copies are made of it any more."""
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
        """Make a snapshot of every open task that has moved since the last one; how many. ``taken_ms``: a time at which
        nobody else had these tasks, so that nothing of their changelogs was missing; now, if not given."""
        taken_ms = self._now_ms() if taken_ms is None else taken_ms
        with self._lock:
            tasks = sorted(self._open.items())
        return sum(self._upload(task, opened, taken_ms) for task, opened in tasks)

    def _upload(self, task: TaskId, opened: _Open, taken_ms: int) -> bool:
        """On a thread of its own, which is left alone when it hangs in the store."""
        self._hanging = [one for one in self._hanging if not one.done.is_set()]
        if self._stop.is_set():
            return False
        if len(self._hanging) >= _HANGING_MAX:
            _log.warning("task %s: no snapshot is made while %d uploads hang", task, len(self._hanging))
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
                    "task %s: nothing went of %s for %d s, its snapshot is given up, trying again later",
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
                return  # without positions all would be replayed, whatever is in it
            self._upload_folder(upload, task, *copied, opened, taken_ms)
            upload.is_made = True
        except Exception as error:
            if not upload.given_up:
                _log.warning("task %s: no snapshot was made, trying again later: %s", task, text_of(error))
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
            upload.begin_file(name)
            place.put_file(path, files[name], upload.note_part)
        upload.begin("the manifest")
        for gone in [at for at in opened.hashes if at[0] not in files]:
            del opened.hashes[gone]
        of = SnapshotOf(self._application, self._cluster(), str(task), opened.layout)
        in_transactions = opened.written if self._transactional else frozenset()
        place.put_manifest(Manifest(of, positions, files, topic_ids, taken_ms, in_transactions))
        upload.begin("what older snapshots needed")
        self._uploaded[task] = positions
        place.prune(of, self._keep, upload.begin)

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
                except (SnapshotError, FileNotFoundError) as error:  # also one that its owner deletes meanwhile
                    if fetch.given_up:  # and its folder is gone
                        raise
                    _log.warning("task %s: snapshot %s is not used: %s", task, name, error)
                    continue
                folder = fetch.folder
                _log.info("task %s starts from snapshot %s", task, name)
                break
        except Exception as error:
            if not fetch.given_up:
                _log.warning(
                    "task %s: no snapshot can be fetched, its changelogs are replayed: %s", task, text_of(error)
                )
        finally:
            if folder is None:  # before its task goes on
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
            raise SnapshotError("it has no positions: all would be replayed")
        known = self._known(fetch, task, name, manifest.positions.keys())
        self._check_positions(manifest, known, time_of(name) if manifest.taken_ms is None else manifest.taken_ms)
        shutil.rmtree(fetch.folder, ignore_errors=True)
        make_folder(fetch.folder)  # not what is above it: the task may be gone
        for file_name, file in manifest.files.items():
            path = os.path.join(fetch.folder, file_name)
            fetch.begin_file(f"{file_name} of snapshot {name}", path)
            place.get_file(file, path)
        fetch.begin(f"snapshot {name}")
        _force_names(fetch.folder)

    def _known(
        self, fetch: Download, task: TaskId, name: str, changelogs: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ChangelogNow]:
        """However long that takes: nobody else finds out that it is too old, and without the cluster nothing could be
        replayed, either."""
        warned_ms: int | None = None
        while True:
            fetch.begin(f"what the cluster says of snapshot {name}", self._now_ms)
            try:
                return self._offsets(changelogs)
            except BrokerUnavailableError as error:
                now_ms = self._now_ms()
                if warned_ms is None or now_ms - warned_ms >= _WARNING_MS:
                    warned_ms = now_ms
                    _log.warning("task %s: snapshot %s is not used yet: %s; asking again", task, name, error)
            self._stop.wait(_ASK_AGAIN_S)

    def _check_positions(self, manifest: Manifest, known: Mapping[TopicPartition, ChangelogNow], taken_ms: int) -> None:
        for changelog in sorted(manifest.positions):
            # A record in a transaction has a marker behind it. So one offset more than there was is that of the last
            # record then, and not both of a new one.
            markers = 1 if self._transactional and changelog.topic in manifest.in_transactions else 0
            end = manifest.positions[changelog] + 1 + markers
            self._check_age(changelog, known.get(changelog), end, taken_ms)
        for changelog, (first, end, topic_id, _) in known.items():
            at, id_then = manifest.positions[changelog] + 1, manifest.topic_ids.get(changelog.topic)
            if id_then is not None and topic_id is not None and id_then != topic_id:
                raise SnapshotError(f"topic {changelog.topic} was deleted and created anew since")
            if at > end:
                raise SnapshotError(f"it is at {at} of {changelog}, which ends at {end}: that is another changelog")
            if at < first:
                raise SnapshotError(f"it is at {at} of {changelog}, which begins at {first} by now: it is too old")

    def _check_age(self, changelog: TopicPartition, now: ChangelogNow | None, end: int, taken_ms: int) -> None:
        """What was deleted since is a record to be replayed, until compaction removes it: a key that was deleted by
        then would be there for ever. Nobody else finds out. ``end``: of the changelog, if nothing came since."""
        retention_ms = DELETE_RETENTION_MS if now is None else now.delete_retention_ms
        if retention_ms is None or (now is not None and now.end <= end):
            return  # nothing is compacted, or nothing came since
        age_ms = self._now_ms() - taken_ms
        if age_ms >= retention_ms - retention_ms // _SHARE_TO_REPLAY:
            raise SnapshotError(
                f"it is {age_ms / _HOUR_MS:.1f} h old, and topic {changelog.topic} keeps deletions for "
                f"{retention_ms / _HOUR_MS:.1f} h (delete.retention.ms), a tenth of them to replay in: keys that were "
                "deleted since could stay"
            )


def _remove_left(folder: str) -> None:
    """What downloads and uploads have left in a task's folder."""
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith((_MAKE, _FETCH)):
                shutil.rmtree(entry.path, ignore_errors=True)


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
