"""Where reading starts when there is no committed offset, or when the committed one is gone from the broker."""

from __future__ import annotations

from collections.abc import Mapping

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.ports import BEGINNING, END
from streams_py.topology.nodes import ResetPolicy

__all__ = ["StartPositions"]


class StartPositions:
    """Reset policy per topic: the source's own, else the consumer's ``auto.offset.reset``."""

    def __init__(self, policies: Mapping[str, ResetPolicy | None], default: ResetPolicy | None) -> None:
        self._policies = dict(policies)
        self._default = default

    def after_reset(self, partition: TopicPartition) -> int:
        """BEGINNING or END. StreamsError when neither the source nor the consumer says which."""
        policy = self._policies.get(partition.topic) or self._default
        if policy is None:
            raise StreamsError(
                f"partition {partition} has no valid committed offset and nothing says where to start: set "
                f"auto.offset.reset to earliest or latest, or give the source of {partition.topic} a reset policy"
            )
        return BEGINNING if policy is ResetPolicy.EARLIEST else END
