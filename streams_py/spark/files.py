"""A folder on any file system that Spark knows, through Hadoop's own classes: local disks, HDFS, object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams_py.spark.session import check_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folder"]


class Folder:
    """Everything is named by path components below ``root``. Driver only. ConfigError with Spark Connect."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        check_classic(spark)
        self._spark = spark
        self.root = root.rstrip("/") or "/"

    def path(self, *names: str) -> str:
        """A path below the folder."""
        return "/".join([self.root, *names])

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
