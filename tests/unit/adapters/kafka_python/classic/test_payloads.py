"""Encoding of the consumer protocol: round trips, and one bad member does not affect the others."""

from __future__ import annotations

import pytest

from streams_protocol.assignment_info import AssignmentInfo, decode_assignment_info, encode_assignment_info
from streams_protocol.consumer import Subscription, decode_assignment, decode_subscription, encode_subscription
from streams_protocol.errors import DecodeError
from streams_protocol.subscription_info import decode_subscription_info
from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.classic.payloads import (
    assignments_to_send,
    read_assignment,
    readable_members,
    subscription_to_send,
)
from streams_py.errors import StreamsError
from streams_py.ports import MemberAssignment

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_subscription_is_version_3_with_everything_in_it():
    data = subscription_to_send(
        topics=["b", "a"], user_data=b"u", owned=[T1, T0], generation=4, rack="r", check=lambda data: data
    )
    assert data[:2] == b"\x00\x03"
    assert decode_subscription(data) == Subscription(("a", "b"), b"u", (T0, T1), 4, "r")


def test_subscription_is_not_sent_when_its_user_data_cannot_be_read_back():
    with pytest.raises(DecodeError):
        subscription_to_send(
            topics=["a"], user_data=b"\x00", owned=[], generation=-1, rack=None, check=decode_subscription_info
        )


def test_members_are_read_without_the_one_whose_bytes_are_garbage(caplog):
    good = encode_subscription(Subscription(("t",), b"u", (T0,), None, None))
    members = readable_members([("z", good), ("a", b"\x00\x01garbage"), ("b", b"")])
    assert list(members) == ["z"]
    assert members["z"].generation == -1
    assert members["z"].owned == (T0,)
    assert "member a sent a subscription that cannot be read" in caplog.text


def test_assignment_is_left_out_when_missing_or_unreadable(caplog):
    info = encode_assignment_info(AssignmentInfo(version=11, commonly_supported_version=11))
    encoded = assignments_to_send(
        {"good": MemberAssignment((T1, T0), info), "bad": MemberAssignment((T0,), b"\x00"), "stranger": None},
        ["good", "bad", "forgotten"],
        decode_assignment_info,
    )
    assert list(encoded) == ["good"]
    assert decode_assignment(encoded["good"]).partitions == (T0, T1)
    assert "the assignor returned no assignment for member forgotten" in caplog.text
    assert "the assignment of member bad is not valid" in caplog.text


@pytest.mark.parametrize(
    ("data", "what"), [(b"", "sent no assignment to this member"), (b"\x00\x01\xff", "cannot be read")]
)
def test_received_assignment_is_an_error_when_nothing_usable_came(data, what):
    with pytest.raises(StreamsError, match=what):
        read_assignment(data)
