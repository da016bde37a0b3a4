"""The user data of a member's JoinGroup request.

The member writes new user data for every request that it builds, including retries. The *unique field* changes every
time. If a follower rejoined with unchanged bytes, the broker would only confirm the current generation, and the
rebalance that the follower wants would not happen. Source: Kafka Streams'
``StreamsPartitionAssignor.subscriptionUserData``.
"""

from __future__ import annotations

from collections.abc import Mapping

from streams_protocol import SubscriptionInfo, encode_subscription_info
from streams_protocol.types import TaskId
from streams_py.assignment.assignors.draining import DRAINING_TAG
from streams_py.member.settings import MemberSettings


def next_unique_field(unique_field: int) -> int:
    """Return the next signed byte; -128 follows 127."""
    return (unique_field + 129) % 256 - 128


def build_user_data(
    settings: MemberSettings,
    *,
    used_version: int,
    unique_field: int,
    error_code: int,
    task_offset_sums: Mapping[TaskId, int],
    draining: bool = False,
) -> bytes:
    """Encode a SubscriptionInfo in the version used, without the fields that this version lacks.

    ``draining`` asks the leader to hand this client's tasks over to other clients.
    """
    tags = {**settings.client_tags, DRAINING_TAG: "true"} if draining else settings.client_tags
    return encode_subscription_info(
        SubscriptionInfo(
            process_id=settings.process_id,
            version=used_version,
            endpoint=settings.endpoint or None,
            task_offset_sums=task_offset_sums,
            unique_field=unique_field,
            error_code=error_code,
            client_tags=tags,
        )
    )
