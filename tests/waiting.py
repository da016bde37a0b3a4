"""Waiting for something to come true, patiently: a busy machine is no failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Membership, OffsetAndMetadata

__all__ = ["PATIENCE_S", "commit", "until"]

PATIENCE_S = 120.0


def until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Poll; AssertionError that says what did not happen."""
    limit = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(0.01)


def commit(member: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Commit as a member does: "not now", while its client still completes the round, means to try again."""

    def committed() -> bool:
        try:
            member.commit(offsets, timeout_ms=10_000)
        except BrokerUnavailableError:
            return False
        return True

    until(committed, "the offsets to be committed")
