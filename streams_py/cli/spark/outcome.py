"""How a command on Spark ends that went wrong: in one sentence."""

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

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "explained", "keeping_handlers", "signals_to_end"]

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED: Final = 130
"""What a shell says of a command that Ctrl-C has ended."""
_NOT_DONE = (ValueError, ModuleNotFoundError, BrokerUnavailableError)
_OF_PLACES: Final = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EROFS, errno.ENOSPC}
)
"""What files and folders that users name are refused with."""


def console() -> Console:
    """Where results go."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


@contextlib.contextmanager
def explained(
    interrupted: str | Callable[[], str] = "interrupted",
    stands: Callable[[], str] = lambda: "",
    *,
    failed: int = FAILED,
) -> Iterator[None]:
    """Our own errors, a missing package, a file that cannot be used and what Spark says end the command with what is
    wrong and what to do, signals with the sentence ``interrupted``, which may depend on how far it is. ``stands``: what
    an error has left half done, if anything, and what to do about that. ``failed``: the exit status when the command
    broke off; NOT_DONE where FAILED is what it has found."""
    with _interruptible() as came:
        try:
            yield
        except BaseException as error:
            # A signal breaks off a question to the JVM, and what is asked after that may say something else.
            if came or isinstance(error, KeyboardInterrupt):
                _end(interrupted if isinstance(interrupted, str) else interrupted(), _INTERRUPTED, error)
            explanation = _explanation(error, failed)
            if explanation is not None:
                sentence, status = explanation
                left = stands()
                _end(f"{sentence}; {left}" if left else sentence, status, error)
            raise


def _explanation(error: BaseException, failed: int) -> tuple[str, int] | None:
    """A sentence for this error, if there is one, and the exit status; ``failed`` when it broke off at its work."""
    if isinstance(error, (StreamsError, ModuleNotFoundError)):
        remedy = "; install kafka-streams-py[spark]" if isinstance(error, ModuleNotFoundError) else ""
        return f"{error}{remedy}", NOT_DONE if isinstance(error, _NOT_DONE) else failed
    if isinstance(error, OSError) and error.errno in _OF_PLACES:
        what = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
        return f"{what}; name another place, or make this one fit", NOT_DONE
    if type(error).__module__.startswith("pyarrow."):
        return f"{error}; is it a table that telemetry has made?", NOT_DONE
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        from streams_py.spark.failures import sentence_of

        return sentence_of(error), failed
    if isinstance(error, ConnectionError) and "pyspark" in sys.modules:
        from streams_py.spark.failures import lost_jvm

        lost = lost_jvm(error)
        return None if lost is None else (lost, failed)
    return None


def signals_to_end() -> tuple[signal.Signals, ...]:
    """Those that end a command in order: Ctrl-C, SIGTERM, and that of a terminal which is closed, but for `nohup`."""
    return tuple(each for each in _SIGNALS if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN)


@contextlib.contextmanager
def _interruptible() -> Iterator[list[int]]:
    """The signals are KeyboardInterrupt in here, once: `timeout` sends two, and what follows is short. Which of them
    came."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def interrupt(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        logging.disable(logging.CRITICAL)  # what is said of the question that is broken off
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
    """What ``start`` gives, which starts Spark. The handlers of signals stay, also meanwhile: PySpark puts one of its
    own in the place of that of Ctrl-C, which asks the JVM something in the middle of another question, and both sides
    say so at length. While the JVM begins, which takes seconds, signals wait: PySpark would remove what it still needs,
    and it would end with its stack."""
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

    Console(stderr=True, soft_wrap=True).print(f"error: {sentence}", style="red", highlight=False, markup=False)
    raise typer.Exit(status) from error
