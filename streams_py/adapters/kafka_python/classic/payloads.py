"""Encode and decode the consumer protocol, from and to the types of the port.

kafka-python's own encoder is not used, so that one library (``streams_protocol``) encodes all bytes that members
exchange, independent of the client library. User data is decoded as a check before it is sent: empty or truncated user
data crashes the stream thread of a Java leader, and the whole group gets no assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from streams_protocol.consumer import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from streams_protocol.errors import ProtocolError
from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.ports import MemberAssignment, MemberSubscription

_log = logging.getLogger(__name__)

UserDataCheck = Callable[[bytes], object]
"""A function that decodes user data, or raises ``streams_protocol``'s DecodeError."""


def subscription_to_send(
    *,
    topics: Iterable[str],
    user_data: bytes,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
    check: UserDataCheck,
) -> bytes:
    """Encode this member's subscription, version 3. Raises ProtocolError when ``check`` rejects ``user_data``."""
    check(user_data)
    return encode_subscription(Subscription(tuple(topics), user_data, tuple(owned), generation, rack))


def readable_members(members: Iterable[tuple[str, bytes]]) -> dict[str, MemberSubscription]:
    """Decode the subscriptions of members, by member id. Invalid subscriptions are left out, with a logged error."""
    readable = {}
    for member_id, data in sorted(members):
        try:
            sent = decode_subscription(data)
        except ProtocolError as error:
            _log.error("member %s sent a subscription that cannot be read; it gets no tasks: %s", member_id, error)
            continue
        generation = -1 if sent.generation_id is None else sent.generation_id
        readable[member_id] = MemberSubscription(
            sent.topics, sent.user_data, sent.owned_partitions, generation, sent.rack_id
        )
    return readable


def assignments_to_send(
    assignments: Mapping[str, MemberAssignment], members: Iterable[str], check: UserDataCheck
) -> dict[str, bytes]:
    """Encode the assignment of each member.

    A missing or invalid assignment is left out. The broker then sends no bytes to that member, which the member treats
    as an error. Other members are not affected.
    """
    encoded = {}
    for member_id in sorted(members):
        assignment = assignments.get(member_id)
        if assignment is None:
            _log.error("the assignor returned no assignment for member %s; the member gets no tasks", member_id)
            continue
        try:
            check(assignment.user_data)
            encoded[member_id] = encode_assignment(
                Assignment(tuple(sorted(assignment.partitions)), assignment.user_data)
            )
        except ProtocolError as error:
            _log.error("the assignment of member %s is not valid and is not sent: %s", member_id, error)
    return encoded


def read_assignment(data: bytes) -> MemberAssignment:
    """Decode the assignment from the leader.

    Raises:
        StreamsError: The assignment is empty or cannot be decoded.
    """
    try:
        received = decode_assignment(data)
    except ProtocolError as error:
        what = "sent no assignment to this member" if not data else f"sent an assignment that cannot be read ({error})"
        raise StreamsError(f"the leader of the group {what}; see the log of that member") from error
    return MemberAssignment(received.partitions, received.user_data or b"")
