"""What a Streams member needs beyond the settings of its client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from streams_py.adapters.kafka_python.classic.payloads import UserDataCheck

__all__ = ["MOCK_CLUSTER", "MemberOptions"]

MOCK_CLUSTER: Final[Mapping[str, Any]] = {"api_version": (2, 3), "leader_answer_delay_ms": 120, "rejoin_delay_ms": 2000}
"""Arguments of a KafkaPythonMembership whose broker is librdkafka's mock cluster.

kafka-python cannot decode the mock's answer to newer ApiVersions requests, so the version is pinned; and the mock
refuses followers that sync after the leader, so the leader is made slow. It also refuses commits as soon as the next
rebalance has begun, which Kafka does not: a member that is to get a task from another one asks for its follow-up
rebalance only after a while, so that the other one can commit first. The other one's rejoin starts it anyway.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """What a Streams member needs beyond the client's settings.

    ``leader_answer_delay_ms``: a leader waits at least so long between JoinGroup and SyncGroup. Needed with
    librdkafka's mock cluster only, whose followers are refused when the leader answers first.
    """

    cooperative: bool = True
    rack: str | None = None
    leader_answer_delay_ms: int = 0
    revocation_commit_timeout_ms: int = 60_000
    check_subscription: UserDataCheck = bytes
    check_assignment: UserDataCheck = bytes
