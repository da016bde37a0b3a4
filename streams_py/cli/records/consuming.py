"""``streams-py consume``: prints the records of a topic."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from streams_py.cli.connecting import Connection, connected
from streams_py.cli.forms import SERDES_ALLOWED, Form, form_named
from streams_py.cli.options import BOOTSTRAP_OR_EMBEDDED, CONFIG, EMBEDDED
from streams_py.cli.records.topics import partitions_of, ranges_of
from streams_py.cli.usage import FAILED, cut_off_output, refusing, say
from streams_py.errors import StreamsError
from streams_py.ports import BEGINNING, RawRecord
from streams_py.ports.record_headers import headers_of
from streams_py.serdes import cannot_decode
from streams_py.system.printable import json_printable, printable

_POLL_MS: Final = 200
_POLL_RECORDS_MAX: Final = 1_000
_TIME_SHOWN_MAX_MS: Final = 253_402_300_799_999  # the end of the year 9999


class _BadRecordError(StreamsError):
    """A record that does not match the serdes of the command."""


_ValueSerde = Annotated[
    str,
    typer.Option(
        "--value", metavar="SERDE", help=f"Serde of the values: {SERDES_ALLOWED}; or change- followed by one of these."
    ),
]
_KeySerde = Annotated[
    str,
    typer.Option(
        "--key",
        metavar="SERDE",
        help="Serde of the keys: one as for --value, or window-, session- or stored-window- followed by one.",
    ),
]
_Details = Annotated[
    bool,
    typer.Option(
        "--details", "-d", help="Also print partition:offset and time before the record, and headers after it."
    ),
]


@refusing
def consume(
    topic: Annotated[str, typer.Argument(help="An existing topic.")],
    value: _ValueSerde = "string",
    key: _KeySerde = "string",
    window_size: Annotated[
        int | None, typer.Option(min=1, metavar="MS", help="Window size. With it, the end of each window is shown.")
    ] = None,
    details: _Details = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as a JSON object.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Stop after this number of records.")
    ] = None,
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> int:
    """Print the records of a topic from the beginning: key, tab, value. Joins no consumer group.

    For keys of windowed tables use for example window-string, and for keys of sessions session-string. In changelog
    topics, keys of window stores are stored-window-string, keys of all other stores are as above, and values are
    plain. Values in the repartition topic of a regrouped table are for example change-int64, printed as new value <-
    old value. bytes shows any record.

    Exit status: 0 done; 1 a record does not match --key or --value; 2 wrong usage, or the cluster does not answer or
    rejects the request.

    Examples:

      streams-py consume word-counts --value int64 --follow

      streams-py consume text-lines -n 10 --details --bootstrap localhost:9092

      streams-py consume per-minute --key window-string --window-size 60000 --value int64

      streams-py consume app-counts-changelog --key stored-window-string --value int64 --json
    """
    shown = _Shown(
        form_named(key, setting="--key", is_key=True, window_ms=window_size),
        form_named(value, setting="--value", is_key=False),
        details=details,
        as_json=as_json,
    )
    try:
        with cut_off_output(), connected(bootstrap, config, "streams-py", EMBEDDED) as cluster:
            _print_records(cluster, topic, shown, follow=follow, limit=sys.maxsize if limit is None else limit)
    except _BadRecordError as bad:
        say(bad)
        return FAILED
    return 0


@dataclass(frozen=True)
class _Shown:
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


def _print_records(cluster: Connection, topic: str, shown: _Shown, *, follow: bool, limit: int) -> None:
    """Print the topic's records, oldest first in each partition, and a hint if a serde is probably wrong."""
    partitions = partitions_of(topic, cluster.admin, cluster.clients)
    ends = {at: end for at, (first, end) in ranges_of(cluster.admin, partitions).items() if first < end}
    consumer = cluster.clients.main_consumer("streams-py")
    warned = False
    try:
        consumer.assign(dict.fromkeys(partitions, BEGINNING))
        while limit > 0 and (follow or ends):
            for record in consumer.poll(min(limit, _POLL_RECORDS_MAX), _POLL_MS):
                print(shown.line(record))
                limit -= 1
                if not warned and (hint := _looks_wrong(topic, record, shown)):
                    warned = True
                    print(hint, file=sys.stderr)
            sys.stdout.flush()
            # A lag of 0 before the end offset: the remaining records belong to an open transaction.
            ends = {at: end for at, end in ends.items() if (consumer.position(at) or 0) < end and consumer.lag(at) != 0}
    except KeyboardInterrupt:  # the user stops --follow this way
        if not follow:
            raise
    finally:
        consumer.close()


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


def _looks_wrong(topic: str, record: RawRecord, shown: _Shown) -> str | None:
    """Return a hint if the serde is probably wrong.

    The bytes of a number, or of a window after a key, are valid text. So the string serde reports no error for them.
    """
    value, key = record.value() or b"", record.key() or b""
    if shown.value.serde.name == "string" and b"\0" in value:
        likely = {4: "int32", 8: "int64"}.get(len(value), "bytes")
        return f"values of {topic} do not look like text ({len(value)} bytes, with zero bytes); try --value {likely}"
    if shown.key.serde.name == "string" and b"\0" in key:
        likely = {4: "int32", 8: "int64"}.get(len(key), "window-string, stored-window-string or session-string")
        return f"keys of {topic} do not look like text ({len(key)} bytes, with zero bytes); try --key {likely}"
    return None
