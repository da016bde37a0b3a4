"""Bytes of the consumer protocol, to and from the values of the port.

kafka-python has an encoder of its own; it is not used, so that one library (``streams_protocol``) decides about every
byte that members exchange, whichever client carries them. What we are about to send is decoded first: a Java leader's
stream thread dies of user data that is empty or cut off, and takes the whole group's assignment with it.
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

__all__ = ["UserDataCheck", "assignments_to_send", "read_assignment", "readable_members", "subscription_to_send"]

_log = logging.getLogger(__name__)

UserDataCheck = Callable[[bytes], object]
"""Decodes user data, or raises ``streams_protocol``'s DecodeError."""


def subscription_to_send(
    *,
    topics: Iterable[str],
    user_data: bytes,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
    check: UserDataCheck,
) -> bytes:
    """This member's subscription, version 3. Raises ProtocolError when ``user_data`` cannot be read back."""
    check(user_data)
    return encode_subscription(Subscription(tuple(topics), user_data, tuple(owned), generation, rack))


def readable_members(members: Iterable[tuple[str, bytes]]) -> dict[str, MemberSubscription]:
    """Subscriptions of the members, by member id. One that cannot be read is left out: the others go on."""
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
    """Bytes for every member. A missing or unusable entry is left out: the broker gives that member no bytes at all,
    which it takes as an error, and nobody else is harmed."""
    encoded = {}
    for member_id in sorted(members):
        assignment = assignments.get(member_id)
        if assignment is None:
            _log.error("the assignor forgot member %s; it gets no assignment", member_id)
            continue
        try:
            check(assignment.user_data)
            encoded[member_id] = encode_assignment(
                Assignment(tuple(sorted(assignment.partitions)), assignment.user_data)
            )
        except ProtocolError as error:
            _log.error("the assignment of member %s cannot be sent; it gets none: %s", member_id, error)
    return encoded


def read_assignment(data: bytes) -> MemberAssignment:
    """What the leader sent to this member. StreamsError when it sent nothing, or nothing that can be read."""
    try:
        received = decode_assignment(data)
    except ProtocolError as error:
        what = "forgot this member" if not data else f"sent an assignment that cannot be read ({error})"
        raise StreamsError(f"the leader of the group {what}; see the log of that member") from error
    return MemberAssignment(received.partitions, received.user_data or b"")
