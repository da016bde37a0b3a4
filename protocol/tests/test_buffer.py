from __future__ import annotations

import pytest

from streams_protocol import TruncatedDecodeError
from streams_protocol.buffer import Reader, Writer


def test_columns_transpose_rows_of_mixed_width() -> None:
    writer = Writer("message")
    writer.columns("bhiq", [(1, -1), (2, -2), (3, -3), (4, -4)], 2, "rows")
    data = writer.finish()
    assert data.hex() == "010002000000030000000000000004fffffefffffffdfffffffffffffffc"
    reader = Reader(data, "message")
    assert reader.columns("bhiq", 2, "rows") == [(1, -1), (2, -2), (3, -3), (4, -4)]
    assert reader.remaining == 0


def test_columns_never_read_past_the_end() -> None:
    reader = Reader(bytes(7), "message")
    with pytest.raises(TruncatedDecodeError, match="message: rows with 2 entries needs 8 bytes, 7 are left"):
        reader.columns("i", 2, "rows")
    assert reader.offset == 0


@pytest.mark.parametrize(("count", "row_end"), [(2, b"\0\1"), (3, b"\0\0")], ids=["other end", "not enough bytes"])
def test_columns_if_ending_read_nothing_when_rows_may_differ_in_size(count: int, row_end: bytes) -> None:
    reader = Reader(bytes(12), "message")
    assert reader.columns_if_ending("i", count, row_end) is None
    assert reader.offset == 0


def test_columns_if_ending_leave_the_end_out() -> None:
    reader = Reader(bytes.fromhex("00000001 ffff 00000002 ffff 09"), "message")
    assert reader.columns_if_ending("i", 2, b"\xff\xff") == [(1, 2)]
    assert reader.int8("rest") == 9
