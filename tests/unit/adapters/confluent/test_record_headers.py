"""Headers of records that the client delivers, with names made of any bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.ports import BEGINNING, RawRecord
from streams_py.ports.record_headers import headers_of, headers_of_all
from tests.support.waiting import until
from tests.support.wire_records import WireRecord, write_records

_Headers = Sequence[tuple[bytes, bytes | None]]
_Deliver = Callable[..., list[RawRecord]]

# Header names as written, and as read: a stretch of bytes that no UTF-8 begins with is one U+FFFD.
_NAMES = [
    ([b"first", b"\xff\xfe", b"last"], ["first", "\ufffd\ufffd", "last"]),
    ([b"caf\xe9"], ["caf\ufffd"]),
    ([b"\xc3\xa9t\xe9 "], ["\u00e9t\ufffd "]),
    ([b"\xf0\x9f\x98"], ["\ufffd"]),
    ([b"\xff"], ["\ufffd"]),
    ([b"", b"\xff", b""], ["", "\ufffd", ""]),
    ([b"<NULL>", b"\x80"], ["<NULL>", "\ufffd"]),
    ([b"a\xff", b"b\xfe", b"c"], ["a\ufffd", "\ufffd", "c"]),
    ([b"a\xff"] * 3, ["a\ufffd", "\ufffd", "\ufffd"]),
    (["\u00fc\u4e16\U0001f600".encode()], ["\u00fc\u4e16\U0001f600"]),
    ([b"same", b"same"], ["same", "same"]),
]


@pytest.fixture
def deliver(cluster: MockCluster, topic: str, consumer: ConfluentConsumer) -> _Deliver:
    """Write records with these headers, and return them as the consumer delivers them."""

    def delivered(*headers: _Headers) -> list[RawRecord]:
        for given in headers:
            write_records(cluster.bootstrap, topic, [WireRecord(b"k", b"v", headers=given)])
        consumer.assign({TopicPartition(topic, 0): BEGINNING})
        records: list[RawRecord] = []

        def all_delivered() -> bool:
            records.extend(consumer.poll(1_000, 100))
            return len(records) >= len(headers)

        until(all_delivered, "all records are delivered")
        return records

    return delivered


def _with_values(names: Sequence[Any]) -> list[tuple[Any, bytes | None]]:
    return [(name, None if number % 3 == 2 else b"%d" % number) for number, name in enumerate(names)]


@pytest.mark.parametrize(("written", "read"), _NAMES)
def test_malformed_names_are_replaced_and_values_kept(deliver: _Deliver, written: list[bytes], read: list[str]) -> None:
    (record,) = deliver(_with_values(written))
    assert headers_of(record) == _with_values(read)


def test_headers_are_the_same_when_they_are_read_again_in_any_way(deliver: _Deliver) -> None:
    (record,) = deliver(_with_values([b"a", b"\xff", b"\xfe"]))
    expected = _with_values(["a", "\ufffd", "\ufffd"])
    assert headers_of(record) == expected
    assert headers_of(record) == headers_of_all([record])[0] == record.headers() == expected
    assert repr(record.headers()) == repr(expected)


def test_records_around_one_with_a_malformed_name_keep_their_headers(deliver: _Deliver) -> None:
    names: list[list[bytes]] = [[b"a"], [], [b"\xff"], [b"b"], [b"\xfe", b"\xfd"], [], [b"\xff"]]
    records = deliver(*map(_with_values, names))
    expected = [["a"], [], ["\ufffd"], ["b"], ["\ufffd", "\ufffd"], [], ["\ufffd"]]
    assert [headers or [] for headers in headers_of_all(records)] == [_with_values(given) for given in expected]


def test_no_exception_is_left_behind(deliver: _Deliver) -> None:
    records = deliver(*[_with_values([b"\xff"])] * 300)  # enough calls for the interpreter to specialize them
    assert [len(headers_of(record) or ()) for record in records] == [1] * 300


def test_headers_of_all_is_empty_without_records() -> None:
    assert headers_of_all([]) == []


def test_first_repaired_records_are_logged_with_topic_partition_and_offset(
    deliver: _Deliver, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams_py.ports.record_headers._Repairs.count", 0)
    records = deliver(*[_with_values([b"\xe9t\xe9"])] * 9)
    with caplog.at_level(logging.WARNING, "streams_py"):
        headers_of_all(records)
    logged = [record.getMessage() for record in caplog.records if record.name == "streams_py.ports.record_headers"]
    assert [f"{topic}-0, offset {offset}" in text for offset, text in zip((0, 1, 3, 7), logged, strict=True)] == [
        True
    ] * 4
    assert "'\ufffdt\ufffd'" in logged[0]


def test_another_system_error_is_not_hidden() -> None:
    class Broken:
        def headers(self) -> None:
            raise SystemError("something else")

    record: Any = Broken()
    with pytest.raises(SystemError, match="something else"):
        headers_of(record)
    with pytest.raises(SystemError, match="something else"):
        headers_of_all([record])
