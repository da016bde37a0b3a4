"""Optional tables in Delta Lake's format: the settings of a session, and the files of a table.

The jar of Delta Lake belongs to one minor version of Spark and is not part of PySpark. The package ``delta-spark`` has
its version. A job that replaces days does so in one commit per table, so readers never find a folder missing.

Reading needs neither Spark nor the jar: the log of a table lists its files.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from streams_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = "_delta_log"
_REMEDY: Final = "install the delta-spark version for this PySpark, or use --format parquet"


def delta_settings() -> dict[str, str]:
    """Return Spark settings for a new session. Raises ConfigError when ``delta-spark`` is not installed."""
    try:
        version = metadata.version("delta-spark")
    except metadata.PackageNotFoundError:
        raise ConfigError(f"Delta Lake is not installed: {_REMEDY}") from None
    spark = ".".join(metadata.version("pyspark").split(".")[:2])
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.packages": f"io.delta:delta-spark_{spark}_2.13:{version}",
    }


def check_delta(spark: SparkSession, path: str) -> None:
    """Raise ConfigError when this session cannot read and write Delta tables."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    try:
        spark.read.format("delta").load(path)
    except (PySparkException, Py4JError) as error:  # also if the table does not exist yet, which is not a problem
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise ConfigError(f"this Spark session has no Delta Lake: {_REMEDY}") from None


def is_delta(folder: Path) -> bool:
    """Whether a folder is a Delta table."""
    return (folder / _LOG).is_dir()


def delta_files(folder: Path) -> list[str]:
    """Return the data files of the table's latest version, sorted."""
    log = folder / _LOG
    version, live = _checkpoint(log)
    for commit in sorted(log.glob("*.json")):
        if int(commit.stem) > version:
            for line in commit.read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                if "remove" in action:
                    live.discard(action["remove"]["path"])
                if "add" in action:
                    live.add(action["add"]["path"])
    return sorted(str(folder / unquote(path)) for path in live)


def _checkpoint(log: Path) -> tuple[int, set[str]]:
    """Return the version of the last checkpoint (-1 without one), and the files of that version."""
    import pyarrow.parquet as pq

    try:
        info: dict[str, Any] = json.loads((log / "_last_checkpoint").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return -1, set()
    version, parts = int(info["version"]), info.get("parts")
    names = [f"{version:020d}.checkpoint.parquet"]
    if parts:
        names = [f"{version:020d}.checkpoint.{number:010d}.{parts:010d}.parquet" for number in range(1, parts + 1)]
    live = set()
    for name in names:
        for row in pq.read_table(log / name, columns=["add"]).column("add").to_pylist():
            if row is not None:
                live.add(row["path"])
    return version, live
