"""What a query is answered with when it is not answered."""

from __future__ import annotations

from typing import ClassVar, Final

from streams_py.config.secrets import redact
from streams_py.errors import StreamsError
from streams_py.system.printable import named

__all__ = [
    "STATUS_OF",
    "UNKNOWN_STORE",
    "AbsentKeyError",
    "BadQueryError",
    "NotHereNowError",
    "OwnerAnswerError",
    "OwnerTimeoutError",
    "QueryError",
    "told",
]

UNKNOWN_STORE: Final = "unknown_store"


def told(error: BaseException) -> str:
    """What somebody else's error says, as whoever asks may read it: a serde's may quote a registry's address and
    password."""
    return redact(named(error))


class QueryError(StreamsError):
    """Base of these. ``status``: of the HTTP answer; ``code``: the word in it that programs look at."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "failed"


class BadQueryError(QueryError):
    """The query itself is wrong."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "bad_query"


class AbsentKeyError(QueryError):
    """The instance that has the key's partition was asked, and the store has no such key."""

    status: ClassVar[int] = 404
    code: ClassVar[str] = "absent"


class NotHereNowError(QueryError):
    """Tasks are moving or restoring, or their instance has just ended: the same query may succeed in a moment."""

    retriable: ClassVar[bool] = True
    status: ClassVar[int] = 503
    code: ClassVar[str] = "not_available"


class OwnerTimeoutError(QueryError):
    """The instance that has it did not answer in time."""

    retriable: ClassVar[bool] = True
    status: ClassVar[int] = 504
    code: ClassVar[str] = "timeout"


class OwnerAnswerError(QueryError):
    """The instance that has it answered something else than a query service does."""

    status: ClassVar[int] = 502
    code: ClassVar[str] = "owner_failed"


STATUS_OF: Final = {
    UNKNOWN_STORE: 404,
    **{
        error.code: error.status
        for error in (QueryError, BadQueryError, AbsentKeyError, NotHereNowError, OwnerTimeoutError, OwnerAnswerError)
    },
}
"""The status that each word of an answer comes with."""
