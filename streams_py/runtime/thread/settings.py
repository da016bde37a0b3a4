"""The settings of the loop of a stream thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.runtime.commit.committer import CommitLimits
from streams_py.runtime.commit.pace import PaceSettings
from streams_py.runtime.group.thread_calls import max_poll_interval_ms

_MAX_POLL_RECORDS: Final = 1_000
_CALLS_LEAST_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Settings of the loop; see the configuration keys of the same names."""

    poll_ms: int
    max_poll_records: int
    max_poll_interval_ms: int
    log_summary_interval_ms: int
    repartition_purge_interval_ms: int
    commits: CommitLimits
    pace: PaceSettings

    @classmethod
    def from_config(cls, config: StreamsConfig) -> Self:
        """Return the settings of a configuration. ConfigError if a consumer setting is not a number."""
        consumer = ClientRole.MAIN_CONSUMER
        longest_ms = max_poll_interval_ms(config)
        patience_ms = config.transaction_timeout_ms if config.exactly_once else longest_ms
        return cls(
            poll_ms=config.poll_ms,
            max_poll_records=config.number_for(consumer, "max.poll.records", _MAX_POLL_RECORDS),
            max_poll_interval_ms=longest_ms,
            log_summary_interval_ms=config.log_summary_interval_ms,
            repartition_purge_interval_ms=config.repartition_purge_interval_ms,
            commits=CommitLimits(
                task_timeout_ms=config.task_timeout_ms,
                calls_max_ms=max(_CALLS_LEAST_MS, config.transaction_timeout_ms * 3 // 4 - config.commit_interval_ms),
            ),
            pace=PaceSettings(
                commit_interval_ms=config.commit_interval_ms,
                rebalance_commit_interval_ms=max(config.commit_interval_ms, config.transaction_timeout_ms // 10),
                uncommitted_max_bytes=config.statestore_uncommitted_max_bytes // max(1, config.num_stream_threads),
                flush_max_ms=min(patience_ms, longest_ms) // 4,
            ),
        )
