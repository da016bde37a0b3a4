"""Waiting for something to come true, patiently: a busy machine is no failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Membership, OffsetAndMetadata

__all__ = ["PATIENCE_S", "commit", "until"]

PATIENCE_S = 120.0
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.01, 0.5


def until(
    condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S, pause_s: float = _PAUSE_MIN_S
) -> None:
    """Poll; AssertionError that says what did not happen. What is looked at works on the same processors: looking
    takes a third of the time at most, and there are ``pause_s`` between two looks at least."""
    began = time.monotonic()
    limit = began + timeout_s
    while not condition():
        looked = time.monotonic()
        if looked > limit:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(max(pause_s, min(2 * (looked - began), _PAUSE_MAX_S)))
        began = time.monotonic()


def commit(member: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Commit as a member does: "not now", while its client still completes the round, means to try again."""

    def committed() -> bool:
        try:
            member.commit(offsets, timeout_ms=10_000)
        except BrokerUnavailableError:
            return False
        return True

    until(committed, "the offsets to be committed")
