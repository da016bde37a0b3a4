"""Options of a Streams member that are not settings of its client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams_py.adapters.kafka_python.classic.payloads import UserDataCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRules:
    """What a cluster requires of a member. The defaults are Kafka's; librdkafka's mock cluster has other rules.

    Attributes:
        api_version: kafka-python cannot decode the mock cluster's response to newer ApiVersions requests. None: any.
        leader_answer_delay_ms: Minimum time between a leader's JoinGroup and SyncGroup. The mock cluster refuses
            followers whose SyncGroup arrives after the leader's.
        rejoin_delay_ms: Unlike Kafka, the mock cluster refuses commits as soon as the next rebalance has begun. So a
            member that gets a task from another member delays its request for the follow-up rebalance, and the other
            member can commit first. The rejoin of the other member starts the rebalance anyway.
    """

    api_version: tuple[int, ...] | None = None
    leader_answer_delay_ms: int = 0
    rejoin_delay_ms: int = 0


KAFKA: Final = ClusterRules()
"""The rules of Apache Kafka."""
MOCK_CLUSTER: Final = ClusterRules(api_version=(2, 3), leader_answer_delay_ms=120, rejoin_delay_ms=2000)
"""The rules of librdkafka's mock cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of a Streams member that are not settings of its client."""

    cooperative: bool = True
    rack: str | None = None
    rules: ClusterRules = KAFKA
    revocation_commit_timeout_ms: int = 60_000
    check_subscription: UserDataCheck = bytes
    check_assignment: UserDataCheck = bytes
