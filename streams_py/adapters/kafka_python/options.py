"""What a Streams member needs beyond the settings of its client."""

from __future__ import annotations

from dataclasses import dataclass

from streams_py.adapters.kafka_python.payloads import UserDataCheck

__all__ = ["MemberOptions"]


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
