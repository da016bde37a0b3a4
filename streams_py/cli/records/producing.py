"""``streams-py produce``: writes records to a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, BinaryIO, Final, TypeAlias

import typer

from streams_py.cli.connecting import connected
from streams_py.cli.forms import SERDES_ALLOWED, Form, form_named
from streams_py.cli.options import BOOTSTRAP_OR_EMBEDDED, CONFIG, EMBEDDED
from streams_py.cli.records.topics import partitions_of
from streams_py.cli.usage import RefusedError, refusing
from streams_py.clients.factory import KafkaClients
from streams_py.errors import SerializationError, StreamsError
from streams_py.serdes import cannot_encode

_TIMEOUT_MS: Final = 15_000
_LENGTH_SHOWN_MAX: Final = 60

_Record: TypeAlias = tuple[bytes, bytes | None]
"""Value and key."""


@refusing
def produce(
    topic: Annotated[str, typer.Argument(help="An existing topic.")],
    lines: Annotated[list[str] | None, typer.Argument(help="Values; default: the lines of standard input.")] = None,
    value: Annotated[str, typer.Option(metavar="SERDE", help=f"Serde of the values: {SERDES_ALLOWED}.")] = "string",
    key: Annotated[
        str | None,
        typer.Option(
            metavar="SERDE", help="Read lines as KEY:VALUE, with keys of this serde. window-string: KEY@START."
        ),
    ] = None,
    separator: Annotated[str, typer.Option("--separator", "-s", help="Text between key and value.")] = ":",
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> int:
    """Write records to a topic: one per argument, or per line of standard input.

    If an argument is wrong, no record is written. If a line of standard input is wrong, the lines before it are
    written.

    Exit status: 0 all records are acknowledged; 2 wrong usage, or the cluster does not answer or rejects the request.

    Examples:

      streams-py produce text-lines "all streams lead to kafka"

      streams-py produce prices --key string --value float64 apples:1.20 pears:0.99

      streams-py produce text-lines < README.md
    """
    if separator == "":
        raise RefusedError("--separator needs at least one character")
    value_form = form_named(value, setting="--value", is_key=False)
    key_form = None if key is None else form_named(key, setting="--key", is_key=True)
    given = _lines_of(sys.stdin.buffer) if lines is None else lines
    records: Iterable[_Record] = (_record(line, topic, key_form, value_form, separator) for line in given)
    if lines is not None:
        records = list(records)  # checks all of them before the first one is written
    with connected(bootstrap, config, "streams-py", EMBEDDED) as cluster:
        partitions_of(topic, cluster.admin, cluster.clients)
        written = _written(records, topic, cluster.clients)
    print(f"{_records(written)} written to {topic}", file=sys.stderr)
    return 0


def _lines_of(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a byte stream.

    Raises:
        RefusedError: The next line is not UTF-8.
    """
    for line in stream:
        try:
            yield line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise RefusedError(f"{line[:_LENGTH_SHOWN_MAX]!r} is not valid UTF-8 text ({error.reason})") from None


def _record(line: str, topic: str, key: Form | None, value: Form, separator: str) -> _Record:
    """Return the record of a line. With a form for keys, a line is key, separator, value."""
    if key is None:
        return _encoded(line, value, topic, is_key=False), None
    left, found, right = line.partition(separator)
    if not found:
        raise RefusedError(f"no {separator!r} in {_short(line)}; with --key a line is KEY{separator}VALUE")
    encoded_key = _encoded(left, key, topic, is_key=True)
    return _encoded(right, value, topic, is_key=False), encoded_key


def _written(records: Iterable[_Record], topic: str, clients: KafkaClients) -> int:
    """Write the records, wait until all are acknowledged, and return their number."""
    producer = clients.producer("streams-py")
    written = 0
    try:
        refused = None
        try:
            for value, key in records:
                producer.produce(topic, value, key, -1, None, -1, None)
                written += 1
        except (RefusedError, SerializationError) as error:
            refused = error
        late = producer.flush(_TIMEOUT_MS)
        producer.check()
        if late:
            raise StreamsError(f"{late} of {written} records were not acknowledged within {_TIMEOUT_MS // 1000} s")
        if refused is not None:
            before = f"; {_records(written)} before it {'is' if written == 1 else 'are'} written" if written else ""
            raise RefusedError(f"line {written + 1}: {refused}{before}")
    finally:
        producer.close()
    return written


def _records(count: int) -> str:
    return f"{count} {'record' if count == 1 else 'records'}"


def _encoded(text: str, form: Form, topic: str, *, is_key: bool) -> bytes:
    serde = form.serde
    option = "--key" if is_key else "--value"
    try:
        value = form.read(text)
    except ValueError as error:
        raise RefusedError(
            f"{_short(text)} is not a valid {serde.name}: {error}; choose another serde with {option}"
        ) from None
    try:
        return serde.serializer(topic, is_key=is_key)(value)
    except Exception as error:
        raise cannot_encode(error, serde, value, topic=topic, is_key=is_key) from error


def _short(text: str) -> str:
    return repr(text if len(text) <= _LENGTH_SHOWN_MAX else f"{text[:_LENGTH_SHOWN_MAX]}...")
