"""The storage of snapshots: a folder per task, at any URL that fsspec supports.

    <url>/<application.id>/<task>/files/<sha256>
    <url>/<application.id>/<task>/manifests/<time in ms>-<random>.json

Files are named by the hash of their content. So a file that two snapshots share is stored once, and a RocksDB table
file, which never changes, is uploaded once.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any, Final

from streams_py.config.keys import masked
from streams_py.config.secrets import redact
from streams_py.errors import ConfigError, SnapshotError
from streams_py.state.directory.checkpoint import force_to_disk
from streams_py.state.snapshots.manifest import Manifest, SnapshotFile, SnapshotOf
from streams_py.system.printable import named
from streams_py.system.private_files import FILE_MODE, FOLDER_MODE, check_folder, check_shared_folder, make_folder

_MANIFEST_BYTES_MAX: Final = 32 << 20
_BLOCK_BYTES: Final = 1 << 20


def open_storage(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it.

    Raises:
        ConfigError: The URL is not valid, a package for it is not installed, or another user controls the folder.
    """
    key = "state.snapshot.store"
    try:
        import fsspec
    except ImportError as error:
        raise ConfigError(f"{key} needs fsspec: pip install 'kafka-streams-py[snapshots]'", key=key) from error
    try:
        files, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise ConfigError(f"{key} = {masked(key, url)} cannot be used: {redact(named(error))}", key=key) from None
    root = root.rstrip("/")
    if _is_local(files) and os.path.lexists(root):
        try:
            check_shared_folder(root)
        except OSError as error:
            raise ConfigError(f"{key}: {error}", key=key) from error
    return files, root


