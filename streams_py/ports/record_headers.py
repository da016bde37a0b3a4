"""The headers of a consumed record, even if their names are not UTF-8.

Kafka stores header names as bytes, and clients can write arbitrary bytes. confluent-kafka decodes names strictly. For a
name that is not UTF-8, ``Message.headers()`` returns a list with an empty slot, and sets an exception that the
interpreter does not detect. The exception then appears in unrelated code, and reading the empty slot crashes the
process. So no module calls ``headers()`` of a consumed record directly. :func:`headers_of` and :func:`headers_of_all`
call it in a way that makes the interpreter detect the exception, and then correct the message.

Kafka's Java clients decode names leniently: malformed bytes become U+FFFD, and a sink writes U+FFFD. These functions
return the same names. confluent-kafka provides only the bytes of the first such name; further ones in the same record
become a single U+FFFD. The values of headers are never affected.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from streams_py.errors import SerializationError

if TYPE_CHECKING:
    from streams_py.ports import Headers, RawRecord

_log = logging.getLogger(__name__)

_HeaderList = list[tuple[str, bytes | None]]

# CPython checks for undetected exceptions when C code calls a function, but not when byte code calls a C function
# through a specialized instruction. methodcaller() and map() are C code.
_read: Final = methodcaller("headers")

_UNKNOWN_NAME: Final = "\ufffd"
_NAME_CHARACTERS_SHOWN: Final = 80


def headers_of(record: RawRecord) -> _HeaderList | None:
    """Return the headers of a consumed record; None if it has no headers."""
    try:
        return _read(record)  # type: ignore[no-any-return]
    except SystemError as failed:
        return _repair(record, failed)


def headers_of_all(records: Sequence[RawRecord]) -> list[_HeaderList | None]:
    """Return the headers of each record. All records must have the same type."""
    headers: list[_HeaderList | None] = []
    if not records:
        return headers
    found = map(type(records[0]).headers, records)
    while True:
        try:
            headers.extend(found)  # keeps the headers before an exception; the next call continues after it
        except SystemError as failed:
            headers.append(_repair(records[len(headers)], failed))
        else:
            return headers


def check_header_names(topic: str, headers: Iterable[tuple[object, bytes | None]]) -> None:
    """Check headers that are to be written.

    confluent-kafka would write a name only up to its first NUL, would write the ``repr`` of a name that is not a str,
    and would kill the process over a name that UTF-8 cannot encode.

    Raises:
        SerializationError: A name cannot be written.
    """
    for name, _ in headers:
        if not isinstance(name, str):
            wrong, remedy = f"is of type {type(name).__name__}", "use a str"
        elif "\0" in name:
            wrong, remedy = "contains the character NUL", "remove the character"
        elif not name.isascii() and _has_surrogate(name):
            wrong, remedy = "contains a surrogate, which UTF-8 cannot encode", "remove the character"
        else:
            continue
        shown = repr(name)[:_NAME_CHARACTERS_SHOWN]
        raise SerializationError(
            f"a record for {topic} has a header whose name {wrong}, {shown}; the client library cannot write "
            f"it: {remedy}"
        )


def _has_surrogate(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return False


def written_headers(topic: str, headers: Headers) -> list[tuple[str, bytes | None]] | None:
    """Return headers in the form that librdkafka's binding requires: a list, or None without headers.

    A list comes from a consumer and is returned unchanged. Other sequences may come from the user and are checked.

    Raises:
        SerializationError: A name cannot be written.
    """
    if not headers:
        return None
    if headers.__class__ is list:
        return headers  # from a consumer
    check_header_names(topic, headers)
    return list(headers)


class _Repairs:
    """The number of corrected records in this process."""

    count = 0


def _repair(record: RawRecord, failed: SystemError) -> _HeaderList:
    """Replace the headers in the message by headers without empty slots."""
    undecoded = _undecoded_name(failed)
    if undecoded is None:
        raise failed
    names = iter([undecoded.decode("utf-8", "replace")])
    message: Any = record
    headers = [
        # A tuple with an empty slot has only one referent, its value. Reading an empty slot would crash the process.
        header if len(gc.get_referents(header)) == 2 else (next(names, _UNKNOWN_NAME), header[1])
        for header in message.headers()  # cached by the first call, so this call sets no exception
    ]
    message.set_headers(headers)
    _Repairs.count = count = _Repairs.count + 1
    if count & (count - 1) == 0:  # warn at powers of two only, to avoid a flood of warnings
        _log.warning(
            "%s-%d, offset %d: a header name is not UTF-8 and is read as %r, as Java clients do "
            "(record number %d of this process with such a name)",
            record.topic(),
            record.partition(),
            record.offset(),
            undecoded[:_NAME_CHARACTERS_SHOWN].decode("utf-8", "replace"),
            count,
        )
    return headers


def _undecoded_name(error: BaseException | None) -> bytes | None:
    """Return the bytes of the first name that is not UTF-8, from the first exception in the chain of causes."""
    while error is not None:
        if isinstance(error, UnicodeDecodeError):
            return error.object
        error = error.__cause__
    return None
