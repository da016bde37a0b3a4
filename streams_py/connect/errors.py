"""Errors of requests to a worker. Each class has the HTTP status of its response."""

from __future__ import annotations

from typing import ClassVar

from streams_py.errors import StreamsError


class ConnectError(StreamsError):
    """A request to a worker failed."""

    status: ClassVar[int] = 500


class BadRequestError(ConnectError):
    """The configuration or the request is wrong."""

    status = 400


class NotFoundError(ConnectError):
    """The connector or task does not exist."""

    status = 404


class AlreadyExistsError(ConnectError):
    """A connector with that name exists already."""

    status = 409


class StartingError(ConnectError):
    """The worker is still reading its topics."""

    status = 503
    retriable = True


class EndedError(ConnectError):
    """The worker is stopping or has stopped. Ask another worker of the group."""

    status = 503


class RebalanceExpectedError(ConnectError):
    """The group is rebalancing: try again in a moment."""

    status = 409
    retriable = True


class NotLeaderError(ConnectError):
    """Another worker must handle the request.

    ``url`` is the leader or a task's worker, or None while it is unknown.
    """

    status = 409

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url