def _is_local(files: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(files, LocalFileSystem)


class TaskSnapshots:
    """The snapshots of one task. Methods raise the errors of the file system (mostly OSError)."""

    def __init__(self, storage: tuple[Any, str], application: str, task: str) -> None:
        self._fs, root = storage
        self._root = root
        self._files = f"{root}/{application}/{task}/files"
        self._manifests = f"{root}/{application}/{task}/manifests"
        self._fs.invalidate_cache()  # its cached listings: other processes write and delete there

    def names(self) -> list[str]:
        """Return the names of all snapshots, newest first. Some may not be usable."""
        return sorted(self._list(self._manifests, ".json"), reverse=True)

    def manifest(self, name: str) -> Manifest:
        """Read the manifest of a snapshot.

        Raises:
            SnapshotError: The file is not a valid manifest.
        """
        path = f"{self._manifests}/{name}"
        self._check_folder(self._manifests)
        if self._fs.size(path) > _MANIFEST_BYTES_MAX:
            raise SnapshotError("its manifest is too large")
        return Manifest.decode(self._fs.cat_file(path))

    def put_file(self, local: str, file: SnapshotFile, note_part: Callable[[], object]) -> None:
        """Upload a file, unless it is there already.

        A file left by an interrupted upload has a smaller size, and is replaced.

        Args:
            local: Path of the local file.
            file: Hash and size of the file.
            note_part: Called whenever a part has been uploaded, if the file system reports that.
        """
        from fsspec.callbacks import Callback

        remote = f"{self._files}/{file.sha256}"
        if not (self._fs.exists(remote) and self._fs.size(remote) == file.size):
            self._make_folder(self._files)
            self._fs.put_file(local, remote, callback=Callback(hooks={"part": lambda *_, **__: note_part()}))
            self._close_to_others(remote)

    def put_manifest(self, manifest: Manifest) -> None:
        """Upload the manifest, which completes a snapshot. All of its files must have been uploaded."""
        self._make_folder(self._manifests)
        now_ms = time.time_ns() // 1_000_000
        newest_ms = max((time_of(name) for name in self.names()), default=0)  # another machine's clock may be ahead
        name = f"{max(now_ms, newest_ms + 1):015d}-{uuid.uuid4().hex[:8]}.json"
        path = f"{self._manifests}/{name}"
        self._fs.pipe_file(path, manifest.encode())
        self._close_to_others(path)

    def get_file(self, file: SnapshotFile, local: str) -> None:
        """Download a file, verify its hash, and sync it to disk.

        Without the sync, a power failure could lose a file that the database refers to, and the database could not be
        opened.

        Raises:
            SnapshotError: The file is missing, or differs from the manifest.
        """
        remote = f"{self._files}/{file.sha256}"
        self._check_folder(self._files)
        if not self._fs.exists(remote) or self._fs.size(remote) != file.size:
            raise SnapshotError(f"its file {file.sha256[:12]} is missing or incomplete")
        self._fs.get_file(remote, local, callback=_bounded(file.size))
        if hash_of(local) != file:
            raise SnapshotError(f"its file {file.sha256[:12]} differs from the uploaded one (wrong SHA-256 or size)")
        force_to_disk(local)

    def prune(self, of: SnapshotOf, keep: int, begin: Callable[[str], object]) -> None:
        """Delete old snapshots, and the files that no remaining snapshot needs.

        Args:
            of: The state whose snapshots are deleted. Snapshots of other state, such as another cluster or topology,
                are kept.
            keep: Number of the newest snapshots to keep.
            begin: Called with a description of each step before it starts. May raise to stop.
        """
        unwanted: list[str] = []
        needed: set[str] = set()
        for name in self.names():
            begin(f"snapshot {name}")
            try:
                manifest = self.manifest(name)
            except SnapshotError:  # left by a killed process; or currently being written, then it is newer
                if keep <= 0:
                    unwanted.append(name)
                continue
            if manifest.is_of(of):
                keep -= 1
                if keep < 0:
                    unwanted.append(name)
                    continue
            needed.update(file.sha256 for file in manifest.files.values())
        self._remove(self._manifests, unwanted, begin)
        self._remove(self._files, set(self._list(self._files, "")) - needed, begin)

    def _make_folder(self, folder: str) -> None:
        """Create a folder below the URL. In the local file system only this user may access it, as with all state."""
        if not _is_local(self._fs):
            self._fs.makedirs(folder, exist_ok=True)
            return
        os.makedirs(self._root, mode=FOLDER_MODE, exist_ok=True)
        check_shared_folder(self._root)
        level = self._root
        for name in folder.removeprefix(self._root).strip("/").split("/"):
            level = f"{level}/{name}"
            make_folder(level)

    def _check_folder(self, folder: str) -> None:
        """Check that no other user of this host can have written the files in a folder below the URL.

        Another user may have created it where all users may create folders.
        """
        if not _is_local(self._fs) or not os.path.lexists(folder):
            return
        check_shared_folder(self._root)
        level = self._root
        for name in folder.removeprefix(self._root).strip("/").split("/"):
            level = f"{level}/{name}"
            check_folder(level)

    def _close_to_others(self, path: str) -> None:
        if _is_local(self._fs):
            os.chmod(path, FILE_MODE)

    def _list(self, folder: str, ending: str) -> list[str]:
        self._check_folder(folder)
        try:
            found = self._fs.ls(folder, detail=False)
        except FileNotFoundError:
            return []
        return [name for name in (path.rstrip("/").rsplit("/", 1)[-1] for path in found) if name.endswith(ending)]

    def _remove(self, folder: str, names: Collection[str], begin: Callable[[str], object]) -> None:
        for name in names:
            begin(f"the deletion of {name}")
            self._fs.rm_file(f"{folder}/{name}")


def _bounded(size: int) -> Any:
    """Return a callback that stops a download after ``size`` bytes.

    An object store may send more bytes than the size that it reports.
    """
    from fsspec.callbacks import Callback

    class Bound(Callback):  # type: ignore[misc]
        def call(self, *args: Any, **kwargs: Any) -> None:
            if self.value > size:
                raise SnapshotError(f"its file is larger than the {size} bytes in the manifest")

    return Bound()


def time_of(manifest: str) -> int:
    """Return the time in a manifest's name, in ms; 0 when the name has none."""
    time_ms = manifest.partition("-")[0]
    return int(time_ms) if re.fullmatch("[0-9]{15}", time_ms) else 0


def hash_of(path: str) -> SnapshotFile:
    """Return the hash and size of a local file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return SnapshotFile(digest.hexdigest(), os.path.getsize(path))
