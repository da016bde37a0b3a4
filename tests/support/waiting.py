"""Waiting for conditions with long timeouts, so that a busy machine causes no failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Membership, OffsetAndMetadata

PATIENCE_S = 120.0
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.01, 0.5


def until(
    condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S, pause_s: float = _PAUSE_MIN_S
) -> None:
    """Poll until a condition holds; otherwise raise AssertionError with ``what`` was expected.

    The checked code uses the same processors. So checks take a third of the time at most, with a pause of at least
    ``pause_s`` between them.
    """
    began = time.monotonic()
    limit = began + timeout_s
    while not condition():
        looked = time.monotonic()
        if looked > limit:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(max(pause_s, min(2 * (looked - began), _PAUSE_MAX_S)))
        began = time.monotonic()


def commit(member: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Commit as a member does: retry while its client is still completing the round."""

    def committed() -> bool:
        try:
            member.commit(offsets, timeout_ms=10_000)
        except BrokerUnavailableError:
            return False
        return True

    until(committed, "the offsets to be committed")
