"""The folder for what the stages of a run write. It belongs to one run at a time, until its results are closed: they
are read from there, and another run would replace them.

Whose it is says a lock in it, where the folder is on a disk of this machine or one that it mounts. Other file systems
of Spark (HDFS, object stores) have no lock that ends with a process that is killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streams_py.errors import ConfigError
from streams_py.history.folders import TemporaryFolder
from streams_py.spark.files import Folder, check_shared
from streams_py.spark.session import is_local
from streams_py.system.file_locks import FileLock, LockHolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["WorkFolder", "check_work"]

_OPTION: Final = "--work"


class WorkFolder:
    """The folder that is ``given`` (``work=``, ``--work``), or a temporary one of this machine. ConfigError when one
    has to be given and is not, when another run has it, or when machines do not share it. ``path``: for Spark."""

    def __init__(self, spark: SparkSession, given: str | None) -> None:
        self._temporary: TemporaryFolder | None = None
        self._lock: FileLock | None = None
        if given is None:
            if not is_local(str(spark.sparkContext.master)):
                raise ConfigError(
                    f"name a folder that all workers share with work= ({_OPTION}): the session runs on a cluster",
                    key="work",
                )
            self._temporary = TemporaryFolder()
            self.path = str(self._temporary.path)
            return
        self.path = given.rstrip("/")
        self._lock = _lock_of(spark, given)
        try:
            check_shared(spark, given, _OPTION)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the folder to others; a temporary one is removed. A second call does nothing."""
        if self._temporary is not None:
            self._temporary.remove()
        if self._lock is not None:
            self._lock.release()


def check_work(spark: SparkSession, given: str | None) -> None:
    """ConfigError when a run could not have this folder now; see :class:`WorkFolder`."""
    WorkFolder(spark, given).close()


def _lock_of(spark: SparkSession, given: str) -> FileLock | None:
    lock = Folder(spark, given).lock(_OPTION)
    if not isinstance(lock, LockHolder):
        return lock
    other = f"name another folder with work= ({_OPTION})"
    if lock.is_here:
        raise ConfigError(
            f"{_OPTION}: the results of an earlier run of this process are in {given}; close() them, or {other}",
            key=_OPTION,
        )
    raise ConfigError(
        f"{_OPTION}: {lock} has a run in {given}, which would be overwritten; end it, wait until it ends, or {other}",
        key=_OPTION,
    )
