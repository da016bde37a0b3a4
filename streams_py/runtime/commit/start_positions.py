"""Where reading starts without a valid committed offset."""

from __future__ import annotations

from collections.abc import Sequence

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError, StreamsError
from streams_py.ports import BEGINNING, END
from streams_py.topology.declare.names import topic_on_broker
from streams_py.topology.declare.nodes import ResetPolicy, SourceNode


class StartPositions:
    """Reset policy per topic.

    It is the policy of the source that reads the topic: by name, else by pattern (the first that was added). If the
    source has none, it is the consumer's ``auto.offset.reset``.
    """

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
        """Return BEGINNING or END. StreamsError if neither the source nor the consumer has a policy."""
        policy = self._policy_of(partition.topic)
        if policy is None:
            raise StreamsError(
                f"partition {partition} has no valid committed offset, and no reset policy applies: set "
                f"auto.offset.reset to earliest or latest, or set a reset policy for the source of {partition.topic}"
            )
        return BEGINNING if policy is ResetPolicy.EARLIEST else END


def reset_policy(text: str | None) -> ResetPolicy | None:
    """Return the policy named by ``auto.offset.reset``; None for ``none``. ConfigError for any other value."""
    match (text or "earliest").lower():
        case "earliest" | "beginning" | "smallest":
            return ResetPolicy.EARLIEST
        case "latest" | "end" | "largest":
            return ResetPolicy.LATEST
        case "none" | "error":
            return None
    key = "auto.offset.reset"
    raise ConfigError(f"{key} = {text!r} is not valid: expected earliest, latest or none", key=key)
