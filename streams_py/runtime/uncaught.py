"""What happens to a client when one of its stream threads fails: the application decides (KIP-671)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

__all__ = ["StreamThreadExceptionResponse", "UncaughtHandler", "response_to"]

_log = logging.getLogger("streams_py")


class StreamThreadExceptionResponse(Enum):
    """What to do when a stream thread fails (KIP-671)."""

    SHUTDOWN_CLIENT = "shut down this client"
    REPLACE_THREAD = "replace the thread"
    SHUTDOWN_APPLICATION = "shut down every client of the application"


UncaughtHandler = Callable[[Exception], StreamThreadExceptionResponse]


def response_to(error: Exception, handler: UncaughtHandler | None) -> StreamThreadExceptionResponse:
    """The handler's answer; SHUTDOWN_CLIENT without one, and for one that fails or answers nonsense."""
    if handler is None:
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    try:
        answer: object = handler(error)
    except (Exception, SystemExit):  # an exit would end this thread only, and nobody would close what it has
        _log.exception("the uncaught-exception handler failed; shutting down this client")
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    if not isinstance(answer, StreamThreadExceptionResponse):
        _log.error(
            "the uncaught-exception handler returned %r, no StreamThreadExceptionResponse; closing this client", answer
        )
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    return answer
