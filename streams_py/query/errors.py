"""Errors of queries, with their HTTP statuses and error codes."""

from __future__ import annotations

from typing import ClassVar, Final

from streams_py.config.secrets import redact
from streams_py.errors import StreamsError
from streams_py.system.printable import named

UNKNOWN_STORE: Final = "unknown_store"


def safe_text(error: BaseException) -> str:
    """Return the text of any error in a form that callers may read.

    The text of a serde's error may contain the address and password of a registry. These are redacted.
    """
    return redact(named(error))


class QueryError(StreamsError):
    """The base class. ``status``: the HTTP status. ``code``: the error code in the answer, for programs."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "failed"


class BadQueryError(QueryError):
    """The query itself is not valid."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "bad_query"


class AbsentKeyError(QueryError):
    """The instance that has the key's partition has answered, and its store does not have the key."""

    status: ClassVar[int] = 404
    code: ClassVar[str] = "absent"


class NotHereNowError(QueryError):
    """Tasks are moving or restoring, or their instance has just stopped. A retry may succeed."""

    retriable: ClassVar[bool] = True
    status: ClassVar[int] = 503
    code: ClassVar[str] = "not_available"


class OwnerTimeoutError(QueryError):
    """The instance that has the partition did not answer in time."""

    retriable: ClassVar[bool] = True
    status: ClassVar[int] = 504
    code: ClassVar[str] = "timeout"


class OwnerAnswerError(QueryError):
    """The instance that has the partition returned an answer that is not from a query service."""

    status: ClassVar[int] = 502
    code: ClassVar[str] = "owner_failed"


STATUS_OF: Final = {
    UNKNOWN_STORE: 404,
    **{
        error.code: error.status
        for error in (QueryError, BadQueryError, AbsentKeyError, NotHereNowError, OwnerTimeoutError, OwnerAnswerError)
    },
}
"""HTTP status of each error code."""
