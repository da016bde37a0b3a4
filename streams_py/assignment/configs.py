"""The eight settings of an assignor (KIP-924's ``AssignmentConfigs``), with validation.

Two checks are stricter than in Apache Kafka Streams: a negative number of standbys and negative rack costs are
rejected. Kafka accepts them, with undesirable results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streams_py.errors import ConfigError

STRATEGY_NONE: Final = "none"
STRATEGY_MIN_TRAFFIC: Final = "min_traffic"
STRATEGY_BALANCE_SUBTOPOLOGY: Final = "balance_subtopology"
ACCEPTABLE_RECOVERY_LAG_MAX: Final = 2**63 - 1
"""Value of ``acceptable.recovery.lag`` with which every client counts as caught up.

With this value no task ever warms up.
"""

_STRATEGIES: Final = (STRATEGY_NONE, STRATEGY_MIN_TRAFFIC, STRATEGY_BALANCE_SUBTOPOLOGY)
_TAG_KEYS_MAX: Final = 5  # as in Kafka (KIP-708)
_PROBING_INTERVAL_MS_MIN: Final = 60_000

# Field -> Kafka's key, for messages and for `of`.
_KEYS: Final = {
    "acceptable_recovery_lag": "acceptable.recovery.lag",
    "max_warmup_replicas": "max.warmup.replicas",
    "num_standby_replicas": "num.standby.replicas",
    "probing_rebalance_interval_ms": "probing.rebalance.interval.ms",
    "rack_aware_assignment_tags": "rack.aware.assignment.tags",
    "rack_aware_traffic_cost": "rack.aware.assignment.traffic_cost",
    "rack_aware_non_overlap_cost": "rack.aware.assignment.non_overlap_cost",
    "rack_aware_assignment_strategy": "rack.aware.assignment.strategy",
}


@dataclass(frozen=True, slots=True)
class AssignmentConfigs:
    """Settings of one rebalance. Creating one with an invalid value raises ConfigError.

    ``acceptable_recovery_lag`` is in records. A cost is None if it is not configured; the assignor then uses its own
    default.
    """

    acceptable_recovery_lag: int = 10_000
    """Maximum lag of a copy that counts as caught up, in records."""
    max_warmup_replicas: int = 2
    """Maximum number of warm-up tasks in the group."""
    num_standby_replicas: int = 0
    """Number of standby tasks for each task with state."""
    probing_rebalance_interval_ms: int = 600_000
    """Time until the leader checks again whether warm-up tasks have caught up, in ms."""
    rack_aware_assignment_tags: tuple[str, ...] = ()
    """Names of the client tags over which standby tasks are distributed."""
    rack_aware_traffic_cost: int | None = None
    """Cost of a partition that is read from another rack."""
    rack_aware_non_overlap_cost: int | None = None
    """Cost of moving a task to another client."""
    rack_aware_assignment_strategy: str = STRATEGY_NONE
    """"none", "min_traffic" or "balance_subtopology"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rack_aware_assignment_tags", tuple(self.rack_aware_assignment_tags))
        _at_least("acceptable_recovery_lag", self.acceptable_recovery_lag, 0)
        _at_least("max_warmup_replicas", self.max_warmup_replicas, 1)
        _at_least("num_standby_replicas", self.num_standby_replicas, 0)
        _at_least("probing_rebalance_interval_ms", self.probing_rebalance_interval_ms, _PROBING_INTERVAL_MS_MIN)
        for field in ("rack_aware_traffic_cost", "rack_aware_non_overlap_cost"):
            cost = getattr(self, field)
            if cost is not None:
                _at_least(field, cost, 0)
        if len(self.rack_aware_assignment_tags) > _TAG_KEYS_MAX:
            key = _KEYS["rack_aware_assignment_tags"]
            raise ConfigError(
                f"{key} lists {len(self.rack_aware_assignment_tags)} tags; at most {_TAG_KEYS_MAX} are allowed", key=key
            )
        if self.rack_aware_assignment_strategy not in _STRATEGIES:
            key = _KEYS["rack_aware_assignment_strategy"]
            raise ConfigError(
                f"{key}={self.rack_aware_assignment_strategy!r} is not a valid strategy; "
                f"use one of {', '.join(_STRATEGIES)}",
                key=key,
            )

    @classmethod
    def of(cls, configs: Mapping[str, object]) -> AssignmentConfigs:
        """Read Kafka's dotted keys from a map; other keys are ignored, absent keys use defaults.

        Numbers may be strings. Tags may be a list or a comma-separated string.
        """
        given: dict[str, object] = {}
        for field, key in _KEYS.items():
            value = configs.get(key)
            if value is None:
                continue
            if field == "rack_aware_assignment_tags":
                given[field] = _parse_tags(key, value)
            elif field == "rack_aware_assignment_strategy":
                given[field] = str(value)
            else:
                given[field] = _parse_int(key, value)
        return cls(**given)  # type: ignore[arg-type]  # the loop gives each field its own type


def _at_least(field: str, value: object, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        key = _KEYS[field]
        raise ConfigError(f"{key}={value!r} is not allowed; it must be a whole number of at least {minimum}", key=key)


def _parse_int(key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            pass
    raise ConfigError(f"{key}={value!r} is not a whole number", key=key)


def _parse_tags(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence):
        return tuple(str(part) for part in value)
    raise ConfigError(f"{key}={value!r} is not a list of tag keys", key=key)
