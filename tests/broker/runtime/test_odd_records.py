"""Records with arbitrary bytes: no crash, no lost and no added records, in operation, after a restart, and without
state.

The expected results are computed from the written records, and outputs are read from the broker's bytes
(:mod:`tests.support.wire_records`). Neither shares code with the runtime or with its client.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exports unmarked

from streams_py.testing.broker import Broker
from tests.support.waiting import until
from tests.support.wire_records import RefusedError, WireRecord, read_records, write_records

pytestmark = [pytest.mark.broker, pytest.mark.weekly, pytest.mark.timeout(3600)]

_numbers = itertools.count()
_PATIENCE_S = 600.0
_BATCH = 500


class App:
    """The process of :mod:`tests.support.broker.odd_records_app`."""

    def __init__(self, config: dict[str, Any], pipelines: Sequence[Sequence[str]], log: Path) -> None:
        order = json.dumps({"config": config, "pipelines": pipelines})
        self._log = log
        self._file = log.open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.support.broker.odd_records_app", order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._file,
            text=True,
        )

    def ask(self) -> dict[str, Any]:
        """Its state and its stores. AssertionError when the process is gone, or the application has failed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.tail()}"
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"ended with {self.process.wait()}\n{self.tail()}"
        found: dict[str, Any] = json.loads(line)
        assert found["state"] not in ("ERROR", "PENDING_ERROR"), found["error"]
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(_PATIENCE_S) == 0, self.tail()
        self._file.close()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def create(broker: Broker, topics: dict[str, dict[str, str]]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [
        NewTopic(name, 1, config={"retention.ms": "-1", "max.message.bytes": "4000000", **config})
        for name, config in topics.items()
    ]
    for done in admin.create_topics(wanted).values():
        done.result(120)

    def are_there() -> bool:
        try:
            return all(read_records(broker.bootstrap, name) == [] for name in topics)
        except RefusedError:  # the broker has not taken it up yet
            return False

    until(are_there, "the topics are there")


def config(broker: Broker, guarantee: str, folder: Path, application: str) -> dict[str, Any]:
    return {
        "application.id": application,
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(folder / "state"),
        "commit.interval.ms": 500,
        "session.timeout.ms": 30_000,
        "processing.guarantee": guarantee,
        "deserialization.exception.handler": "log_and_continue",
        "topology.optimization": "all",
        "main.consumer.isolation.level": "read_committed",
        "global.consumer.isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }


def are_committed(broker: Broker, group: str, topics: Iterable[str]) -> bool:
    """Whether the group has committed the ends of these topics, or offsets followed only by transaction markers."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        places = [TopicPartition(topic, 0) for topic in topics]
        for place in consumer.committed(places, timeout=60):
            last = max((record.offset for record in read_records(broker.bootstrap, place.topic)), default=-1)
            if last >= 0 and place.offset < last:
                return False
        return True
    finally:
        consumer.close()


def names_read(headers: Iterable[tuple[bytes, bytes | None]]) -> tuple[tuple[bytes, bytes | None], ...]:
    """Return header names as an application receives them: malformed bytes are U+FFFD, and a name ends at NUL."""
    found, has_bad = [], False
    for name, content in headers:
        name = name.partition(b"\0")[0]
        text = name.decode("utf-8", "replace")
        if text.encode() != name:
            text, has_bad = ("\ufffd" if has_bad else text), True
        found.append((text.encode(), content))
    return tuple(found)


# -- fuzz --------------------------------------------------------------------------------------------------------------


def test_no_bytes_of_records_crash_an_application(kafka_broker: Broker, tmp_path: Path) -> None:
    count = int(os.environ.get("STREAMS_PY_FUZZED_RECORDS", "100000"))
    random_ = random.Random(37)
    number = f"{os.getpid()}-{next(_numbers)}"
    copied, copies, counted, counts, table = (f"fuzz-{name}-{number}" for name in ("in", "out", "in2", "out2", "in3"))
    globals_ = f"fuzz-in4-{number}"
    create(kafka_broker, {name: {} for name in (copied, copies, counted, counts, table, globals_)})
    pipelines = [
        ["copy", "copy", copied, "bytes bytes", "skip", copies],
        ["count", "count", counted, "bytes bytes", "skip", counts],
        ["table", "table", table, "text number", "skip", ""],
        ["global", "global", globals_, "json json", "", ""],
    ]
    app = App(config(kafka_broker, "at_least_once", tmp_path, f"fuzz-{number}"), pipelines, tmp_path / "log")
    written: list[WireRecord] = []
    for at in range(0, count, _BATCH):
        batch = [_fuzzed(random_) for _ in range(min(_BATCH, count - at))]
        written += batch
        for topic in (copied, counted, table):
            write_records(kafka_broker.bootstrap, topic, batch)
        valid = [record._replace(timestamp_ms=max(0, record.timestamp_ms)) for record in batch]
        write_records(kafka_broker.bootstrap, globals_, valid)
        if at % 10_000 == 0:
            app.ask()
    topics = (copied, counted, table)
    until(
        lambda: app.ask() and are_committed(kafka_broker, f"fuzz-{number}", topics), "all is processed", timeout_s=1800
    )
    kept = [record for record in written if record.timestamp_ms >= 0]
    found = [(r.key, r.value, r.timestamp_ms, r.headers) for r in read_records(kafka_broker.bootstrap, copies)]
    assert found == [(r.key, r.value, r.timestamp_ms, names_read(r.headers)) for r in kept]
    totals = Counter(repr(record.key) for record in kept if record.key is not None and record.value is not None)
    stores = app.ask()["stores"]
    assert {key: int(value) for key, value in stores["count"]} == totals
    last = {r.key: r.value for r in read_records(kafka_broker.bootstrap, counts)}
    assert {repr(key): int.from_bytes(value or b"", "big") for key, value in last.items()} == totals
    assert dict(stores["table"]) == _fold("text number", kept)
    assert dict(stores["global"]) == _fold("json json", [r._replace(timestamp_ms=0) for r in written])
    app.close()


_KEYS = [b"%d" % number for number in range(50)] + [b"", b"\xff\xfe", b"null", b"\0", '"\u00fc"'.encode(), b" 7", b"7"]


def _fuzzed(random_: random.Random) -> WireRecord:
    choice = random_.random()
    key = None if choice < 0.05 else random_.choice(_KEYS) if choice < 0.95 else random_.randbytes(random_.randrange(9))
    value = random_.choice(
        [None, b"", random_.randbytes(8), b"null", b'{"a": 1}', random_.randbytes(random_.randrange(60))]
    )
    time_ms = random_.choice([-1, -5, 0, 1, random_.randrange(10**12), random_.randrange(10**6), 10**12])
    headers = [
        (_name(random_), random_.choice([None, b"", random_.randbytes(random_.randrange(20))]))
        for _ in range(random_.choice([0, 0, 0, 1, 1, 2, 5, 30]))
    ]
    return WireRecord(key, value, time_ms, headers)


def _name(random_: random.Random) -> bytes:
    return random_.choice(
        [
            b"name",
            b"",
            random_.randbytes(random_.randrange(12)),
            "\u00e4\u4e16\U0001f600".encode()[: random_.randrange(10)],
            b"a\0b",
            b"<NULL>",
            b"\xed\xa0\x80",
        ]
    )


# -- comparison --------------------------------------------------------------------------------------------------------


def _text(data: bytes) -> Any:
    return data.decode()


def _number(data: bytes) -> Any:
    if len(data) != 8:
        raise ValueError("8 bytes")
    return int.from_bytes(data, "big", signed=True)


DECODE: dict[str, Callable[[bytes], Any]] = {"bytes": bytes, "text": _text, "number": _number, "json": json.loads}


def _decoded(serde: str, record: WireRecord) -> tuple[Any, Any] | None:
    key, value = (DECODE[part] for part in serde.split())
    try:
        return (None if record.key is None else key(record.key), None if record.value is None else value(record.value))
    except ValueError:
        return None


def _fold(serde: str, records: Iterable[WireRecord]) -> dict[str, str]:
    """The rows of a table."""
    rows: dict[str, str] = {}
    for record in records:
        found = _decoded(serde, record)
        if found is None or found[0] is None:
            continue
        key, value = found
        rows.pop(repr(key), None)
        if value is not None:
            rows[repr(key)] = repr(value)
    return rows


class Kind(NamedTuple):
    """Records of one kind for the first half and for the second half."""

    serde: str
    first: list[WireRecord]
    second: list[WireRecord]
    extractor: str = ""
    topic: dict[str, str] = {}  # noqa: RUF012  # never changed
    write: Callable[[Broker, str, list[WireRecord]], None] | None = None


def _wire(broker: Broker, topic: str, records: list[WireRecord]) -> None:
    for at in range(0, len(records), 3):
        write_records(broker.bootstrap, topic, records[at : at + 3])


def _by_client(**settings: Any) -> Callable[[Broker, str, list[WireRecord]], None]:
    def write(broker: Broker, topic: str, records: list[WireRecord]) -> None:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}}
        )
        for record in records:
            producer.produce(topic, record.value, record.key, 0, timestamp=record.timestamp_ms)
        assert producer.flush(60) == 0

    return write


def _in_transactions(*, aborts: bool) -> Callable[[Broker, str, list[WireRecord]], None]:
    """Write each record in a separate transaction.

    ``aborts``: after each one, an aborted transaction overwrites all keys.
    """

    def write(broker: Broker, topic: str, records: list[WireRecord]) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{next(_numbers)}"})
        producer.init_transactions(60)
        for record in records:
            producer.begin_transaction()
            producer.produce(topic, record.value, record.key, 0, timestamp=record.timestamp_ms)
            producer.commit_transaction(60)
            if aborts:
                producer.begin_transaction()
                for other in records:
                    producer.produce(topic, b"never", other.key, 0, timestamp=record.timestamp_ms)
                producer.flush(60)
                producer.abort_transaction(60)

    return write


def _rows(*pairs: tuple[bytes | None, bytes | None], time_ms: int = 1_000, headers: Any = ()) -> list[WireRecord]:
    return [WireRecord(key, value, time_ms + at, headers) for at, (key, value) in enumerate(pairs)]


def _with(*headers: tuple[bytes, bytes | None]) -> Kind:
    return Kind(
        "text text",
        _rows((b"a", b"1"), (b"b", b"2"), headers=headers),
        _rows((b"a", b"3"), (b"c", b"4"), headers=headers),
    )


def _n(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


_PLAIN = [(b"k%d" % (at % 7), b"v%d" % at) for at in range(40)]
A, B_ = b"a", b"b"

KINDS: dict[str, Kind] = {
    "plain": Kind("text text", _rows(*_PLAIN), _rows(*_PLAIN[::-1])),
    "bytes": Kind("bytes bytes", _rows((b"\0", b"\xff"), (b"", b"")), _rows((b"\xff", b""), (b"\0", b"\0"))),
    "null keys": Kind("text text", _rows((None, b"1"), (A, b"2"), (None, None)), _rows((None, b"3"), (B_, b"4"))),
    "tombstones": Kind(
        "text text", _rows((A, b"1"), (B_, b"2"), (A, None)), _rows((A, b"3"), (B_, None), (b"c", None))
    ),
    "tombstones alone": Kind("text text", _rows((A, None), (A, None)), _rows((B_, None))),
    "empty": Kind("text text", _rows((b"", b""), (b"", b"x")), _rows((b"", None), (b"", b""), (A, b""))),
    "bad values": Kind("text number", _rows((A, _n(1)), (A, b"bad"), (B_, b"")), _rows((A, b"7 bytes"), (B_, _n(2)))),
    "bad keys": Kind(
        "text text", _rows((b"\xff", b"1"), (A, b"2")), _rows((b"\xc3", b"3"), (B_, b"4"), (b"\xff", None))
    ),
    "bad keys and values": Kind("number number", _rows((A, b"b"), (_n(1), b"b")), _rows((_n(1), _n(1)), (A, _n(2)))),
    "all bad": Kind("number number", _rows((A, A), (B_, B_)), _rows((b"c", b"c"), (b"", b""))),
    "json null": Kind("text json", _rows((A, b"1"), (B_, b"null"), (A, b"null")), _rows((A, b"2"), (A, b" null "))),
    "json null keys": Kind("json json", _rows((b"null", b"1"), (b"1", b"1")), _rows((b"null", b"2"), (b"2", b"2"))),
    "json spelled otherwise": Kind("json json", _rows((b"[1,2]", b"1"), (b"[1, 2]", b"2")), _rows((b" [1,2 ]", b"3"))),
    "json broken": Kind("json json", _rows((b"1", b"{"), (b"1", b"[1]")), _rows((b"{", b"1"), (b"1", b"]"))),
    "numbers": Kind(
        "number number", _rows((_n(-(2**63)), _n(2**63 - 1))), _rows((_n(0), _n(-1)), (_n(-(2**63)), _n(0)))
    ),
    "unicode": Kind("text text", _rows(("\u00fc".encode(), "\U0001f600".encode())), _rows(("\u00fc".encode(), b"x"))),
    "equal records": Kind("text text", _rows(*[(A, b"1")] * 9), _rows(*[(A, b"1")] * 9)),
    "large values": Kind("text text", _rows((A, b"x" * 900_000)), _rows((A, b"y" * 900_000), (B_, b"z" * 500_000))),
    "large keys": Kind(
        "text text", _rows((b"k" * 200_000, b"1")), _rows((b"k" * 200_000, b"2"), (b"l" * 100_000, b"3"))
    ),
    "header not UTF-8": _with((b"first", b"1"), (b"\xff\xfe", b"2"), (b"last", b"3")),
    "headers not UTF-8": _with((b"a\xff", b"1"), (b"ok", None), (b"b\xfe", b"2"), (b"\x80", b"")),
    "header names with NUL": _with((b"a\0b", b"1"), (b"\0", b"2")),
    "header names empty": _with((b"", b"1"), (b"", None)),
    "headers null": _with((b"a", None), (b"b", b"")),
    "headers repeated": _with((b"a", b"1"), (b"a", b"2"), (b"a", None)),
    "headers many": _with(*[(b"h%d" % at, b"%d" % at) for at in range(2_000)]),
    "header long": _with((b"n" * 40_000, b"v" * 100_000)),
    "times negative": Kind(
        "text text",
        [WireRecord(A, b"1", 5), WireRecord(A, b"2", -1), WireRecord(B_, b"3", -(2**62))],
        [WireRecord(B_, b"4", 0), WireRecord(A, None, -1), WireRecord(A, b"5", -7)],
        "skip",
    ),
    "times of values": Kind(
        "text text", _rows((A, b"1"), (A, b"333"), (B_, b"22")), _rows((A, None), (B_, b"666666")), "of value"
    ),
    "times backwards": Kind(
        "text text",
        [WireRecord(A, b"%d" % at, 100 - at) for at in range(9)],
        [WireRecord(A, b"x", 3), WireRecord(B_, b"y", 0)],
    ),
    "times equal": Kind("text text", [WireRecord(A, b"%d" % at, 7) for at in range(9)], [WireRecord(A, b"z", 7)]),
    "times zero": Kind("text text", [WireRecord(A, b"1", 0), WireRecord(B_, b"2", 0)], [WireRecord(A, b"3", 0)]),
    "times of the broker": Kind(
        "text text", _rows(*_PLAIN[:9]), _rows(*_PLAIN[9:20]), topic={"message.timestamp.type": "LogAppendTime"}
    ),
    "gzip": Kind("text text", _rows(*_PLAIN), _rows(*_PLAIN[::-1]), write=_by_client(compression_type="gzip")),
    "lz4": Kind("text text", _rows(*_PLAIN), _rows(*_PLAIN[::-1]), write=_by_client(compression_type="lz4")),
    "snappy": Kind("text text", _rows(*_PLAIN), _rows(*_PLAIN[::-1]), write=_by_client(compression_type="snappy")),
    "zstd": Kind("text text", _rows(*_PLAIN), _rows(*_PLAIN[::-1]), write=_by_client(compression_type="zstd")),
    "transactions": Kind("text text", _rows(*_PLAIN[:9]), _rows(*_PLAIN[9:18]), write=_in_transactions(aborts=False)),
    "aborted": Kind("text text", _rows(*_PLAIN[:9]), _rows(*_PLAIN[9:18]), write=_in_transactions(aborts=True)),
    "nothing at first": Kind("text text", [], _rows(*_PLAIN[:5])),
    "nothing later": Kind("text text", _rows(*_PLAIN[:5]), []),
    "nothing": Kind("text text", [], []),
    "compacted": Kind("text text", _rows(*_PLAIN), _rows(*_PLAIN), topic={"cleanup.policy": "compact"}),
}
assert len(KINDS) >= 40


def _has_time(kind: Kind, record: WireRecord) -> bool:
    if kind.extractor == "of value":
        return record.value is not None and len(record.value) % 3 != 0
    return record.timestamp_ms >= 0


def _expected(pipeline: str, kind: Kind, records: Sequence[WireRecord]) -> Any:
    timed = [record for record in records if pipeline == "global" or _has_time(kind, record)]
    if pipeline in ("table", "global"):
        return _fold(kind.serde, timed)
    readable = [(record, found) for record in timed if (found := _decoded(kind.serde, record)) is not None]
    if pipeline == "count":
        # Aggregations skip records without a value.
        keys = (repr(key) for _, (key, value) in readable if key is not None and value is not None)
        return {key: str(count) for key, count in Counter(keys).items()}
    raise ValueError(pipeline)


def _copied(kind: Kind, records: Sequence[WireRecord]) -> list[tuple[Any, ...]]:
    return [
        (*found, names_read(record.headers))
        for record in records
        if _has_time(kind, record) and (found := _decoded(kind.serde, record)) is not None
    ]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_tables_counts_and_copies_are_those_of_a_fold(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    number = f"{os.getpid()}-{next(_numbers)}"
    application = f"odd-{number}"
    pipelines, topics = [], {}
    places: list[tuple[str, str, str, str]] = []
    for at, (name, kind) in enumerate(KINDS.items()):
        for pipeline in ("table", "count", "copy", "global"):
            if pipeline == "global" and kind.extractor:
                continue
            topic = f"odd-{number}-{at}-{pipeline}"
            output = f"{topic}-out" if pipeline == "copy" else ""
            topics[topic] = kind.topic if pipeline != "count" or "cleanup.policy" not in kind.topic else {}
            if output:
                topics[output] = {}
            pipelines.append([f"s{at}-{pipeline}", pipeline, topic, kind.serde, kind.extractor, output])
            places.append((name, pipeline, topic, output))
    create(kafka_broker, topics)
    settings = config(kafka_broker, guarantee, tmp_path, application)
    read_by_group = [topic for name, pipeline, topic, _ in places if pipeline != "global" and KINDS[name].write is None]

    def write(half: int) -> None:
        for name, _, topic, _ in places:
            kind = KINDS[name]
            (kind.write or _wire)(kafka_broker, topic, kind.second if half else kind.first)

    def check(app: App, halves: int, when: str) -> None:
        wanted = {}
        for (name, pipeline, *_), (store, *_) in zip(places, pipelines, strict=True):
            kind = KINDS[name]
            records = kind.first + (kind.second if halves == 2 else [])
            if pipeline != "copy":
                wanted[store] = (name, pipeline, _expected(pipeline, kind, records))

        def differences() -> dict[tuple[str, str], Any]:
            stores = app.ask().get("stores")
            if stores is None:
                return {("", ""): "not running"}
            return {
                (name, pipeline): (dict(map(tuple, stores[store])), expected)
                for store, (name, pipeline, expected) in wanted.items()
                if dict(map(tuple, stores[store])) != expected
            }

        limit = time.monotonic() + _PATIENCE_S
        while (found := differences()) and time.monotonic() < limit:
            time.sleep(1)
        assert not found, f"{when}: {str(found)[:4000]}"
        until(
            lambda: are_committed(kafka_broker, application, read_by_group), "all is committed", timeout_s=_PATIENCE_S
        )
        assert differences() == {}, when

    def check_copies(halves: int) -> None:
        for name, pipeline, _, output in places:
            if pipeline != "copy":
                continue
            kind = KINDS[name]
            expected = _copied(kind, kind.first + (kind.second if halves == 2 else []))

            def copies(kind: Kind = kind, output: str = output) -> list[tuple[Any, ...]]:
                records = read_records(kafka_broker.bootstrap, output)
                return [(*(_decoded(kind.serde, WireRecord(r.key, r.value)) or ()), r.headers) for r in records]

            until(lambda: len(copies()) >= len(expected), f"{name} is copied", timeout_s=_PATIENCE_S)  # noqa: B023
            assert copies() == expected, name

    write(0)
    app = App(settings, pipelines, tmp_path / "log")
    check(app, 1, "live")
    app.close()
    write(1)
    app = App(settings, pipelines, tmp_path / "log")
    check(app, 2, "after a restart in the middle")
    check_copies(2)
    app.close()
    shutil.rmtree(tmp_path / "state")
    app = App(settings, pipelines, tmp_path / "log")
    check(app, 2, "after the state was deleted")
    check_copies(2)
    app.close()
