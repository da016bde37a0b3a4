"""What can be wrong with bytes that arrive and with values that leave.

Two families. :class:`DecodeError` is *theirs*: another member sent bytes that do not fit the format; the message says
what was being read, at which byte, and what to do. :class:`EncodeError` is *ours*: a value has no representation in
the version asked for. No other exception leaves a decoder, whatever the bytes.

The kinds follow Kafka, where they matter to a caller. One of them does in particular: a *task-assignment error*
(Kafka's ``TaskAssignmentException``), which :class:`TaskAssignmentProtocolError` catches in both directions. All
failures of the AssignmentInfo decoder are of that kind, and none of the SubscriptionInfo decoder.
"""

from __future__ import annotations

__all__ = [
    "DecodeError",
    "EncodeError",
    "InvalidLengthDecodeError",
    "InvalidVersionDecodeError",
    "InvalidVersionEncodeError",
    "LimitExceededDecodeError",
    "LimitExceededEncodeError",
    "MalformedTextDecodeError",
    "MissingUserDataDecodeError",
    "NotAllowedDecodeError",
    "ProtocolError",
    "RepeatedTagDecodeError",
    "SchemaError",
    "TaskAssignmentDecodeError",
    "TaskAssignmentEncodeError",
    "TaskAssignmentProtocolError",
    "TruncatedDecodeError",
    "ValueEncodeError",
]


class ProtocolError(ValueError):
    """Base of all errors of this package."""


class TaskAssignmentProtocolError(ProtocolError):
    """A task-assignment error, in bytes or in values: the leader answers it with an error assignment."""


# -- theirs: bytes -------------------------------------------------------------------------------------------


class DecodeError(ProtocolError):
    """Bytes that do not follow the format.

    ``what`` names the field and the fault, ``offset`` is the byte where reading stopped (0-based), ``remedy`` says
    what to do. You do not get it for bytes after the last known field: those are ignored, as Kafka does.
    """

    def __init__(self, what: str, *, offset: int, remedy: str) -> None:
        super().__init__(f"{what} (at byte {offset}); {remedy}")
        self.what = what
        self.offset = offset
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:  # copyable although the constructor wants keywords
        return (_rebuild_decode_error, (type(self), self.what, self.offset, self.remedy))


def _rebuild_decode_error(kind: type[DecodeError], what: str, offset: int, remedy: str) -> DecodeError:
    return kind(what, offset=offset, remedy=remedy)


class TruncatedDecodeError(DecodeError):
    """The bytes end before the layout does (Kafka: ``BufferUnderflowException``)."""


class InvalidLengthDecodeError(DecodeError):
    """A length is negative where it may not be, or larger than all bytes left (Kafka: ``RuntimeException``)."""


class InvalidVersionDecodeError(DecodeError):
    """The version, or its relation to the newest supported one, is impossible (Kafka: ``IllegalArgumentException``)."""


class RepeatedTagDecodeError(DecodeError):
    """The same client tag twice. Raised when the tags are *read*, as in Kafka (``IllegalStateException``)."""


class MissingUserDataDecodeError(DecodeError):
    """A member sent no user data at all, so it is not a Kafka Streams member."""


class MalformedTextDecodeError(DecodeError):
    """Text that is not modified UTF-8. Malformed *standard* UTF-8 is no error: it reads as U+FFFD, as in Kafka."""


class NotAllowedDecodeError(DecodeError):
    """Kafka's reader would let this pass and end up with a value that means nothing; we refuse it.

    Three cases: a negative length of a topology name and a topic index without topic in an AssignmentInfo, and a task
    number below -1 in Connect's job lists.
    """


class LimitExceededDecodeError(DecodeError):
    """The message is well-formed as far as it was read, but larger than :mod:`streams_protocol.limits` allows."""


class TaskAssignmentDecodeError(DecodeError, TaskAssignmentProtocolError):
    """An AssignmentInfo that cannot be used. ``__cause__`` is the finer error, where there is one."""


class SchemaError(DecodeError):
    """A Connect worker state or assignment that cannot be used. ``__cause__`` is the finer error, if any."""


# -- ours: values --------------------------------------------------------------------------------------------


class EncodeError(ProtocolError):
    """A value that the format cannot express."""

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:  # copyable although the constructor wants keywords
        return (_rebuild_encode_error, (type(self), self.what, self.remedy))


def _rebuild_encode_error(kind: type[EncodeError], what: str, remedy: str) -> EncodeError:
    return kind(what, remedy=remedy)


class InvalidVersionEncodeError(EncodeError):
    """A version that does not exist, or that is newer than the newest one the value claims to support."""


class ValueEncodeError(EncodeError):
    """A number out of range, or text that is too long or no Unicode text."""


class LimitExceededEncodeError(EncodeError):
    """More than :mod:`streams_protocol.limits` allows."""


class TaskAssignmentEncodeError(EncodeError, TaskAssignmentProtocolError):
    """A named topology in a version without place for it, or any failure to write an AssignmentInfo."""
