"""How a command on Spark ends that went wrong: in one sentence."""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Final

import typer
from rich.console import Console

from streams_py.cli.usage import FAILED, NOT_DONE
from streams_py.errors import BrokerUnavailableError, StreamsError

__all__ = ["console", "explained", "interruptible"]

_INTERRUPTED: Final = 130
"""What a shell says of a command that Ctrl-C has ended."""
_NOT_DONE = (ValueError, ModuleNotFoundError, BrokerUnavailableError)
_OF_PLACES: Final = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EROFS, errno.ENOSPC}
)
"""What files and folders that users name are refused with."""


def console() -> Console:
    """Where results go."""
    return Console(highlight=False, soft_wrap=True)


@contextlib.contextmanager
def explained(interrupted: str = "interrupted") -> Iterator[None]:
    """Our own errors, a missing package, a file that cannot be used and what Spark says end the command with what is
    wrong and what to do, Ctrl-C with the sentence ``interrupted``."""
    try:
        yield
    except KeyboardInterrupt as error:
        _end(interrupted, _INTERRUPTED, error)
    except (StreamsError, ModuleNotFoundError) as error:
        remedy = "; install kafka-streams-py[spark]" if isinstance(error, ModuleNotFoundError) else ""
        _end(f"{error}{remedy}", NOT_DONE if isinstance(error, _NOT_DONE) else FAILED, error)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OF_PLACES:
            what = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
            _end(f"{what}; name another place, or make this one fit", NOT_DONE, error)
        if type(error).__module__.startswith("pyarrow."):
            _end(f"{error}; is it a table that telemetry has made?", NOT_DONE, error)
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        from streams_py.spark.failures import sentence_of

        _end(sentence_of(error), FAILED, error)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM are KeyboardInterrupt in here, once. To be entered when a session is there: PySpark's own
    handler asks the JVM something in the middle of another question, and both sides say so at length."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)  # what follows is short
        logging.disable(logging.CRITICAL)  # the question that is broken off
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        logging.disable(logging.NOTSET)


def _end(sentence: str, status: int, error: BaseException) -> None:
    Console(stderr=True, soft_wrap=True).print(f"error: {sentence}", style="red", highlight=False, markup=False)
    raise typer.Exit(status) from error
