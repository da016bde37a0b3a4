"""The output folder of a backfill: one process at a time, and all outputs or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from streams_py.cli.spark.history_options import built_topology
from streams_py.errors import ConfigError, StreamsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streams_py.spark.files import Folder

_PROBE: Final = "_probe"


@contextlib.contextmanager
def held_folder(spark: SparkSession, out: str) -> Iterator[None]:
    """Lock the output folder for this process.

    Two processes would both find it without outputs, and one of them would fail after all its work.

    Raises:
        ConfigError: Another process uses the folder.
    """
    from streams_py.spark.files import Folder
    from streams_py.system.file_locks import alone

    folder = Folder(spark, out)
    place = folder.on_disk()
    is_new = place is not None and not place.exists()
    try:
        with alone(folder.lock("--out"), f"writes a backfill to {out}", option="--out"):
            yield
    finally:
        if is_new and place is not None:
            with contextlib.suppress(OSError):  # raised if it has outputs
                place.rmdir()


def check_new(spark: SparkSession, out: str, what: str, settings: Mapping[str, Any], more: Sequence[str]) -> None:
    """Raise ConfigError if outputs exist or cannot be written: fail now, not after the work."""
    from streams_py.history.plan import sinks_of
    from streams_py.spark.failures import sentence_of
    from streams_py.spark.files import Folder, check_shared

    folder = Folder(spark, out)
    sinks = sinks_of(built_topology(what, settings), str(settings["application.id"]))
    for topic in sorted({*sinks, *more}):
        _check_absent(folder, topic)
    is_new = not folder.exists()
    try:
        check_shared(spark, out, "--out")
        folder.write_text("", _PROBE)
        folder.remove(_PROBE)
    except ConfigError:
        raise
    except Exception as error:  # from Hadoop's file systems
        why = sentence_of(error)
        raise ConfigError(f"--out: {out} cannot be written ({why}); name another folder", key="--out") from error
    finally:
        if is_new:
            with contextlib.suppress(Exception):  # raised if it could not be created
                folder.remove()


def _check_absent(folder: Folder, topic: str) -> None:
    if folder.exists(topic):
        raise ConfigError(f"--out: {folder.path(topic)} exists; name another folder, or delete it", key="--out")


def write_new(spark: SparkSession, out: str, sinks: Mapping[str, DataFrame]) -> None:
    """Write a folder for each topic: all of them, or none after an error.

    Raises:
        StreamsError: Incomplete outputs could not be removed.
    """
    from streams_py.spark.failures import sentence_of
    from streams_py.spark.files import Folder
    from streams_py.spark.jobs import end_jobs

    folder = Folder(spark, out)
    is_new = not folder.exists()
    begun: list[str] = []
    try:
        for topic, rows in sinks.items():
            _check_absent(folder, topic)
            begun.append(topic)
            rows.write.mode("errorifexists").parquet(folder.path(topic))
    except BaseException as error:
        try:
            end_jobs(spark)
            for topic in begun:
                folder.remove(topic)
            if is_new and not folder.children():
                folder.remove()
        except Exception:  # the user needs the first error
            if begun and isinstance(error, Exception):
                raise StreamsError(
                    f"{sentence_of(error)}; the outputs in {out} are not complete; delete them"
                ) from error
        raise
