"""Pauses between attempts to reach the cluster."""

from __future__ import annotations

import logging
from typing import Final

from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Clock

_log = logging.getLogger(__name__)

_PAUSE_MAX_MS: Final = 1_000


class Backoff:
    """Growing pauses. ``pause_ms`` is the first pause."""

    def __init__(self, name: str, clock: Clock, pause_ms: int) -> None:
        self._name, self._clock, self._pause_ms = name, clock, pause_ms
        self._failures = 0

    def wait(self, error: BrokerUnavailableError) -> None:
        """Wait until the next attempt. Pauses grow, and warnings become less frequent."""
        self._failures += 1
        pause_ms = min(self._pause_ms << min(self._failures - 1, 10), _PAUSE_MAX_MS)
        level = logging.WARNING if self._failures & (self._failures - 1) == 0 else logging.DEBUG
        _log.log(level, "%s: %s; retrying in %d ms", self._name, error, pause_ms)
        self._clock.sleep_ms(pause_ms)

    def reset(self) -> None:
        """Reset the pauses after a success."""
        self._failures = 0
