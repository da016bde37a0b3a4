"""The Spark session of a command, from its start to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams_py.cli.spark.outcome import keeping_handlers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["own_session"]


@contextlib.contextmanager
def own_session(
    app: str, master: str | None, settings: Mapping[str, object], py_files: Sequence[Path] = ()
) -> Iterator[SparkSession]:
    """A session of our own, or the one that this process has, which stays. ``py_files`` go to its workers."""
    from streams_py.spark.session import QUIET, check_platform, spark_session

    check_platform()
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    session = keeping_handlers(lambda: spark_session(app, master=master, **{**QUIET, **settings}))
    try:
        if before is None:
            _outlive_signals(session)
        session.sparkContext.setLogLevel("OFF")  # what goes wrong is said in a sentence
        for path in py_files:
            session.sparkContext.addPyFile(str(path))
        yield session
    finally:
        if before is None:
            with contextlib.suppress(Exception):  # the JVM is gone, and why has been said
                session.stop()


def _outlive_signals(session: SparkSession) -> None:
    """Ctrl-C, `timeout` and managers of services signal all processes of a command at once. PySpark starts its JVM so
    that SIGINT does nothing to it, and SIGTERM shall do as little: what has to be put away is asked of it, and it ends
    when this process ends."""
    context: Any = session.sparkContext
    if context._gateway.proc is None:  # spark-submit has started this process, and is to end with it
        return
    java = context._jvm.sun.misc
    java.Signal.handle(java.Signal("TERM"), java.SignalHandler.SIG_IGN)
