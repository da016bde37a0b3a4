"""What a worker answers when it cannot do what is asked of it. Each has the HTTP status that it stands for."""

from __future__ import annotations

from typing import ClassVar

from streams_py.errors import StreamsError

__all__ = [
    "AlreadyExistsError",
    "BadRequestError",
    "ConnectError",
    "EndedError",
    "NotFoundError",
    "NotLeaderError",
    "RebalanceExpectedError",
    "StartingError",
]


class ConnectError(StreamsError):
    """A request to a worker failed."""

    status: ClassVar[int] = 500


class BadRequestError(ConnectError):
    """The configuration or the request is wrong."""

    status = 400


class NotFoundError(ConnectError):
    """There is no such connector or task."""

    status = 404


class AlreadyExistsError(ConnectError):
    """There is a connector with that name."""

    status = 409


class StartingError(ConnectError):
    """The worker still reads its topics."""

    status = 503
    retriable = True


class EndedError(ConnectError):
    """The worker stops, or has ended: another one knows."""

    status = 503


class RebalanceExpectedError(ConnectError):
    """The group is changing: ask again in a moment."""

    status = 409
    retriable = True


class NotLeaderError(ConnectError):
    """Another worker does this. ``url`` is where to ask: the leader, or a task's owner; None while it is not known."""

    status = 409

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url
