"""The application's decision about a failed stream thread (KIP-671)."""

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
    """Return the handler's answer; SHUTDOWN_CLIENT without a handler, or if it fails or returns another type."""
    if handler is None:
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    try:
        answer: object = handler(error)
    except (Exception, SystemExit):  # SystemExit would only stop this thread, before its cleanup
        _log.exception("the uncaught-exception handler failed; shutting down this client")
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    if not isinstance(answer, StreamThreadExceptionResponse):
        _log.error(
            "the uncaught-exception handler returned %r, not a StreamThreadExceptionResponse; closing this client",
            answer,
        )
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
    return answer
