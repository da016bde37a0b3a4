"""The metadata of committed offsets."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.runtime.tasks.record.offset_metadata import (
    NO_METADATA,
    OffsetMetadata,
    decode_offset_metadata,
    encode_offset_metadata,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (OffsetMetadata(1234567890123), "AgAAAR9x+wTL"),
        (OffsetMetadata(-1, {"store-a": 42}), "Av//////////AAAAAQAAAAdzdG9yZS1hAAAAAAAAACo="),
    ],
)
def test_encode_gives_the_bytes_of_kafka_streams(metadata: OffsetMetadata, text: str) -> None:
    assert encode_offset_metadata(metadata) == text
    assert decode_offset_metadata(text) == metadata


@given(INT64, st.dictionaries(st.text(min_size=1, max_size=20), INT64, max_size=4))
def test_decode_returns_what_was_encoded(time_ms: int, processors: dict[str, int]) -> None:
    metadata = OffsetMetadata(time_ms, processors)
    assert decode_offset_metadata(encode_offset_metadata(metadata)) == metadata


def test_decode_reads_version_1() -> None:
    text = base64.b64encode(b"\x01" + (77).to_bytes(8, "big")).decode()
    assert decode_offset_metadata(text) == OffsetMetadata(77)


def test_decode_ignores_trailing_nul_characters() -> None:
    assert decode_offset_metadata("AgAAAR9x+wTL\0") == OffsetMetadata(1234567890123)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "garbage!",
        "Ag==",
        base64.b64encode(b"\x03" + bytes(8)).decode(),
        base64.b64encode(b"\x02" + bytes(8) + b"\x00\x00\x00\x01\x7f\xff\xff\xff").decode(),
        base64.b64encode(b"\x02" + bytes(8) + b"\x00\x00\x00\x01\xff\xff\xff\xff" + bytes(8)).decode(),
        base64.b64encode(b"\x02" + bytes(8) + b"\x00\x00\x00\x02\x00\x00\x00\x01a" + bytes(8)).decode(),
    ],
)
def test_decode_gives_no_metadata_when_the_text_is_not_understood(text: str) -> None:
    assert decode_offset_metadata(text) == NO_METADATA


@given(st.text(max_size=60))
def test_decode_never_raises(text: str) -> None:
    assert isinstance(decode_offset_metadata(text), OffsetMetadata)
