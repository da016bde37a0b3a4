"""The line of the user's program that described a part of a topology, for later errors."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

from streams_py.errors import TopologyError

P = ParamSpec("P")
R = TypeVar("R")

_OURS = __name__.partition(".")[0] + "."


def user_line() -> str | None:
    """Return ``file:line`` of the innermost call outside of this library, or None."""
    frame = inspect.currentframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def raised_line(error: BaseException) -> str | None:
    """Return ``file:line`` of the first traceback entry outside of this library, or None.

    That is the function that this library called and that raised the error, or called the code that did. None if that
    function is not in Python.
    """
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not _is_ours(frame):
            return f"{frame.f_code.co_filename}:{line}"
    return None


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_OURS)


def locate(error: TopologyError, where: str | None) -> None:
    """Append ``where`` to the message, unless the error already has a line."""
    if error.where is None and where is not None:
        error.where = where
        error.args = (f"{error.args[0]} ({where})",)


def located(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that a TopologyError ends with the line of the call."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TopologyError as error:
            locate(error, user_line())
            raise

    return call
