"""Where reading starts when there is no committed offset, or when the committed one is gone from the broker."""

from __future__ import annotations

from collections.abc import Sequence

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError, StreamsError
from streams_py.ports import BEGINNING, END
from streams_py.topology.names import topic_on_broker
from streams_py.topology.nodes import ResetPolicy, SourceNode

__all__ = ["StartPositions", "reset_policy"]


class StartPositions:
    """Reset policy per topic: that of the source which reads it, by name or else by pattern (the first that was
    added), or the consumer's ``auto.offset.reset`` when the source has none."""

    def __init__(self, application_id: str, sources: Sequence[SourceNode], default: ResetPolicy | None) -> None:
        self._by_name = {
            topic_on_broker(application_id, topic, is_internal=source.is_internal): source.reset_policy
            for source in sources
            for topic in source.topics
        }
        self._by_pattern = [(source.pattern, source.reset_policy) for source in sources if source.pattern is not None]
        self._default = default

    def _policy_of(self, topic: str) -> ResetPolicy | None:
        if topic in self._by_name:
            return self._by_name[topic] or self._default
        matching = (policy for pattern, policy in self._by_pattern if pattern.fullmatch(topic))
        return next(matching, None) or self._default

    def after_reset(self, partition: TopicPartition) -> int:
        """BEGINNING or END. StreamsError when neither the source nor the consumer says which."""
        policy = self._policy_of(partition.topic)
        if policy is None:
            raise StreamsError(
                f"partition {partition} has no valid committed offset and nothing says where to start: set "
                f"auto.offset.reset to earliest or latest, or give the source of {partition.topic} a reset policy"
            )
        return BEGINNING if policy is ResetPolicy.EARLIEST else END


def reset_policy(text: str | None) -> ResetPolicy | None:
    """The policy that ``auto.offset.reset`` names; None for ``none``. ConfigError for anything else."""
    match (text or "earliest").lower():
        case "earliest" | "beginning" | "smallest":
            return ResetPolicy.EARLIEST
        case "latest" | "end" | "largest":
            return ResetPolicy.LATEST
        case "none" | "error":
            return None
    key = "auto.offset.reset"
    raise ConfigError(f"{key} = {text!r} is not valid: expected earliest, latest or none", key=key)
