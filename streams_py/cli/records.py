"""``streams-py topics | produce | consume``: topics and records of any cluster."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, Final

from streams_protocol.types import TopicPartition
from streams_py.cli.connecting import connected
from streams_py.cli.forms import Form, form_named
from streams_py.cli.options import EMBEDDED
from streams_py.cli.usage import FAILED, refuse, say
from streams_py.clients.factory import KafkaClients
from streams_py.errors import SerializationError, StreamsError
from streams_py.ports import BEGINNING, Admin, AdminError, PartitionInfo, RawRecord, TopicSpec
from streams_py.ports.record_headers import headers_of
from streams_py.serdes import cannot_decode, cannot_encode
from streams_py.system.printable import json_printable, printable
from streams_py.topology.declare.names import check_topic

_TIMEOUT_MS: Final = 15_000
_POLL_MS: Final = 200
_POLL_RECORDS_MAX: Final = 1_000
_LENGTH_SHOWN_MAX: Final = 60
_TIME_SHOWN_MAX_MS: Final = 253_402_300_799_999  # the end of the year 9999

Topics = Mapping[str, tuple[PartitionInfo, ...]]


class _RefusedError(Exception):
    """A request that cannot be carried out. Its text is shown to the user."""


class _BadRecordError(StreamsError):
    """A record that does not match the serdes of the command."""


def _ended(command: Callable[[], None]) -> int:
    """Run a command and return its exit status.

    Errors that the user can solve are printed in one sentence.
    """
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head`: the reader has stopped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except _BadRecordError as bad:
        say(bad)
        return FAILED
    except (_RefusedError, StreamsError) as error:
        return refuse(error)
    return 0


def existing_topics(admin: Admin) -> Topics:
    return {
        name: found
        for name, found in sorted(admin.describe_topics(None).items())
        if not isinstance(found, AdminError) and not name.startswith("__")
    }


def _partitions_of(topic: str, admin: Admin, clients: KafkaClients) -> list[TopicPartition]:
    """Return the partitions of a topic.

    Lists all topics, because some brokers create a topic when asked for it.
    """
    topics = existing_topics(admin)
    if topic in topics:
        return [TopicPartition(topic, info.partition) for info in topics[topic]]
    near = get_close_matches(topic, topics, n=1)
    if near:
        raise _RefusedError(f"topic {topic} does not exist; did you mean {near[0]}?")
    raise _RefusedError(
        f"topic {topic} does not exist; existing topics: {', '.join(topics) or '(no topics)'}. "
        f"{_how_topics_come(clients)}"
    )


def _how_topics_come(clients: KafkaClients) -> str:
    if clients.embedded is None:
        return "Create a topic with: streams-py topics --create NAME"
    return (
        "The embedded cluster exists while a process uses it, and is empty at first. Start the application first: it "
        "creates its topics"
    )


# -- topics --------------------------------------------------------------------------------------------------


def list_topics(bootstrap: str | None, config: Path | None) -> int:
    """Print every topic with its numbers of partitions and records. Returns the exit status."""

    def command() -> None:
        with connected(bootstrap, config, "streams-py", EMBEDDED) as cluster:
            clients, admin = cluster.clients, cluster.admin
            topics = existing_topics(admin)
            if not topics:
                print(f"no topics at {cluster.bootstrap}. {_how_topics_come(clients)}", file=sys.stderr)
                return
            partitions = [TopicPartition(name, info.partition) for name, infos in topics.items() for info in infos]
            counts = dict.fromkeys(topics, 0)
            for partition, (first, end) in _ranges(admin, partitions).items():
                counts[partition.topic] += end - first
            width = max(len("topic"), *map(len, topics))
            print(f"{'topic':{width}}  partitions  records")
            for name, infos in topics.items():
                print(f"{name:{width}}  {len(infos):10}  {counts[name]:7}")

    return _ended(command)


def create_topic(name: str, partitions: int, bootstrap: str | None, config: Path | None) -> int:
    """Create a topic. Returns the exit status."""

    def command() -> None:
        check_topic(name)  # the embedded cluster accepts any name
        with connected(bootstrap, config, "streams-py", EMBEDDED) as cluster:
            failed = cluster.admin.create_topics([TopicSpec(name, partitions)])[name]
            if failed is not None:
                raise StreamsError(f"topic {name} could not be created: {failed.kind.value}: {failed.message}")
            print(f"created {name} with {partitions} partitions")

    return _ended(command)


def _ranges(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the end offset of each partition."""
    first, end = admin.list_offsets(partitions, earliest=True), admin.list_offsets(partitions)
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for partition in partitions:
        low, high = first[partition], end[partition]
        if isinstance(low, AdminError) or isinstance(high, AdminError):
            problem = low if isinstance(low, AdminError) else high
            raise StreamsError(f"cannot fetch the offsets of {partition}: {problem}")
        ranges[partition] = low, high
    return ranges


