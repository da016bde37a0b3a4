"""Errors and signals of a command on Spark: each ends the command with one sentence."""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import typer

from streams_py.cli.usage import FAILED, NOT_DONE
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.system.printable import printable_lines

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED: Final = 130
"""Exit status by which a shell recognizes a command that Ctrl-C has stopped."""
_NOT_DONE = (ValueError, ModuleNotFoundError, BrokerUnavailableError)
_OF_PLACES: Final = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EROFS, errno.ENOSPC}
)
"""Errors of the operating system that concern files and folders that the user names."""


def console() -> Console:
    """Return the console for results."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


@contextlib.contextmanager
def explained(
    interrupted: str | Callable[[], str] = "interrupted",
    stands: Callable[[], str] = lambda: "",
    *,
    failed: int = FAILED,
) -> Iterator[None]:
    """Turn errors and signals into one sentence on standard error, and exit.

    Explains errors of this library, missing packages, unusable files and errors of Spark. Other errors propagate.

    Args:
        interrupted: The sentence after a signal, or a function that returns it.
        stands: Returns unfinished work that an error leaves behind and what to do about it, or an empty text.
        failed: Exit status after an error during the work. NOT_DONE for commands where FAILED is a result.
    """
    with _interruptible() as came:
        try:
            yield
        except BaseException as error:
            # A signal interrupts a call to the JVM, and later calls may then fail with other errors.
            if came or isinstance(error, KeyboardInterrupt):
                _end(interrupted if isinstance(interrupted, str) else interrupted(), _INTERRUPTED, error)
            explanation = _explanation(error, failed)
            if explanation is not None:
                sentence, status = explanation
                left = stands()
                _end(f"{sentence}; {left}" if left else sentence, status, error)
            raise


def _explanation(error: BaseException, failed: int) -> tuple[str, int] | None:
    """Return the sentence and exit status for this error, or None.

    ``failed`` is for errors during the work.
    """
    if isinstance(error, (StreamsError, ModuleNotFoundError)):
        remedy = "; install kafka-streams-py[spark]" if isinstance(error, ModuleNotFoundError) else ""
        return f"{error}{remedy}", NOT_DONE if isinstance(error, _NOT_DONE) else failed
    if isinstance(error, OSError) and error.errno in _OF_PLACES:
        what = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
        return f"{what}; name another place, or make this one usable", NOT_DONE
    if type(error).__module__.startswith("pyarrow."):
        return f"{error}; check that telemetry wrote this table", NOT_DONE
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        from streams_py.spark.failures import sentence_of

        return sentence_of(error), failed
    if isinstance(error, ConnectionError) and "pyspark" in sys.modules:
        from streams_py.spark.failures import lost_jvm

        lost = lost_jvm(error)
        return None if lost is None else (lost, failed)
    return None


def signals_to_end() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command: SIGINT, SIGTERM, and SIGHUP unless it is ignored.

    `nohup` starts commands with SIGHUP ignored.
    """
    return tuple(each for each in _SIGNALS if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN)


@contextlib.contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Turn the first signal into KeyboardInterrupt, and ignore later ones until the end.

    `timeout` sends two signals, and the remaining work is short. Yields the list of signals that have arrived.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def interrupt(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        logging.disable(logging.CRITICAL)  # hides errors about the interrupted call
        warnings.simplefilter("ignore")
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in signals_to_end()}
    with warnings.catch_warnings():
        for number in before:
            signal.signal(number, interrupt)
        try:
            yield came
        finally:
            _set_handlers(before)
            if came:
                logging.disable(logging.NOTSET)


def keeping_handlers(start: Callable[[], T]) -> T:
    """Call ``start``, which starts Spark, and keep the process's signal handlers.

    PySpark would replace the handler of Ctrl-C with one that calls the JVM in the middle of another call. Both sides
    then print long errors. While the JVM starts, which takes seconds, signals are delayed: PySpark would remove files
    that the JVM still needs, and the JVM would stop with a stack trace.
    """
    if threading.current_thread() is not threading.main_thread():
        return start()
    context: Any = importlib.import_module("pyspark.core.context")
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    module: Any = signal
    setter, launch = signal.signal, context.launch_gateway

    def keep(number: int, handler: Any) -> Any:
        is_ours = number in before and callable(handler)
        return before[signal.Signals(number)] if is_ours else setter(number, handler)

    def launch_whole(*given: Any, **named: Any) -> Any:
        came: list[int] = []
        for number in filter(lambda number: callable(before[number]), before):
            setter(number, lambda number, _: came.append(number))
        try:
            return launch(*given, **named)
        finally:
            _set_handlers(before, setter)
            for came_first in came[:1]:
                signal.raise_signal(came_first)

    module.signal, context.launch_gateway = keep, launch_whole
    try:
        made = start()
    finally:
        module.signal, context.launch_gateway = setter, launch
    _set_handlers(before)
    return made


def _set_handlers(handlers: Mapping[signal.Signals, Any], setter: Callable[[int, Any], Any] = signal.signal) -> None:
    for number, handler in handlers.items():
        setter(number, signal.SIG_DFL if handler is None else handler)


def _end(sentence: str, status: int, error: BaseException) -> NoReturn:
    from rich.console import Console

    Console(stderr=True, soft_wrap=True).print(
        printable_lines(f"error: {sentence}"), style="red", highlight=False, markup=False
    )
    raise typer.Exit(status) from error
