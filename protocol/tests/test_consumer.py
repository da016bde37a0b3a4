from __future__ import annotations

import pytest

from streams_protocol import (
    Assignment,
    DecodeError,
    InvalidVersionDecodeError,
    InvalidVersionEncodeError,
    Subscription,
    TopicPartition,
    TruncatedDecodeError,
    ValueEncodeError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FULL = Subscription(("u", "t"), b"data", (U0, T1, T0), 7, "rack")


def test_topics_and_owned_partitions_are_written_ascending() -> None:
    decoded = decode_subscription(encode_subscription(FULL))
    assert decoded == Subscription(("t", "u"), b"data", (T0, T1, U0), 7, "rack")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Subscription(("t", "u"), b"data")),
        (1, Subscription(("t", "u"), b"data", (T0, T1, U0))),
        (2, Subscription(("t", "u"), b"data", (T0, T1, U0), 7)),
        (3, Subscription(("t", "u"), b"data", (T0, T1, U0), 7, "rack")),
    ],
)
def test_older_version_drops_what_it_lacks(version: int, expected: Subscription) -> None:  # W2
    assert decode_subscription(encode_subscription(FULL, version)) == expected


def test_newer_version_is_read_as_version_3_and_its_tail_ignored() -> None:  # W12
    data = encode_subscription(FULL)
    assert decode_subscription(b"\0\x09" + data[2:] + b"extra") == decode_subscription(data)
    data = encode_assignment(Assignment((T0,), b""))
    assert decode_assignment(b"\x7f\xff" + data[2:] + b"extra") == Assignment((T0,), b"")


def test_negative_generation_and_empty_rack_are_none() -> None:
    subscription = Subscription(generation_id=-1, rack_id="")
    assert subscription == Subscription()
    assert decode_subscription(encode_subscription(subscription)) == Subscription()


def test_assignment_keeps_its_order_when_grouped_by_topic() -> None:
    assignment = Assignment((U0, T1, T0), None)
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_interleaved_topics_are_gathered_by_first_occurrence() -> None:
    assert decode_assignment(encode_assignment(Assignment((T0, U0, T1)))).partitions == (T0, T1, U0)


@pytest.mark.parametrize("version", range(4))
def test_every_prefix_is_refused(version: int) -> None:  # W5
    subscription, assignment = encode_subscription(FULL, version), encode_assignment(Assignment((T0,), b"d"), version)
    for size in range(len(subscription)):
        with pytest.raises(DecodeError):
            decode_subscription(subscription[:size])
    for size in range(len(assignment)):
        with pytest.raises(DecodeError):
            decode_assignment(assignment[:size])


def test_no_bytes_are_an_error_not_an_empty_assignment() -> None:
    with pytest.raises(TruncatedDecodeError):
        decode_assignment(b"")


def test_negative_version_is_refused() -> None:
    with pytest.raises(InvalidVersionDecodeError, match="version -1"):
        decode_subscription(b"\xff\xff" + encode_subscription(FULL)[2:])


@pytest.mark.parametrize("version", [-1, 4])
def test_unknown_version_cannot_be_written(version: int) -> None:
    with pytest.raises(InvalidVersionEncodeError):
        encode_subscription(FULL, version)
    with pytest.raises(InvalidVersionEncodeError):
        encode_assignment(Assignment(), version)


@pytest.mark.parametrize("rack", ["r" * 32768, "\ud800"], ids=["too long", "half a surrogate pair"])
def test_text_that_does_not_fit_is_refused(rack: str) -> None:
    with pytest.raises(ValueEncodeError, match="rackId"):
        encode_subscription(Subscription(rack_id=rack))
