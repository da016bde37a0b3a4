"""The folder of a run: what was ordered, the scores, and how far it is.

    <out>/backtest.json                  the orders, so that a resumed run is the same run
    <out>/scores/prefix=ab/*.parquet     rows of the situations whose hash begins with ab
    <out>/done/<first>-<last>            the prefixes between the two are complete
    <out>/summary.json, report.html

A run that was killed goes on with the prefixes that are not done; what it had begun of them is written again.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from streams_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PREFIXES", "SCORES", "HadoopFiles", "LocalFiles", "RunFolder"]

PREFIXES: Final = tuple(f"{number:02x}" for number in range(256))
SCORES: Final = "scores"
_MARKER: Final = "backtest.json"
_FORMAT: Final = 1


class Files(Protocol):
    """The little that is needed of a file system. Paths are texts."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; none when it is not there."""

    def read(self, path: str) -> str: ...
    def write(self, path: str, text: str) -> None:
        """Make the file and its folders, or replace it."""

    def remove(self, path: str) -> None:
        """A file or a whole folder, if it is there."""


class LocalFiles:
    """Files of this machine."""

    def names(self, folder: str) -> list[str]:
        """See :class:`Files`."""
        return sorted(os.listdir(folder)) if Path(folder).is_dir() else []

    def read(self, path: str) -> str:
        """See :class:`Files`."""
        return Path(path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        """See :class:`Files`."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"{target.name}.draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)

    def remove(self, path: str) -> None:
        """See :class:`Files`."""
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)


class HadoopFiles:
    """Files of any system that Spark knows (``hdfs:``, ``s3a:``, ...)."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def _at(self, path: str) -> tuple[Any, Any]:
        jvm: Any = self._spark.sparkContext._jvm
        where = jvm.org.apache.hadoop.fs.Path(path)
        configuration: Any = self._spark.sparkContext._jsc.hadoopConfiguration()
        return where.getFileSystem(configuration), where

    def names(self, folder: str) -> list[str]:
        """See :class:`Files`."""
        files, where = self._at(folder)
        if not files.exists(where):
            return []
        return sorted(str(status.getPath().getName()) for status in files.listStatus(where))

    def read(self, path: str) -> str:
        """See :class:`Files`."""
        found = self._spark.read.option("wholetext", True).text(path).first()
        return "" if found is None else str(found[0])

    def write(self, path: str, text: str) -> None:
        """See :class:`Files`."""
        files, where = self._at(path)
        stream = files.create(where, True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def remove(self, path: str) -> None:
        """See :class:`Files`."""
        files, where = self._at(path)
        files.delete(where, True)


class RunFolder:
    """The folder of one run."""

    def __init__(self, root: str, files: Files | None = None) -> None:
        self.root = root.rstrip("/") or "/"
        self.files: Files = files if files is not None else LocalFiles()

    def path(self, *names: str) -> str:
        """A path below the folder."""
        return "/".join([self.root, *names])

    def claim(self, fingerprint: str, *, resume: bool) -> None:
        """Begin a run, or go on with it. ConfigError when the folder is not empty, or is that of another run."""
        names = self.files.names(self.root)
        if not resume:
            if names:
                raise ConfigError(
                    f"{self.root} is not empty; use a new folder, or --resume to go on with the run that is in it"
                )
        elif _MARKER in names:
            found = json.loads(self.files.read(self.path(_MARKER)))
            if found != _marked(fingerprint):
                raise ConfigError(
                    f"{self.root} has a run with other candidates, what-ifs, inputs or options; repeat them exactly to "
                    "go on with it, or use a new folder"
                )
            return
        elif names:
            raise ConfigError(f"{self.root} is not empty and holds no run to resume; use a new folder")
        self.files.write(self.path(_MARKER), json.dumps(_marked(fingerprint)) + "\n")

    def done(self) -> frozenset[str]:
        """The prefixes that are complete."""
        found: set[str] = set()
        for name in self.files.names(self.path("done")):
            first, dash, last = name.partition("-")
            if dash:
                found.update(prefix for prefix in PREFIXES if first <= prefix <= last)
        return frozenset(found)

    def mark_done(self, first: str, last: str) -> None:
        """The prefixes from ``first`` to ``last`` are complete."""
        self.files.write(self.path("done", f"{first}-{last}"), "")


def _marked(fingerprint: str) -> dict[str, Any]:
    return {"format": _FORMAT, "orders": json.loads(fingerprint)}
