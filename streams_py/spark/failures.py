"""What a failed Spark job or query says in one sentence.

An error of ours that was raised in a worker, in the process that plans a data source, or in a micro-batch comes back as
Spark's exception with pages of stack traces of two languages. Somewhere in there stands our sentence.
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

__all__ = ["in_one_sentence", "lost_jvm", "sentence_of"]

_log = logging.getLogger(__name__)

_OURS: Final = re.compile(rf"^(?:streams_(?:py|protocol)\.[\w.]*\w|{'|'.join(errors.__all__)}): (.+)$", re.MULTILINE)
"""Any error of a module of ours, or one of the public ones without its module."""
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
"""What ``raise_error`` of a plan of ours says."""
_SPARKS: Final = re.compile(r"\[[A-Z_.0-9]+\] (.+?)\.?(?: +SQLSTATE: \w+;?)?")
"""A sentence of Spark's with a name and a state around it."""
_JAVAS: Final = re.compile(r"^: [\w.$]*?(\w+): (.+)$", re.MULTILINE)
"""What is below py4j's own first line: an exception of Java with its message."""
_PYTHONS: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
"""The last line of a stack trace of Python."""
_NOT_STARTED: Final = "[JAVA_GATEWAY_EXITED]"
_NO_MEMORY: Final = "java.lang.OutOfMemoryError"
_NEEDS_MEMORY: Final = (
    "give it more with the setting spark.driver.memory (on a cluster spark.executor.memory), or use fewer cores at once"
)
_NO_ROOM: Final = re.compile(r"No space left on device|Disk quota exceeded")
_UNREADABLE: Final = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+?)\. ")
_CAUSES: Final = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_STATUS_OF_NO_MEMORY: Final = 52
"""With which Spark ends a JVM whose memory is used up."""
_ENDING_S: Final = 5.0
"""A process that ends closes its connections a little before others are told of its end."""
_NEEDS_PACKAGE: Final = "install kafka-streams-py[spark] where the workers run, and set PYSPARK_PYTHON"
_WORKER_LOST: Final = re.compile(r"Python worker exited unexpectedly|No module named '?([\w.]+)'?")
_OF_THE_EXTRA: Final = {"streams_py", "streams_protocol", "confluent_kafka", "pyspark", "pyarrow", "numpy", "pandas"}


def sentence_of(error: BaseException) -> str:
    """Our own sentence if one is in there, else the first line of what Spark says."""
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
            "Spark's JVM ended before it was ready; what it said is above (was it killed, or is spark.driver.memory "
            "too large for the machine?)"
        )
    if _NO_MEMORY in text:
        return f"the memory of a JVM of Spark is used up: {_NEEDS_MEMORY}"
    full = _NO_ROOM.search(text)
    if full is not None:
        return (
            f"a disk is full ({full[0]}): make room, or let Spark and its workers use another one (TMPDIR, "
            "spark.local.dir, and --work for what stages write)"
        )
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        why = _CAUSES.findall(text)
        because = f": {why[-1]}" if why else ""
        return f"the file {unreadable[1]} cannot be read{because}; remove it, or put a whole one in its place"
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
            "a Python worker ended unexpectedly: was it killed, as the system does when memory is short (dmesg says "
            f"it)? Use fewer cores at once then. Did none ever begin? Then {_NEEDS_PACKAGE}"
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
    """The error to raise ``from None`` instead of one of Spark's: ``what``, and why.

    Python prints the cause of an error first. Spark's error has several hundred lines, so the reason would stand below
    them. They are logged at level DEBUG.
    """
    _log.debug("%s: %s", what, error)
    return StreamsError(f"{what}: {sentence_of(error)}")


def lost_jvm(error: BaseException) -> str | None:
    """What to do when the error is one of asking a JVM that has ended; None when it is something else."""
    is_of_bridge = type(error).__module__.startswith("py4j.") and type(error).__name__ != "Py4JJavaError"
    pyspark: Any = sys.modules.get("pyspark")
    if pyspark is None or not (is_of_bridge or isinstance(error, ConnectionError)):
        return None
    gateway = pyspark.SparkContext._gateway
    process: Any = getattr(gateway, "proc", None)
    if process is None:
        return None  # somebody else has started it
    try:
        return _end_of_jvm(process.pid, process.wait(_ENDING_S))
    except subprocess.TimeoutExpired:
        return None  # it lives


def _end_of_jvm(process: int, status: int) -> str:
    if status == -signal.SIGKILL:
        return (
            "Spark's JVM was killed (SIGKILL), as the system does when memory is short, which dmesg says: use fewer "
            "cores at once or a smaller spark.driver.memory, or give the machine or the container more memory"
        )
    if status == _STATUS_OF_NO_MEMORY:
        return f"the memory of Spark's JVM is used up: {_NEEDS_MEMORY}"
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"has ended with status {status}"
    return (
        f"Spark's JVM {how}; what it said is above, and after a crash more is in hs_err_pid{process}.log in "
        f"{os.getcwd()}; is its memory (spark.driver.memory) too large for the machine, or too small?"
    )
