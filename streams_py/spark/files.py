"""A folder on any file system that Spark supports, through Hadoop's classes: local disks, HDFS, object stores.

On a cluster, a path without a scheme is a different folder on each machine unless the machines share it. Then the
driver does not find files that workers have written, but Spark reports success. So :func:`check_shared` tests it first.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streams_py.errors import ConfigError
from streams_py.spark.failures import sentence_of
from streams_py.spark.session import check_classic, is_local
from streams_py.system.file_locks import LOCK_FILE, FileLock, LockHolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIED: Final = "is-it-shared"
_FILES_MIN, _FILES_MAX = 16, 256
"""Bounds for the number of test files. Every machine should write some."""


def check_shared(spark: SparkSession, root: str, option: str) -> None:
    """Raise ConfigError when the driver does not see files that workers write to a folder.

    ``option`` is the option that names the folder, for the message.
    """
    if is_local(str(spark.sparkContext.master)):
        return
    count = min(max(4 * spark.sparkContext.defaultParallelism, _FILES_MIN), _FILES_MAX)
    folder = Folder(spark, root)
    try:
        _write_files(spark, folder.path(_TRIED), count)
        found = spark.read.schema("id bigint").parquet(folder.path(_TRIED)).count()
    except Exception as error:  # Hadoop's file systems raise any type
        why = sentence_of(error)
        raise ConfigError(
            f"{option}: the workers cannot write to {root}, or cannot read files of other workers there ({why}); name "
            "a folder that all machines share",
            key=option,
        ) from error
    finally:
        with contextlib.suppress(Exception):  # the reason is reported already
            folder.remove(_TRIED)
    if found < count:
        raise ConfigError(
            f"{option}: the workers have written {count} files to {root}, but the driver sees {found}; name a folder "
            "that all machines share",
            key=option,
        )


def _write_files(spark: SparkSession, path: str, count: int) -> None:
    """Write ``count`` files with one row each, in one task each."""
    spark.range(0, count, 1, count).write.mode("overwrite").parquet(path)


class Folder:
    """A folder. Methods take path components below ``root``. For the driver only.

    Raises ConfigError with Spark Connect.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        check_classic(spark)
        self._spark = spark
        self.root = root.rstrip("/") or "/"

    def path(self, *names: str) -> str:
        """Return a path below the folder."""
        return "/".join([self.root, *names])

    def on_disk(self) -> Path | None:
        """Return the local path of the folder; None if it is on a file system that is not mounted here."""
        files, where = self._hadoop()
        is_on_disk = files.getUri().getScheme() == "file"
        return Path(str(files.makeQualified(where).toUri().getPath())) if is_on_disk else None

    def lock(self, option: str) -> FileLock | LockHolder | None:
        """Create the folder and lock it against other processes.

        Args:
            option: the option that names the folder, for the message.

        Returns:
            The lock, or the holder if another process has it. None if the folder is not on a disk of this machine.

        Raises:
            ConfigError: the folder cannot be created.
        """
        place = self.on_disk()
        if place is None:
            return None
        try:
            place.mkdir(parents=True, exist_ok=True)
            return FileLock.take(place / LOCK_FILE)
        except OSError as error:
            raise ConfigError(
                f"{option}: {place} cannot be written ({error.strerror}); name another folder", key=option
            ) from None

    def exists(self, *names: str) -> bool:
        """Whether a path exists."""
        files, where = self._hadoop(*names)
        return bool(files.exists(where))

    def children(self, *names: str) -> list[str]:
        """Return the sorted names of files and folders in a folder; empty when it does not exist."""
        if not self.exists(*names):
            return []
        files, where = self._hadoop(*names)
        return sorted(str(status.getPath().getName()) for status in files.listStatus(where))

    def remove(self, *names: str) -> None:
        """Delete a file, or a folder with its contents. Does nothing when it does not exist."""
        files, where = self._hadoop(*names)
        files.delete(where, True)

    def rename(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Move a folder and create the parents of its new path. Raises OSError when the file system refuses."""
        files, to = self._hadoop(*target)
        files.mkdirs(to.getParent())
        _, where = self._hadoop(*source)
        if not files.rename(where, to):
            raise OSError(f"{self.path(*source)} could not be moved to {self.path(*target)}")

    def replace(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Delete ``target`` and move a folder to its path."""
        self.remove(*target)
        self.rename(source, target)

    def read_text(self, *names: str) -> str:
        """Read a small text file."""
        rows = self._spark.read.text(self.path(*names), wholetext=True).collect()
        return str(rows[0][0]) if rows else ""  # an empty file gives no row

    def write_text(self, text: str, *names: str) -> None:
        """Create a small text file."""
        files, where = self._hadoop(*names)
        stream = files.create(where)
        stream.write(bytearray(text.encode()))
        stream.close()

    def write_bytes(self, content: bytes, *names: str) -> None:
        """Write a small file, replacing an existing one. A file with this name is always complete."""
        staged = (*names[:-1], f"_{names[-1]}.new")  # Spark ignores files with such names
        files, where = self._hadoop(*staged)
        stream = files.create(where, True)
        stream.write(bytearray(content))
        stream.close()
        self.replace(staged, names)

    def _hadoop(self, *names: str) -> tuple[Any, Any]:
        jvm: Any = self._spark.sparkContext._jvm
        where = jvm.org.apache.hadoop.fs.Path(self.path(*names))
        configuration: Any = self._spark.sparkContext._jsc.hadoopConfiguration()
        return where.getFileSystem(configuration), where
