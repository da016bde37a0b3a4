"""The Spark session of a command, from its start to its end."""

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

__all__ = ["own_session"]

_MASTER: Final = "spark.master"


@contextlib.contextmanager
def own_session(
    app: str,
    master: str | None,
    settings: Mapping[str, object],
    py_files: Sequence[Path] = (),
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SparkSession]:
    """A session of our own, or the one that this process has, which stays. ``py_files`` go to its workers. ``settings``
    count more than ``defaults``; options of the driver's JVM come behind those of the defaults. The end of a command
    that succeeds says how many records were delivered again."""
    from streams_py.spark.redelivered import redelivered_records
    from streams_py.spark.session import DRIVER_JVM, QUIET, check_platform, spark_session

    check_platform()
    if master is not None and settings.get(_MASTER, master) != master:
        raise ConfigError(
            f"--conf {_MASTER}={settings[_MASTER]}: --master says {master}; give one of them", key=_MASTER
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
            session.sparkContext.setLogLevel("OFF")  # what goes wrong is said in a sentence
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
            f"clients delivered {count:,} records again, after a change of leaders for example; each was read once"
        )


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Where the JVM puts what it needs meanwhile: if it is killed, it removes nothing. An option of the user for it
    counts more."""
    folder = TemporaryFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def _end_quietly(session: SparkSession) -> None:
    """When the JVM is killed, the server that its tasks report to would print with its stack that nobody asks it."""
    context: Any = session.sparkContext
    context._accumulatorServer.handle_error = lambda *_: None


def _stop(session: SparkSession) -> None:
    with contextlib.suppress(Exception), warnings.catch_warnings():  # the JVM is gone, and why is said
        warnings.simplefilter("ignore")
        session.stop()


@contextlib.contextmanager
def _quiet_bridge() -> Iterator[None]:
    """What py4j raises it also logs, with its stack, as if it were the program."""
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
    """Ctrl-C, `timeout`, managers of services and a terminal that is closed signal all processes of a command at once.
    PySpark starts its JVM so that SIGINT does nothing to it, and the others shall do as little: what has to be put away
    is asked of it, and it ends when this process ends."""
    context: Any = session.sparkContext
    if context._gateway.proc is None:  # spark-submit has started this process, and is to end with it
        return
    java = context._jvm.sun.misc
    for name in ("TERM", "HUP"):
        java.Signal.handle(java.Signal(name), java.SignalHandler.SIG_IGN)
