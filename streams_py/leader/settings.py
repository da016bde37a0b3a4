"""The part of the configuration that the leader needs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from streams_protocol.types import ProcessId
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import RackOptimiserFactory
from streams_py.config.client_keys import ClientRole

if TYPE_CHECKING:
    from streams_py.config.streams_config import StreamsConfig

ASSIGNOR_RETRY_MS: Final = 60_000
"""Delay before the next attempt after a custom assignor failed, in ms.

It equals the smallest allowed probing interval, so a broken assignor costs no more rebalances than a busy probing
phase.
"""

FOLLOW_UP_FLOOR_MS: Final = 10_000
"""Minimum delay of a follow-up rebalance that the application's assignor requests, in ms."""

_MAX_POLL_INTERVAL_MS: Final = 300_000  # Kafka's default


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Settings of one leader. They do not change during the life of the process.

    Attributes:
        process_id: the leader's own process id.
        future_process_id: stands for all members that are newer than this code. It must be random, and the same during
            the life of the process.
        reference_behaviour: behave exactly like Apache Kafka Streams, without our improvements. Then the whole group
            fails on one member's undecodable user data, on a failing custom assignor, and on a client that owns only
            partitions of unknown topics.
    """

    process_id: ProcessId
    future_process_id: ProcessId
    assignment: AssignmentConfigs = field(default_factory=AssignmentConfigs)
    internal_assignor: object = None
    """Value of ``internal.task.assignor.class``; None for the high-availability assignor."""
    task_assignor: object = None
    """Value of ``task.assignor.class``; None for the internal assignor."""
    original_configs: Mapping[str, object] = field(default_factory=dict)
    replication_factor: int = -1
    retry_backoff_ms: int = 100
    topic_setup_timeout_ms: int = _MAX_POLL_INTERVAL_MS // 2
    assignor_retry_ms: int = ASSIGNOR_RETRY_MS
    hash_sizing: HashSizing = HashSizing.JDK_19_AND_NEWER
    rack_optimiser: RackOptimiserFactory | None = None
    """Replacement for the built-in rack optimiser, used to repeat recorded decisions."""
    reference_behaviour: bool = False
    missing_topics: Literal["ignore", "report", "fail"] = "ignore"
    """Reaction to an internal topic that does not exist although the group has committed."""

    @classmethod
    def from_config(
        cls, config: StreamsConfig, *, process_id: ProcessId, future_process_id: uuid.UUID
    ) -> LeaderSettings:
        """Return the leader's settings from a configuration.

        ``future_process_id`` must be a new random UUID.
        """
        max_poll_interval_ms = config.number_for(
            ClientRole.MAIN_CONSUMER, "max.poll.interval.ms", _MAX_POLL_INTERVAL_MS
        )
        return cls(
            process_id=process_id,
            future_process_id=ProcessId(future_process_id),
            assignment=AssignmentConfigs(
                acceptable_recovery_lag=config.acceptable_recovery_lag,
                max_warmup_replicas=config.max_warmup_replicas,
                num_standby_replicas=config.num_standby_replicas,
                probing_rebalance_interval_ms=config.probing_rebalance_interval_ms,
                rack_aware_assignment_tags=tuple(config.rack_aware_assignment_tags),
                rack_aware_traffic_cost=config.rack_aware_assignment_traffic_cost,
                rack_aware_non_overlap_cost=config.rack_aware_assignment_non_overlap_cost,
                rack_aware_assignment_strategy=config.rack_aware_assignment_strategy,
            ),
            internal_assignor=config.internal_task_assignor_class,
            task_assignor=config.task_assignor_class,
            original_configs=dict(config.original),
            replication_factor=config.replication_factor,
            retry_backoff_ms=config.retry_backoff_ms,
            missing_topics="fail" if config.recreated_internal_topics == "strict" else "report",
            topic_setup_timeout_ms=max_poll_interval_ms // 2,
        )
