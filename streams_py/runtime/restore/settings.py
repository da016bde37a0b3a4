"""Settings and listeners of restorations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from streams_py.config.streams_config import StreamsConfig
from streams_py.runtime.restore.listener import RestoreListener, StandbyUpdateListener
from streams_py.runtime.restore.standby_lags import OnWarm


@dataclass(frozen=True, slots=True)
class RestoreSettings:
    """Settings of a state updater, or of the global thread.

    Attributes:
        group: The application's group. Its committed offsets limit changelogs that are source topics.
        poll_ms: Longest wait for records (``poll.ms``).
        commit_interval_ms: Interval between checkpoints and requests of limits (``commit.interval.ms``).
        retry_backoff_ms: First pause after an error of a broker (``retry.backoff.ms``).
        task_timeout_ms: How long an active task waits for unknown facts about its changelogs (``task.timeout.ms``).
        acceptable_lag: Lag within which a standby counts as warm, in records (``acceptable.recovery.lag``).
        stops_at_recreated: Whether a changelog that was deleted and created again stops the application when the state
            is certain to be lost, instead of being restored from the new topic.
    """

    group: str
    poll_ms: int
    commit_interval_ms: int
    retry_backoff_ms: int
    task_timeout_ms: int
    acceptable_lag: int = 10_000
    stops_at_recreated: bool = False

    @classmethod
    def from_config(cls, config: StreamsConfig) -> Self:
        """Return the settings of a configuration."""
        return cls(
            group=config.application_id,
            poll_ms=config.poll_ms,
            commit_interval_ms=config.commit_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            task_timeout_ms=config.task_timeout_ms,
            acceptable_lag=config.acceptable_recovery_lag,
            stops_at_recreated=config.recreated_internal_topics != "continue",
        )


@dataclass(frozen=True, slots=True)
class RestoreListeners:
    """What a state updater reports to."""

    restoration: RestoreListener | None = None
    standby: StandbyUpdateListener | None = None
    warm: OnWarm = lambda task, lag, since_ms: None
    """Called when a standby task becomes warm."""
