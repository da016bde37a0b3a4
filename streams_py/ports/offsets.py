"""Offsets and what identifies the member that commits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from streams_protocol.types import TopicPartition


class GroupMetadata(NamedTuple):
    """The identity of this member in the current generation of its group (KIP-447)."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class OffsetAndMetadata(NamedTuple):
    """A committed offset and its metadata text."""

    offset: int
    metadata: str = ""


CommittedOffsets: TypeAlias = "Mapping[TopicPartition, OffsetAndMetadata | None]"
"""Committed offsets by partition; None: no offset is committed."""
