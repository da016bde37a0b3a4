"""Turns the error of a failed Spark job or query into one sentence.

An error of this library that was raised in a worker, in the process that plans a data source, or in a micro-batch comes
back as an exception of Spark, with pages of Java and Python stack traces. They contain the message of our error.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from typing import Any, Final

from streams_py import errors
from streams_py.errors import StreamsError

_log = logging.getLogger(__name__)

_OURS: Final = re.compile(rf"^(?:streams_(?:py|protocol)\.[\w.]*\w|{'|'.join(errors.__all__)}): (.+)$", re.MULTILINE)
"""An error class of a module of this library, or a public error without its module, and its message."""
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
"""The message of ``raise_error`` in a query plan of this library."""
_SPARKS: Final = re.compile(r"\[[A-Z_.0-9]+\] (.+?)\.?(?: +SQLSTATE: \w+;?)?")
"""A message of Spark between an error class and an SQL state."""
_JAVAS: Final = re.compile(r"^: [\w.$]*?(\w+): (.+)$", re.MULTILINE)
"""The line below py4j's own first line: a Java exception with its message."""
_PYTHONS: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
"""The last line of a Python stack trace."""
_NOT_STARTED: Final = "[JAVA_GATEWAY_EXITED]"
_NO_MEMORY: Final = "java.lang.OutOfMemoryError"
_NEEDS_MEMORY: Final = (
    "increase the setting spark.driver.memory (on a cluster spark.executor.memory), or use fewer cores"
)
_NO_ROOM: Final = re.compile(r"No space left on device|Disk quota exceeded")
_UNREADABLE: Final = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+?)\. ")
_CAUSES: Final = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_STATUS_OF_NO_MEMORY: Final = 52
"""Exit status of a JVM that Spark stops because it is out of memory."""
_ENDING_S: Final = 5.0
"""Wait for the JVM's exit status, in s. A process closes its connections shortly before its parent gets the status."""
_NEEDS_PACKAGE: Final = "install kafka-streams-py[spark] where the workers run, and set PYSPARK_PYTHON"
_WORKER_LOST: Final = re.compile(r"Python worker exited unexpectedly|No module named '?([\w.]+)'?")
_OF_THE_EXTRA: Final = {"streams_py", "streams_protocol", "confluent_kafka", "pyspark", "pyarrow", "numpy", "pandas"}


def sentence_of(error: BaseException) -> str:
    """Return the message of this library's error if the text contains one, otherwise a sentence about Spark's error."""
    if isinstance(error, StreamsError):
        return str(error)
    lost = lost_jvm(error)
    if lost is not None:
        return lost
    text = str(error)
    ours = _OURS.findall(text) or _RAISED.findall(text)
    if ours:
        return str(ours[-1])
    if _NOT_STARTED in text:
        return (
            "Spark's JVM stopped before it was ready; its output is above (was it killed, or is spark.driver.memory "
            "too large for the machine?)"
        )
    if _NO_MEMORY in text:
        return f"a JVM of Spark is out of memory: {_NEEDS_MEMORY}"
    full = _NO_ROOM.search(text)
    if full is not None:
        return (
            f"a disk is full ({full[0]}): free space, or let Spark and its workers use another disk (TMPDIR, "
            "spark.local.dir, and --work for the output of stages)"
        )
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        why = _CAUSES.findall(text)
        because = f": {why[-1]}" if why else ""
        return f"the file {unreadable[1]} cannot be read{because}; remove it, or replace it with an intact file"
    worker = _WORKER_LOST.search(text)
    if worker is not None and worker[1] and worker[1].partition(".")[0] not in _OF_THE_EXTRA:
        return (
            f"a Python worker has no module {worker[1]}; install it where the workers run, or ship it with --py-files "
            "(SparkContext.addPyFile)"
        )
    if worker is not None and worker[1]:
        return f"a Python worker has no module {worker[1]}; {_NEEDS_PACKAGE}"
    if worker is not None:
        return (
            "a Python worker stopped unexpectedly: if the system killed it because memory is short (dmesg shows it), "
            f"use fewer cores; if workers never started, {_NEEDS_PACKAGE}"
        )
    raised = _PYTHONS.findall(text)
    if raised:
        return f"a Python worker has failed: {raised[-1]}"
    java = _JAVAS.search(text) if type(error).__module__.startswith("py4j.") else None
    if java is not None:
        spark = _SPARKS.fullmatch(java[2])
        return f"{java[1]}: {java[2]}" if spark is None else str(spark[1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    spark = _SPARKS.fullmatch(lines[0]) if lines else None
    if spark is not None:
        return str(spark[1])
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


def in_one_sentence(error: BaseException, what: str) -> StreamsError:
    """Return the error to raise ``from None`` instead of Spark's error: ``what`` has failed, and why.

    Python prints the cause of an error first. Spark's error has several hundred lines, and the reason would follow
    them. So they are logged at level DEBUG instead.
    """
    _log.debug("%s: %s", what, error)
    return StreamsError(f"{what}: {sentence_of(error)}")


def lost_jvm(error: BaseException) -> str | None:
    """Return a sentence with a remedy if the error is due to a JVM that has stopped; otherwise None."""
    is_of_bridge = type(error).__module__.startswith("py4j.") and type(error).__name__ != "Py4JJavaError"
    pyspark: Any = sys.modules.get("pyspark")
    if pyspark is None or not (is_of_bridge or isinstance(error, ConnectionError)):
        return None
    gateway = pyspark.SparkContext._gateway
    process: Any = getattr(gateway, "proc", None)
    if process is None:
        return None  # another process has started the JVM
    try:
        return _end_of_jvm(process.pid, process.wait(_ENDING_S))
    except subprocess.TimeoutExpired:
        return None  # the JVM is running


def _end_of_jvm(process: int, status: int) -> str:
    if status == -signal.SIGKILL:
        return (
            "Spark's JVM was killed (SIGKILL), possibly by the system because memory is short (dmesg shows it): use "
            "fewer cores or a smaller spark.driver.memory, or give the machine or the container more memory"
        )
    if status == _STATUS_OF_NO_MEMORY:
        return f"Spark's JVM is out of memory: {_NEEDS_MEMORY}"
    how = f"was stopped by {signal.Signals(-status).name}" if status < 0 else f"stopped with status {status}"
    return (
        f"Spark's JVM {how}; its output is above, and after a crash details are in hs_err_pid{process}.log in "
        f"{os.getcwd()}; is its memory (spark.driver.memory) too large for the machine, or too small?"
    )
