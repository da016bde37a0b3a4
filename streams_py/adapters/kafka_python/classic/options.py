"""Options of a Streams member that are not settings of its client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from streams_py.adapters.kafka_python.classic.payloads import UserDataCheck

MOCK_CLUSTER: Final[Mapping[str, Any]] = {"api_version": (2, 3), "leader_answer_delay_ms": 120, "rejoin_delay_ms": 2000}
"""Arguments of a KafkaPythonMembership for librdkafka's mock cluster:

* ``api_version``: kafka-python cannot decode the mock cluster's response to newer ApiVersions requests.
* ``leader_answer_delay_ms``: the mock cluster refuses followers whose SyncGroup arrives after the leader's.
* ``rejoin_delay_ms``: unlike Kafka, the mock cluster refuses commits as soon as the next rebalance has begun. So a
  member that gets a task from another member delays its request for the follow-up rebalance, and the other member can
  commit first. The rejoin of the other member starts the rebalance anyway.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of a Streams member that are not settings of its client.

    ``leader_answer_delay_ms``: minimum time between a leader's JoinGroup and SyncGroup. Only librdkafka's mock cluster
    requires it, because it refuses followers whose SyncGroup arrives after the leader's.
    """

    cooperative: bool = True
    rack: str | None = None
    leader_answer_delay_ms: int = 0
    revocation_commit_timeout_ms: int = 60_000
    check_subscription: UserDataCheck = bytes
    check_assignment: UserDataCheck = bytes
