"""Offsets and what identifies the member that commits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from streams_protocol.types import TopicPartition

__all__ = ["CommittedOffsets", "GroupMetadata", "OffsetAndMetadata"]


class GroupMetadata(NamedTuple):
    """Who this member is in its group right now (KIP-447)."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class OffsetAndMetadata(NamedTuple):
    """A committed position and its metadata text."""

    offset: int
    metadata: str = ""


CommittedOffsets: TypeAlias = "Mapping[TopicPartition, OffsetAndMetadata | None]"
"""Committed positions by partition, None where there is none."""
