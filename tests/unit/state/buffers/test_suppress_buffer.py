"""The buffer of suppress: order, places, sizes, and every version of its changelog."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from streams_py.errors import InvalidStateStoreError, SerializationError
from streams_py.serdes import INT64, STRING, time_windowed
from streams_py.serdes.windowed import Windowed
from streams_py.state.buffers.suppress_buffer import SuppressionBuffer
from streams_py.state.stores.codec import StoreCodec
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.nodes import RecordContext

TOPIC = "app-s-changelog"


class Kit:
    def __init__(self, key_serde: Any = STRING) -> None:
        self.context = RecordContext()
        self.context.topic, self.context.partition, self.context.offset = "in", 0, 0
        self.logged: list[tuple[Any, ...]] = []
        codec: StoreCodec[Any, int] = StoreCodec(TOPIC, key_serde, INT64)
        self.buffer: SuppressionBuffer[Any, int] = SuppressionBuffer("s", codec, self.context, log=self.log)

    def log(self, key: bytes, value: bytes | None, timestamp_ms: int, headers: Any = None) -> None:
        self.logged.append((key, value, timestamp_ms, headers))

    def put(self, key: Any, new: int | None, old: int | None, time_ms: int, timestamp_ms: int = 0) -> None:
        self.context.timestamp = timestamp_ms
        self.buffer.put(key, new, old, time_ms)

    def restore(self, key: bytes, value: bytes | None, version: bytes | None = b"\x03") -> None:
        headers = None if version is None or value is None else [("v", version)]
        self.buffer.restore_records([MemoryRecord(TOPIC, 0, 9, key, value, timestamp_ms=77, headers=headers)])

    def taken(self) -> list[tuple[Any, ...]]:
        taken = []
        while self.buffer.first_time_ms() is not None:
            taken.append(self.take_first())
        return taken

    def take_first(self) -> Any:
        first = self.buffer.first()
        self.buffer.remove_first()
        return first


def i64(number: int) -> bytes:
    return struct.pack(">q", number)


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def context_bytes(timestamp: int, offset: int, topic: str = "in", partition: int = 0) -> bytes:
    return i64(timestamp) + i64(offset) + sized(topic.encode()) + struct.pack(">ii", partition, 0)


def test_changes_leave_by_time_then_by_key_and_keep_their_place() -> None:
    kit = Kit()
    kit.put("b", 1, None, 20)
    kit.put("c", 2, None, 10)
    kit.put("a", 3, None, 20)
    kit.put("b", 4, 1, 99)  # stays where it was
    assert kit.buffer.first_time_ms() == 10
    assert [(change.key, change.new, change.old) for change in kit.taken()] == [
        ("c", 2, None),
        ("a", 3, None),
        ("b", 4, 1),
    ]
    assert len(kit.buffer) == 0
    assert kit.buffer.size_bytes == 0


def test_recorded_changelog_record_is_written() -> None:
    """From a Java run: count in the window [10, 20), records at 12 and 13 with a header."""
    kit = Kit(time_windowed(STRING, 10))
    window = Windowed("k", 10, 20)
    kit.context.headers = (("hk", b"hv"),)
    kit.put(window, 1, 0, 20, timestamp_ms=12)
    assert kit.buffer.flush_cache() == 0
    key, value, timestamp_ms, headers = kit.logged.pop()
    context = "000000000000000c000000000000000000000002696e000000000000000100000002686b000000026876"
    changes = "000000080000000000000000fffffffe000000080000000000000001"
    assert key.hex() == "6b000000000000000a"
    assert value.hex() == context + changes + "0000000000000014"
    assert (timestamp_ms, headers) == (-1, [("v", b"\x03")])
    kit.context.offset = 1
    kit.put(window, 2, 1, 20, timestamp_ms=13)
    kit.buffer.flush_cache()
    changes = "000000080000000000000000000000080000000000000001000000080000000000000002"
    assert kit.logged.pop()[1].hex().endswith(changes + "0000000000000014")
    kit.taken()
    kit.buffer.flush_cache()
    assert kit.logged.pop() == (key, None, -1, None)
    kit.buffer.flush_cache()
    assert kit.logged == []


def test_what_was_logged_is_restored() -> None:
    kit, other = Kit(), Kit()
    kit.context.headers = (("h", None), ("h", b"2"))
    kit.put("a", 1, None, 30, timestamp_ms=5)
    kit.put("b", None, 7, 20, timestamp_ms=6)
    kit.put("b", 8, 9, 25, timestamp_ms=7)
    kit.put("c", 1, 1, 10)
    kit.buffer.flush_cache()
    for key, value, _, _ in kit.logged:
        other.restore(key, value)
    other.restore(b"c", None)
    assert other.buffer.prior_value("b") == (True, 7)
    assert other.buffer.prior_value("c") == (False, None)
    assert other.buffer.first_time_ms() == 20
    taken = list(other.taken())
    assert [change[:4] for change in taken] == [("b", 8, 9, 7), ("a", 1, None, 5)]
    assert {change[7] for change in taken} == {(("h", None), ("h", b"2"))}


def test_restored_key_waits_since_it_was_buffered_again() -> None:
    """Kafka Streams lets it wait since the first time in the changelog, and so sends it too early."""
    kit, other = Kit(), Kit()
    kit.put("a", 1, None, 10)
    kit.buffer.flush_cache()
    assert kit.take_first()[1] == 1
    kit.put("a", 2, 1, 50)  # within the same commit, so the changelog has no deletion between
    kit.buffer.flush_cache()
    for key, value, _, _ in kit.logged:
        other.restore(key, value)
    assert (len(kit.logged), other.buffer.first_time_ms(), kit.buffer.first_time_ms()) == (2, 50, 50)
    assert other.buffer.size_bytes == kit.buffer.size_bytes
    assert [change[1] for change in other.taken()] == [2]
    assert other.buffer.size_bytes == 0


@pytest.mark.parametrize(
    ("version", "value", "expected"),
    [
        (None, i64(50) + sized(i64(1)) + sized(i64(2)), (2, 1, 77)),
        (b"\x01", i64(50) + context_bytes(5, 6) + sized(sized(i64(1)) + sized(i64(2))), (2, 1, 5)),
        (b"\x02", context_bytes(5, 6) + sized(sized(i64(1)) + sized(i64(2))) + sized(i64(1)) + i64(50), (2, 1, 5)),
        (b"\x02", context_bytes(5, 6) + sized(i64(1)) + sized(i64(1)) + sized(i64(2)) + i64(50), (2, 1, 5)),
        (b"\x03", context_bytes(5, 6) + sized(i64(1)) + struct.pack(">i", -2) + sized(i64(2)) + i64(50), (2, 1, 5)),
    ],
    ids=["0", "1", "2", "3 called 2", "3"],
)
def test_older_changelogs_are_read(version: bytes | None, value: bytes, expected: tuple[Any, ...]) -> None:
    kit = Kit()
    kit.restore(b"k", value, version)
    assert kit.buffer.first_time_ms() == 50
    assert kit.buffer.prior_value("k") == (True, 1)
    (change,) = kit.taken()
    assert (change.new, change.old, change.timestamp) == expected


@pytest.mark.parametrize(
    ("version", "value"), [(b"\x04", b"new"), (b"\x03", b"short"), (b"\x02", context_bytes(5, 6)), (None, b"")]
)
def test_changelog_that_cannot_be_read_is_an_error_that_says_where(version: bytes | None, value: bytes) -> None:
    with pytest.raises(SerializationError, match=r"offset 9 .*app-s-changelog-0"):
        Kit().restore(b"k", value, version)


def test_closed_buffer_refuses() -> None:
    kit = Kit()
    kit.buffer.close()
    with pytest.raises(InvalidStateStoreError, match="'s'"):
        kit.put("a", 1, None, 1)
