"""Errors for received bytes and for values to send.

There are two families. :class:`DecodeError` means that another member sent bytes that do not match the format. Its
message has the field, the byte, and what to do. :class:`EncodeError` means that a value cannot be represented in the
requested version. A decoder raises no other exceptions, whatever the bytes are.

The subclasses follow Kafka where they matter to a caller. The most important one is the *task-assignment error*
(Kafka's ``TaskAssignmentException``): :class:`TaskAssignmentProtocolError` catches it in both directions. All failures
of the AssignmentInfo decoder are task-assignment errors, and no failure of the SubscriptionInfo decoder is one.
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
    """A task-assignment error in bytes or values. The leader answers it with an error assignment."""


# -- received bytes ----------------------------------------------------------------------------------------------


class DecodeError(ProtocolError):
    """Bytes that do not match the format.

    ``what`` has the field and the fault, ``offset`` is the byte where reading stopped (0-based), ``remedy`` says what
    to do. Bytes after the last known field are not an error: they are ignored, as in Kafka.
    """

    def __init__(self, what: str, *, offset: int, remedy: str) -> None:
        super().__init__(f"{what} (at byte {offset}); {remedy}")
        self.what = what
        self.offset = offset
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:  # makes the error copyable although the constructor requires keywords
        return (_rebuild_decode_error, (type(self), self.what, self.offset, self.remedy))


def _rebuild_decode_error(kind: type[DecodeError], what: str, offset: int, remedy: str) -> DecodeError:
    return kind(what, offset=offset, remedy=remedy)


class TruncatedDecodeError(DecodeError):
    """The bytes end before the message is complete (Kafka: ``BufferUnderflowException``)."""


class InvalidLengthDecodeError(DecodeError):
    """A length is negative or exceeds the remaining bytes (Kafka: ``RuntimeException``).

    Some fields allow a negative length, which means null.
    """


class InvalidVersionDecodeError(DecodeError):
    """An impossible version, or latest supported version (Kafka: ``IllegalArgumentException``)."""


class RepeatedTagDecodeError(DecodeError):
    """A client tag occurs twice (Kafka: ``IllegalStateException``).

    Raised when the tags are *read*, as in Kafka.
    """


class MissingUserDataDecodeError(DecodeError):
    """A member sent no user data, so it is not a Kafka Streams member."""


class MalformedTextDecodeError(DecodeError):
    """Text that is not modified UTF-8.

    Malformed *standard* UTF-8 does not raise an error: it is read as U+FFFD, as in Kafka.
    """


class NotAllowedDecodeError(DecodeError):
    """A value without a meaning, which Kafka's reader accepts and we reject.

    There are three cases: a negative length of a topology name and a topic index without a topic in an AssignmentInfo,
    and a task number below -1 in Connect's job lists.
    """


class LimitExceededDecodeError(DecodeError):
    """A message, well-formed as far as read, that exceeds :mod:`streams_protocol.limits`."""


class TaskAssignmentDecodeError(DecodeError, TaskAssignmentProtocolError):
    """An unusable AssignmentInfo. ``__cause__`` is the more specific error, if there is one."""


class SchemaError(DecodeError):
    """An unusable Connect message. ``__cause__`` is the more specific error, if there is one."""


# -- values to send ----------------------------------------------------------------------------------------------


class EncodeError(ProtocolError):
    """A value that the format cannot represent."""

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:  # makes the error copyable although the constructor requires keywords
        return (_rebuild_encode_error, (type(self), self.what, self.remedy))


def _rebuild_encode_error(kind: type[EncodeError], what: str, remedy: str) -> EncodeError:
    return kind(what, remedy=remedy)


class InvalidVersionEncodeError(EncodeError):
    """A version that does not exist, or that is newer than the value's latest supported version."""


class ValueEncodeError(EncodeError):
    """A number out of range, or text that is too long or not valid Unicode."""


class LimitExceededEncodeError(EncodeError):
    """A value that exceeds :mod:`streams_protocol.limits`."""


class TaskAssignmentEncodeError(EncodeError, TaskAssignmentProtocolError):
    """A named topology in a version without names, or any failure to encode an AssignmentInfo."""
