"""What a failed Spark job or query says in one sentence.

An error of ours that was raised in a worker, in the process that plans a data source, or in a micro-batch comes back as
Spark's exception with pages of stack traces of two languages. Somewhere in there stands our sentence.
"""

from __future__ import annotations

import re
from typing import Final

from streams_py import errors
from streams_py.errors import StreamsError

__all__ = ["sentence_of"]

_OURS: Final = re.compile(rf"^(?:streams_(?:py|protocol)\.[\w.]*\w|{'|'.join(errors.__all__)}): (.+)$", re.MULTILINE)
"""Any error of a module of ours, or one of the public ones without its module."""
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
"""What ``raise_error`` of a plan of ours says."""
_SPARKS: Final = re.compile(r"\[[A-Z_.0-9]+\] (.+?)\.?(?: SQLSTATE: \w+)?")
"""A sentence of Spark's with a name and a state around it."""
_JAVAS: Final = re.compile(r"^: [\w.$]*?(\w+): (.+)$", re.MULTILINE)
"""What is below py4j's own first line: an exception of Java with its message."""
_WORKER_LOST: Final = re.compile(r"Python worker exited unexpectedly|No module named '?([\w.]+)'?")
_OF_THE_EXTRA: Final = {"streams_py", "streams_protocol", "confluent_kafka", "pyspark", "pyarrow", "numpy", "pandas"}


def sentence_of(error: BaseException) -> str:
    """Our own sentence if one is in there, else the first line of what Spark says."""
    if isinstance(error, StreamsError):
        return str(error)
    text = str(error)
    ours = _OURS.findall(text) or _RAISED.findall(text)
    if ours:
        return str(ours[-1])
    lost = _WORKER_LOST.search(text)
    if lost is not None and lost[1] and lost[1].partition(".")[0] not in _OF_THE_EXTRA:
        return (
            f"a Python worker has no module {lost[1]}; install it where the workers run, or ship it with --py-files "
            "(SparkContext.addPyFile)"
        )
    if lost is not None:
        what = f"has no module {lost[1]}" if lost[1] else "ended unexpectedly"
        return f"a Python worker {what}; install kafka-streams-py[spark] where the workers run, and set PYSPARK_PYTHON"
    java = _JAVAS.search(text) if type(error).__module__.startswith("py4j.") else None
    if java is not None:
        return f"{java[1]}: {java[2]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    spark = _SPARKS.fullmatch(lines[0]) if lines else None
    if spark is not None:
        return str(spark[1])
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
