"""A folder on any file system that Spark knows, through Hadoop's own classes: local disks, HDFS, object stores.

On a cluster a path without a scheme is a folder of every machine, unless they share it. What workers write there is not
where the driver looks for it, and Spark takes that for a success: nobody would see that it is gone. So it is tried.
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

__all__ = ["Folder", "check_shared"]


_TRIED: Final = "is-it-shared"
_FILES_MIN, _FILES_MAX = 16, 256
"""So many files are tried, so that every machine has some."""


def check_shared(spark: SparkSession, root: str, option: str) -> None:
    """ConfigError when files that workers put into a folder are not there for the driver. ``option`` names it."""
    if is_local(str(spark.sparkContext.master)):
        return
    count = min(max(4 * spark.sparkContext.defaultParallelism, _FILES_MIN), _FILES_MAX)
    folder = Folder(spark, root)
    try:
        _write_files(spark, folder.path(_TRIED), count)
        found = spark.read.schema("id bigint").parquet(folder.path(_TRIED)).count()
    except Exception as error:  # of Hadoop's file systems
        why = sentence_of(error)
        raise ConfigError(
            f"{option}: the workers cannot write to {root}, or read what others have written there ({why}); name a "
            "folder that all machines share",
            key=option,
        ) from error
    finally:
        with contextlib.suppress(Exception):  # why it cannot be used is said
            folder.remove(_TRIED)
    if found < count:
        raise ConfigError(
            f"{option}: of {count} files that the workers have put into {root} the driver sees {found}; name a folder "
            "that all machines share",
            key=option,
        )


def _write_files(spark: SparkSession, path: str, count: int) -> None:
    """A file with one row for each of so many tasks."""
    spark.range(0, count, 1, count).write.mode("overwrite").parquet(path)


class Folder:
    """Everything is named by path components below ``root``. Driver only. ConfigError with Spark Connect."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        check_classic(spark)
        self._spark = spark
        self.root = root.rstrip("/") or "/"

    def path(self, *names: str) -> str:
        """A path below the folder."""
        return "/".join([self.root, *names])

    def on_disk(self) -> Path | None:
        """Where it is on a disk that this machine has or mounts; None on other file systems."""
        files, where = self._hadoop()
        is_on_disk = files.getUri().getScheme() == "file"
        return Path(str(files.makeQualified(where).toUri().getPath())) if is_on_disk else None

    def lock(self, option: str) -> FileLock | LockHolder | None:
        """Make the folder, and keep other processes out, or who does that already; None where it is not on a disk.
        ConfigError when it cannot be made. ``option`` names it."""
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
        """Whether there is anything at a path."""
        files, where = self._hadoop(*names)
        return bool(files.exists(where))

    def children(self, *names: str) -> list[str]:
        """Names of what is in a folder, sorted; empty when there is no such folder."""
        if not self.exists(*names):
            return []
        files, where = self._hadoop(*names)
        return sorted(str(status.getPath().getName()) for status in files.listStatus(where))

    def remove(self, *names: str) -> None:
        """Delete a file or a folder with all it has; nothing happens when it is not there."""
        files, where = self._hadoop(*names)
        files.delete(where, True)

    def rename(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Move a folder, making those above its new place. OSError when the file system refuses."""
        files, to = self._hadoop(*target)
        files.mkdirs(to.getParent())
        _, where = self._hadoop(*source)
        if not files.rename(where, to):
            raise OSError(f"{self.path(*source)} could not be moved to {self.path(*target)}")

    def replace(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Move a folder over another one."""
        self.remove(*target)
        self.rename(source, target)

    def read_text(self, *names: str) -> str:
        """A small text file."""
        rows = self._spark.read.text(self.path(*names), wholetext=True).collect()
        return str(rows[0][0]) if rows else ""  # an empty file has none

    def write_text(self, text: str, *names: str) -> None:
        """Make a small text file."""
        files, where = self._hadoop(*names)
        stream = files.create(where)
        stream.write(bytearray(text.encode()))
        stream.close()

    def write_bytes(self, content: bytes, *names: str) -> None:
        """Make a small file, in place of one that is there: it is complete as soon as it has this name."""
        staged = (*names[:-1], f"_{names[-1]}.new")  # readers of folders pass over such names
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
