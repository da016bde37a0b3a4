"""Creates Spark sessions, and checks the platform before a job starts.

A session that the user already has is used unchanged, after the checks. It is never stopped here. A new local session
listens on loopback only and runs workers with this Python. Every new session uses the time zone UTC.

The checks cover Java 17 or later, PySpark in the tested range, pyarrow and pandas. On a cluster they also cover the
Python version of the workers, and this library there. Each error names a remedy.
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
"""The first minor version that is not tested."""

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
DRIVER_JVM: Final = "spark.driver.extraJavaOptions"
_EXECUTOR_JVM: Final = "spark.executor.extraJavaOptions"
QUIET: Final = {DRIVER_JVM: f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"}
"""Settings for ``spark_session``: Spark logs only errors, from the start of the JVM."""
MOSTLY_PYTHON: Final = dict.fromkeys((DRIVER_JVM, _EXECUTOR_JVM), "-XX:TieredStopAtLevel=1")
"""Settings for ``spark_session`` if JVMs do little more than pass records to Python workers.

The optimising compiler of the JVMs would take processor time from the workers, and more than it saves.
"""

_REMOTE: Final = "SPARK_REMOTE"
_NO_CONNECT: Final = (
    "jobs need a driver with its own JVM; start the job with --master, or with SparkSession.builder.master(...), on a "
    "machine that can reach the cluster"
)
_JAVA_MIN: Final = 17
_PYARROW_MIN: Final = 18
_PANDAS_MIN: Final = (2, 2)
_EXTRA: Final = "install kafka-streams-py[spark]"
_JAVA_TIMEOUT_S: Final = 60


def spark_session(app: str, *, master: str | None = None, **conf: object) -> SparkSession:
    """Return the active session, or a new one.

    Args:
        app: name of a new session.
        master: master of a new session.
        conf: settings of a new session (Spark's dotted keys, such as ``**{"spark.driver.memory": "2g"}``).

    Raises:
        ConfigError: the platform is not supported, or the session is a session of Spark Connect.
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
    """Raise ConfigError for a session of Spark Connect: jobs need the driver's JVM, which it does not have."""
    if not is_classic(session):
        raise ConfigError(f"this is a session of Spark Connect: {_NO_CONNECT}")


def is_classic(session: object) -> bool:
    """Whether a session has its own JVM. Sessions of Spark Connect do not."""
    return not type(session).__module__.startswith("pyspark.sql.connect")


def check_writes_once(session: SparkSession) -> None:
    """Raise ConfigError when Spark may run two attempts of a task at the same time: both would write to Kafka."""
    key = "spark.speculation"
    if str(session.sparkContext.getConf().get(key, "false")).lower() == "true":
        raise ConfigError(
            f"{key} is true, so two attempts of one task would write at the same time; set it to false for this job",
            key=key,
        )


def check_platform() -> None:
    """Raise ConfigError when PySpark, pyarrow, pandas or Java is missing or has an untested version."""
    _check_package("pyspark", PYSPARK_MIN, PYSPARK_MAX)
    _check_package("pyarrow", (_PYARROW_MIN,), None)
    _check_package("pandas", _PANDAS_MIN, None)  # PySpark requires it for functions on Arrow batches
    _check_java()


def _check_package(name: str, least: tuple[int, ...], below: tuple[int, ...] | None) -> None:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        raise ConfigError(f"{name} is not installed in {sys.prefix}; {_EXTRA}") from None
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found[: len(least)] < least or (below is not None and found >= below):
        wanted = f"{_dotted(least)} or later" + ("" if below is None else f", below {_dotted(below)}")
        raise ConfigError(f"{name} {version} is not supported: it must be {wanted}; {_EXTRA}")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = f"install a JDK {_JAVA_MIN} or later and set JAVA_HOME"
    if java is None:
        raise ConfigError(f"Java was not found: {remedy}")
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
    """Whether all workers run on this machine."""
    return master.startswith("local")


def _started(app: str, master: str | None, conf: dict[str, object]) -> SparkSession:
    from pyspark.sql import SparkSession

    master = master or str(conf.get("spark.master") or "local[*]")
    if is_local(master):
        # Otherwise workers run the `python3` of the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark searches for an address and warns
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
        "spark.sql.execution.arrow.maxBytesPerBatch": 8 << 20,  # a worker holds several batches at a time
        "spark.sql.parquet.columnarReaderBatchSize": 512,  # records of 100 KB are common
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
    """Run a tiny job to check that the workers have this Python, this library and its Kafka client."""
    python, library = f"{sys.version_info[0]}.{sys.version_info[1]}", library_version()
    try:
        row: Any = session.range(1).mapInArrow(_probe, "python string, library string, problem string").first()
    except Exception as error:
        raise ConfigError(
            f"the workers cannot run Python with this library ({type(error).__name__}); install "
            "kafka-streams-py[spark] there, or send an environment with --archives"
        ) from error
    if row.problem:
        raise ConfigError(f"the workers cannot use Kafka: {row.problem}; install kafka-streams-py[spark] there")
    if row.python != python:
        raise ConfigError(f"the workers run Python {row.python}, the driver runs {python}; use the same minor version")
    if row.library != library:
        raise ConfigError(
            f"the workers have kafka-streams-py {row.library}, the driver has {library}; install the same version"
        )


def _probe(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for _ in batches:
        pass
    problem = "" if find_spec("confluent_kafka") is not None else "confluent_kafka is not installed"
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = {"python": [python], "library": [library_version()], "problem": [problem]}
    yield pa.RecordBatch.from_pydict(found)
