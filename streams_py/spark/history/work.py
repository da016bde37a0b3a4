"""The folder for the output of stages. It belongs to one run at a time, until its results are closed.

Results are read from this folder, and another run would replace them. A lock file in the folder prevents that, if the
folder is on a disk that is local or mounted. Other file systems of Spark (HDFS, object stores) do not have locks that
the end of a process releases.
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

_OPTION: Final = "--work"


class WorkFolder:
    """The folder ``given`` (``work=``, ``--work``), or a temporary folder of this machine. ``path`` is for Spark.

    Raises:
        ConfigError: a cluster needs a folder and none is given, another run uses it, or machines do not share it.
    """

    def __init__(self, spark: SparkSession, given: str | None) -> None:
        self._temporary: TemporaryFolder | None = None
        self._lock: FileLock | None = None
        if given is None:
            if not is_local(str(spark.sparkContext.master)):
                raise ConfigError(
                    f"the session runs on a cluster: name a folder that all machines share with work= ({_OPTION})",
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
        """Release the folder. A temporary folder is removed. A second call does nothing."""
        if self._temporary is not None:
            self._temporary.remove()
        if self._lock is not None:
            self._lock.release()


def check_work(spark: SparkSession, given: str | None) -> None:
    """Raise ConfigError when a run could not use this folder now; see :class:`WorkFolder`."""
    WorkFolder(spark, given).close()


def _lock_of(spark: SparkSession, given: str) -> FileLock | None:
    lock = Folder(spark, given).lock(_OPTION)
    if not isinstance(lock, LockHolder):
        return lock
    other = f"name another folder with work= ({_OPTION})"
    if lock.is_here:
        raise ConfigError(
            f"{_OPTION}: {given} has the results of an earlier run of this process; close() them, or {other}",
            key=_OPTION,
        )
    raise ConfigError(
        f"{_OPTION}: {lock} has a run in {given}, which would be overwritten; stop it, wait until it has finished, or "
        f"{other}",
        key=_OPTION,
    )
