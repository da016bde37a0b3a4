"""The one place that makes a Spark session, and the checks that a job starts with.

A session that the user already has is adopted as it is, after the checks; it is never stopped here. A session of our
own listens on loopback only, runs workers with this Python, and keeps instants in UTC.

What is checked, each with one sentence and its remedy: Java 17 or later, PySpark in the tested range, pyarrow, pandas;
and on a cluster that the workers have the same Python and this library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streams_py.errors import ConfigError
from streams_py.spark.version import library_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = [
    "DRIVER_JVM",
    "MOSTLY_PYTHON",
    "PYSPARK_MAX",
    "PYSPARK_MIN",
    "QUIET",
    "check_classic",
    "check_platform",
    "check_writes_once",
    "is_classic",
    "is_local",
    "spark_session",
]

PYSPARK_MIN: Final = (4, 2)
PYSPARK_MAX: Final = (4, 4)
"""The first minor version that is not tested any more."""

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
DRIVER_JVM: Final = "spark.driver.extraJavaOptions"
_EXECUTOR_JVM: Final = "spark.executor.extraJavaOptions"
QUIET: Final = {DRIVER_JVM: f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"}
"""For ``spark_session``: nothing but errors on the terminal, from the first line on."""
MOSTLY_PYTHON: Final = dict.fromkeys((DRIVER_JVM, _EXECUTOR_JVM), "-XX:TieredStopAtLevel=1")
"""For ``spark_session``, where JVMs hand records to Python workers and do little else. Their optimising compiler would
take the cores that the workers need, and longer than it ever gives back."""

_REMOTE: Final = "SPARK_REMOTE"
_NO_CONNECT: Final = (
    "jobs need a driver with a JVM of its own; start the job with --master, or with SparkSession.builder.master(...), "
    "where the cluster can be reached"
)
_JAVA_MIN: Final = 17
_PYARROW_MIN: Final = 18
_PANDAS_MIN: Final = (2, 2)
_EXTRA: Final = "install kafka-streams-py[spark]"
_JAVA_TIMEOUT_S: Final = 60


def spark_session(app: str, *, master: str | None = None, **conf: object) -> SparkSession:
    """The active session, or a new one named ``app``. ConfigError when the platform cannot work.

    ``master`` and ``conf`` (Spark's dotted keys, e.g. ``**{"spark.driver.memory": "2g"}``) are for a new session.
    """
    check_platform()
    from pyspark.sql import SparkSession

    if _REMOTE in os.environ:
        raise ConfigError(f"the environment variable {_REMOTE} is set: {_NO_CONNECT}, and unset it", key=_REMOTE)
    active = SparkSession.getActiveSession()
    session = active if active is not None else _started(app, master, conf)
    check_classic(session)
    if not is_local(str(session.sparkContext.master)):
        _check_workers(session)
    return session


def check_classic(session: object) -> None:
    """ConfigError for a session of Spark Connect: jobs use the driver's JVM (files, the context), which it has not."""
    if not is_classic(session):
        raise ConfigError(f"this is a session of Spark Connect: {_NO_CONNECT}")


def is_classic(session: object) -> bool:
    """Whether a session has a JVM of its own, which one of Spark Connect has not."""
    return not type(session).__module__.startswith("pyspark.sql.connect")


def check_writes_once(session: SparkSession) -> None:
    """ConfigError when Spark may run a second attempt of a task beside the first: both would write to Kafka at once."""
    key = "spark.speculation"
    if str(session.sparkContext.getConf().get(key, "false")).lower() == "true":
        raise ConfigError(
            f"{key} is true, and two attempts of one task would write at once; set it to false for this job", key=key
        )


def check_platform() -> None:
    """ConfigError when PySpark, pyarrow, pandas or Java is missing or of a version that is not tested."""
    _check_package("pyspark", PYSPARK_MIN, PYSPARK_MAX)
    _check_package("pyarrow", (_PYARROW_MIN,), None)
    _check_package("pandas", _PANDAS_MIN, None)  # PySpark wants it before it runs anything on Arrow batches
    _check_java()


def _check_package(name: str, least: tuple[int, ...], below: tuple[int, ...] | None) -> None:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        raise ConfigError(f"{name} is not installed in {sys.prefix}; {_EXTRA}") from None
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found[: len(least)] < least or (below is not None and found >= below):
        wanted = f"{_dotted(least)} or later" + ("" if below is None else f", below {_dotted(below)}")
        raise ConfigError(f"{name} {version} is not supported: {wanted} is needed; {_EXTRA}")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = f"install a JDK {_JAVA_MIN} or later and set JAVA_HOME"
    if java is None:
        raise ConfigError(f"no Java found: {remedy}")
    try:
        shown = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=True, timeout=_JAVA_TIMEOUT_S
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{java} does not run ({error}): {remedy}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    if match is None or int(match[1]) < _JAVA_MIN:
        version = match[1] if match is not None else "unknown"
        raise ConfigError(f"{java} is Java {version}: {remedy}")


def is_local(master: str) -> bool:
    """Whether all workers are on this machine."""
    return master.startswith("local")


def _started(app: str, master: str | None, conf: dict[str, object]) -> SparkSession:
    from pyspark.sql import SparkSession

    master = master or str(conf.get("spark.master") or "local[*]")
    if is_local(master):
        # Otherwise workers run whatever `python3` is on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark looks for an address, and warns of it
    builder = SparkSession.builder.appName(app).master(master)
    for key, value in (_settings(master) | conf).items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()


def _settings(master: str) -> dict[str, object]:
    settings: dict[str, object] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": 10_000,
        "spark.sql.execution.arrow.maxBytesPerBatch": 8 << 20,  # of which a worker has several at a time
        "spark.sql.parquet.columnarReaderBatchSize": 512,  # rows of 100 KB are nothing special in a topic
        "spark.executorEnv.PYTHONHASHSEED": "0",
    }
    if is_local(master):
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": 2 * _cores(master),
            "spark.driver.memory": "1g",
        }
    return settings


def _cores(master: str) -> int:
    match = re.match(r"local\[(\d+)", master)
    return int(match[1]) if match is not None else (os.cpu_count() or 1) if "*" in master else 1


def _check_workers(session: SparkSession) -> None:
    """One tiny job: do the workers have this Python, this library and its Kafka client?"""
    python, library = f"{sys.version_info[0]}.{sys.version_info[1]}", library_version()
    try:
        row: Any = session.range(1).mapInArrow(_probe, "python string, library string, problem string").first()
    except Exception as error:
        raise ConfigError(
            f"the workers cannot run Python with this library ({type(error).__name__}); install "
            "kafka-streams-py[spark] there, or ship an environment with --archives"
        ) from error
    if row.problem:
        raise ConfigError(f"the workers cannot use Kafka: {row.problem}; install kafka-streams-py[spark] there")
    if row.python != python:
        raise ConfigError(f"the workers run Python {row.python}, the driver {python}; use the same minor version")
    if row.library != library:
        raise ConfigError(f"the workers have kafka-streams-py {row.library}, the driver {library}; install the same")


def _probe(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for _ in batches:
        pass
    problem = "" if find_spec("confluent_kafka") is not None else "there is no confluent_kafka"
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = {"python": [python], "library": [library_version()], "problem": [problem]}
    yield pa.RecordBatch.from_pydict(found)
