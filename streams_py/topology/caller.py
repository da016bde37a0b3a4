"""Where in the user's program a part of a topology was described: for errors that come later than the call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from streams_py.errors import TopologyError

__all__ = ["locate", "located", "user_line"]

P = ParamSpec("P")
R = TypeVar("R")

_OURS = __name__.partition(".")[0] + "."


def user_line() -> str | None:
    """``file:line`` of the innermost call that is not this library's own; None when there is none."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_OURS):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def locate(error: TopologyError, where: str | None) -> None:
    """Let the message end with ``where``, unless it names a line already."""
    if error.where is None and where is not None:
        error.where = where
        error.args = (f"{error.args[0]} ({where})",)


def located(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: errors in what the user gave end with the line of the call."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TopologyError as error:
            locate(error, user_line())
            raise

    return call