# -- produce -------------------------------------------------------------------------------------------------


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a byte stream for ``produce_lines``.

    Raises when it reaches a line that is not UTF-8.
    """
    for line in stream:
        try:
            yield line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise _RefusedError(f"{line[:_LENGTH_SHOWN_MAX]!r} is not valid UTF-8 text ({error.reason})") from None


def produce_lines(
    topic: str,
    lines: Iterable[str],
    bootstrap: str | None,
    config: Path | None,
    *,
    key: str | None,
    value: str,
    separator: str,
) -> int:
    """Write each line as a record.

    Returns the exit status. With ``key``, a line is key, separator, value.

    If ``lines`` is a list and one line is wrong, no record is written. A stream may be endless, so the lines before
    the wrong one are written.
    """

    def command() -> None:
        value_form = form_named(value, setting="--value", is_key=False)
        key_form = None if key is None else form_named(key, setting="--key", is_key=True)

        def record(line: str) -> tuple[bytes, bytes | None]:
            if key_form is None:
                return _encoded(line, value_form, topic, is_key=False), None
            left, found, right = line.partition(separator)
            if not found:
                raise _RefusedError(f"no {separator!r} in {_short(line)}; with --key a line is KEY{separator}VALUE")
            encoded_key = _encoded(left, key_form, topic, is_key=True)
            return _encoded(right, value_form, topic, is_key=False), encoded_key

        records: Iterable[tuple[bytes, bytes | None]] = map(record, lines)
        if isinstance(lines, list):
            records = list(records)
        with connected(bootstrap, config, "streams-py", EMBEDDED) as cluster:
            _partitions_of(topic, cluster.admin, cluster.clients)
            written = _written(records, topic, cluster.clients)
        print(f"{_records(written)} written to {topic}", file=sys.stderr)

    return _ended(command)


def _written(records: Iterable[tuple[bytes, bytes | None]], topic: str, clients: KafkaClients) -> int:
    """Write the records, wait until all are acknowledged, and return their number."""
    producer = clients.producer("streams-py")
    written = 0
    try:
        refused = None
        try:
            for value, key in records:
                producer.produce(topic, value, key, -1, None, -1, None)
                written += 1
        except (_RefusedError, SerializationError) as error:
            refused = error
        late = producer.flush(_TIMEOUT_MS)
        producer.check()
        if late:
            raise StreamsError(f"{late} of {written} records were not acknowledged within {_TIMEOUT_MS // 1000} s")
        if refused is not None:
            before = f"; {_records(written)} before it {'is' if written == 1 else 'are'} written" if written else ""
            raise _RefusedError(f"line {written + 1}: {refused}{before}")
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
        raise _RefusedError(
            f"{_short(text)} is not a valid {serde.name}: {error}; choose another serde with {option}"
        ) from None
    try:
        return serde.serializer(topic, is_key=is_key)(value)
    except Exception as error:
        raise cannot_encode(error, serde, value, topic=topic, is_key=is_key) from error


def _short(text: str) -> str:
    return repr(text if len(text) <= _LENGTH_SHOWN_MAX else f"{text[:_LENGTH_SHOWN_MAX]}...")


# -- consume -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """The form in which records are shown.

    Attributes:
        key: Form of the keys.
        value: Form of the values.
        details: Whether to show partition, offset, time and headers, too.
        as_json: Whether to show one JSON object per line.
    """

    key: Form
    value: Form
    details: bool = False
    as_json: bool = False

    def line(self, record: RawRecord) -> str:
        """Return the text of one record."""
        if self.as_json:
            text = json.dumps(
                {
                    "topic": record.topic(),
                    "partition": record.partition(),
                    "offset": record.offset(),
                    "timestamp": record.timestamp()[1],
                    "headers": [[name, _header_text(data)] for name, data in headers_of(record) or ()],
                    "key": _decoded(record, record.key(), self.key, self.key.plain, is_key=True),
                    "value": _decoded(record, record.value(), self.value, self.value.plain, is_key=False),
                },
                ensure_ascii=False,
            )
            return json_printable(text)
        key, value = (
            "null" if (shown := _decoded(record, data, form, form.show, is_key=is_key)) is None else shown
            for data, form, is_key in ((record.key(), self.key, True), (record.value(), self.value, False))
        )
        if not self.details:
            return f"{key}\t{value}"
        headers = "".join(f"\t{printable(name)}={_header_text(data)}" for name, data in headers_of(record) or ())
        at = f"{record.partition()}:{record.offset()}"
        return f"{at}\t{_time_text(record.timestamp()[1])}\t{key}\t{value}{headers}"


def consume_topic(
    topic: str,
    bootstrap: str | None,
    config: Path | None,
    *,
    shown: Callable[[], Shown],
    follow: bool,
    limit: int | None,
) -> int:
    """Print the topic's records, oldest first in each partition. Returns the exit status.

    ``shown`` is called inside the command, because it may raise ConfigError.
    """

    def command() -> None:
        how = shown()
        with connected(bootstrap, config, "streams-py", EMBEDDED) as cluster:
            clients, admin = cluster.clients, cluster.admin
            partitions = _partitions_of(topic, admin, clients)
            ends = {at: end for at, (first, end) in _ranges(admin, partitions).items() if first < end}
            left = sys.maxsize if limit is None else limit
            consumer = clients.main_consumer("streams-py")
            warned = False
            try:
                consumer.assign(dict.fromkeys(partitions, BEGINNING))
                while left > 0 and (follow or ends):
                    for record in consumer.poll(min(left, _POLL_RECORDS_MAX), _POLL_MS):
                        print(how.line(record))
                        left -= 1
                        if not warned and (hint := _looks_wrong(topic, record, how)):
                            warned = True
                            print(hint, file=sys.stderr)
                    sys.stdout.flush()
                    # A lag of 0 before the end offset: the remaining records belong to an open transaction.
                    ends = {
                        at: end
                        for at, end in ends.items()
                        if (consumer.position(at) or 0) < end and consumer.lag(at) != 0
                    }
            except KeyboardInterrupt:  # the user stops --follow this way
                if not follow:
                    raise
            finally:
                consumer.close()

    return _ended(command)


def _decoded(record: RawRecord, data: bytes | None, form: Form, show: Callable[[Any], Any], *, is_key: bool) -> Any:
    if data is None:
        return None
    try:
        return show(form.serde.deserializer(record.topic(), is_key=is_key)(data))
    except Exception as error:
        at = f"partition {record.partition()}, offset {record.offset()}"
        raise _BadRecordError(
            f"{cannot_decode(error, form.serde, data, topic=record.topic(), is_key=is_key)} ({at}; --key and --value "
            "select serdes; bytes shows any record)"
        ) from None


def _header_text(data: bytes | None) -> str | None:
    return None if data is None else printable(data.decode(errors="backslashreplace"))


def _time_text(timestamp_ms: int) -> str:
    if not 0 <= timestamp_ms <= _TIME_SHOWN_MAX_MS:
        return str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _looks_wrong(topic: str, record: RawRecord, how: Shown) -> str | None:
    """Return a hint if the serde is probably wrong.

    The bytes of a number, or of a window behind a key, are valid text. So the string serde reports no error for them.
    """
    value, key = record.value() or b"", record.key() or b""
    if how.value.serde.name == "string" and b"\0" in value:
        likely = {4: "int32", 8: "int64"}.get(len(value), "bytes")
        return f"values of {topic} do not look like text ({len(value)} bytes, with zero bytes); try --value {likely}"
    if how.key.serde.name == "string" and b"\0" in key:
        likely = {4: "int32", 8: "int64"}.get(len(key), "window-string, stored-window-string or session-string")
        return f"keys of {topic} do not look like text ({len(key)} bytes, with zero bytes); try --key {likely}"
    return None
