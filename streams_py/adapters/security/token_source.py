"""OAUTHBEARER tokens from a function of the user, which may fail for a while.

An unreachable identity provider must not stop an application whose token is still valid. So the last token is kept.
While it is valid, a failed call of the function returns that token, and the function is retried later. After the token
has expired, a failed call counts as an outage, like an unreachable broker.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from streams_py.errors import BrokerUnavailableError

_log = logging.getLogger("streams_py")

_RETRY_S: Final = 60.0
"""Upper bound of the time until the next call after a failed one, in seconds."""


class KeptTokens:
    """A token source that survives failed calls of the user's function. Thread-safe.

    Args:
        source: Returns a token and its expiry in seconds since the epoch.
        patience_s: Time for retries within one call when no valid token is left. The caller must be able to wait.
        now_s: Wall clock in seconds since the epoch.
        sleep: Waits for the given number of seconds.
    """

    def __init__(
        self,
        source: Callable[[], tuple[str, float]],
        *,
        patience_s: float = 0.0,
        now_s: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._patience_s = patience_s
        self._now_s = now_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._kept: tuple[str, float] | None = None
        self._is_failing = False

    def __call__(self) -> tuple[str, float]:
        """Return a valid token and when to renew it.

        Raises:
            BrokerUnavailableError: The function failed and no valid token is left.
        """
        with self._lock:
            waited_s, pause_s = 0.0, 0.1
            while True:
                try:
                    self._kept = _checked(self._source())
                except Exception as error:
                    now_s = self._now_s()
                    if self._kept is not None and self._kept[1] > now_s:
                        token, expiry_s = self._kept
                        self._warn(error, f"keeping the token that is valid for {expiry_s - now_s:.0f} s; retrying")
                        return token, min(expiry_s, now_s + _RETRY_S)
                    if waited_s + pause_s > self._patience_s:
                        self._warn(error, "no valid token is left; retrying")
                        raise BrokerUnavailableError(
                            f"sasl.oauthbearer.token.source failed ({type(error).__name__}), and no valid token is left"
                        ) from error
                    self._sleep(pause_s)
                    waited_s, pause_s = waited_s + pause_s, 2 * pause_s
                    continue
                if self._is_failing:
                    _log.info("sasl.oauthbearer.token.source works again")
                self._is_failing = False
                return self._kept

    def _warn(self, error: Exception, consequence: str) -> None:
        """Log the first failure of an outage. The error's text is left out: it may contain a secret."""
        level = logging.DEBUG if self._is_failing else logging.WARNING
        _log.log(level, "sasl.oauthbearer.token.source failed (%s); %s", type(error).__name__, consequence)
        self._is_failing = True


def _checked(answer: object) -> tuple[str, float]:
    """Return the result of the user's function; TypeError unless it is a token and a number."""
    if isinstance(answer, tuple) and len(answer) == 2:
        token, expiry_s = answer
        if isinstance(token, str) and token and isinstance(expiry_s, (int, float)) and math.isfinite(expiry_s):
            return token, float(expiry_s)
    raise TypeError("expected (token, expiry in seconds since the epoch)")
