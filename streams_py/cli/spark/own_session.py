"""The Spark session of a command, from start to stop."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from streams_py.cli.spark.outcome import console, keeping_handlers
from streams_py.errors import ConfigError
from streams_py.history.folders import TemporaryFolder
from streams_py.system.quiet_logs import quiet_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER: Final = "spark.master"


@contextlib.contextmanager
def own_session(
    app: str,
    master: str | None,
    settings: Mapping[str, object],
    py_files: Sequence[Path] = (),
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SparkSession]:
    """Start a Spark session and stop it at the end.

    A session that this process has already is used and kept.

    When the block succeeds, prints how many records the clients delivered more than once.

    Args:
        app: Name of the application for Spark.
        master: Spark master.
        settings: Spark settings of the user, which override ``defaults``. Options of the driver's JVM are appended.
        py_files: Files for Spark's workers.
        defaults: Spark settings of the command.
    """
    from streams_py.spark.redelivered import redelivered_records
    from streams_py.spark.session import DRIVER_JVM, QUIET, check_platform, spark_session

    check_platform()
    if master is not None and settings.get(_MASTER, master) != master:
        raise ConfigError(
            f"--conf {_MASTER}={settings[_MASTER]}: --master is {master}; give only one of them", key=_MASTER
        )
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    given = {**QUIET, **defaults, **settings}
    with quiet_logs("py4j"), _quiet_bridge(), contextlib.ExitStack() as folders:
        if before is None:
            folder = f'"-Djava.io.tmpdir={folders.enter_context(_folder())}"'
            options = [str(some[DRIVER_JVM]) for some in (QUIET, defaults, settings) if DRIVER_JVM in some]
            given[DRIVER_JVM] = " ".join((folder, *options))
        session = keeping_handlers(lambda: spark_session(app, master=master, **given))
        try:
            if before is None:
                _outlive_signals(session)
                _end_quietly(session)
            session.sparkContext.setLogLevel("OFF")  # errors are explained in one sentence instead
            for path in py_files:
                session.sparkContext.addPyFile(str(path))
            known = redelivered_records(session)
            yield session
            _say_redelivered(redelivered_records(session) - known)
        finally:
            if before is None:
                _stop(session)


def _say_redelivered(count: int) -> None:
    if count:
        console().print(
            f"clients delivered {count:,} records more than once, for example after a leader change; each was read once"
        )


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder for temporary files of the JVM: a killed JVM removes nothing.

    Options of the user override it.
    """
    folder = TemporaryFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def _end_quietly(session: SparkSession) -> None:
    """Silence PySpark's accumulator server, which prints a stack trace if the JVM is killed."""
    context: Any = session.sparkContext
    context._accumulatorServer.handle_error = lambda *_: None


def _stop(session: SparkSession) -> None:
    with contextlib.suppress(Exception), warnings.catch_warnings():  # the JVM is gone, and the reason was printed
        warnings.simplefilter("ignore")
        session.stop()


@contextlib.contextmanager
def _quiet_bridge() -> Iterator[None]:
    """Hide py4j's log lines: it logs each exception that it raises, with a stack trace."""
    root = logging.getLogger()
    root.addFilter(_is_not_of_bridge)
    try:
        yield
    finally:
        root.removeFilter(_is_not_of_bridge)


def _is_not_of_bridge(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not kind.__module__.startswith("py4j.")


def _outlive_signals(session: SparkSession) -> None:
    """Make the JVM ignore SIGTERM and SIGHUP, as PySpark does for SIGINT.

    Ctrl-C, `timeout`, service managers and a terminal that closes send a signal to all processes of a command. The JVM
    must survive it, because this process needs it to clean up. The JVM stops when this process stops.
    """
    context: Any = session.sparkContext
    if context._gateway.proc is None:  # spark-submit started this process, and must stop with it
        return
    java = context._jvm.sun.misc
    for name in ("TERM", "HUP"):
        java.Signal.handle(java.Signal(name), java.SignalHandler.SIG_IGN)
