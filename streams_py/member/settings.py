"""The part of the configuration that a member needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streams_protocol.types import HostInfo, ProcessId
from streams_py.config.endpoint import parse_endpoint

if TYPE_CHECKING:
    from streams_py.config.streams_config import StreamsConfig


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Settings of one member. Raises ConfigError if ``endpoint`` is not a valid endpoint."""

    process_id: ProcessId
    endpoint: str = ""
    """``application.server`` as configured; empty if the client serves no queries."""
    client_tags: Mapping[str, str] = field(default_factory=dict)
    upgrade_from: str | None = None
    acceptable_lag: int = 10_000
    """``acceptable.recovery.lag``."""
    asks_when_caught_up: bool = True
    """``probing.rebalance.on.catch.up``."""
    host: HostInfo | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", parse_endpoint(self.endpoint))

    @classmethod
    def from_config(cls, config: StreamsConfig, *, process_id: ProcessId) -> MemberSettings:
        """Return the member's settings from a configuration."""
        return cls(
            process_id=process_id,
            endpoint=config.application_server,
            client_tags=dict(config.client_tags),
            upgrade_from=config.upgrade_from,
            acceptable_lag=config.acceptable_recovery_lag,
            asks_when_caught_up=config.probing_rebalance_on_catch_up,
        )
