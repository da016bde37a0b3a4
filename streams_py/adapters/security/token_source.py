"""OAUTHBEARER tokens from a function of the user, which may fail or hang for a while.

An unreachable identity provider must not stop an application whose token is still valid. So the last token is kept, and
the function runs on a separate thread: the network thread of a client also sends heartbeats, so it must not wait long
for a provider that does not answer. After the token has expired, a failed call counts as an outage, like an unreachable
broker.
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

_Token = tuple[str, float]
"""A token, and its expiry in seconds since the epoch."""
_RENEWED_AT: Final = 0.8
"""Part of a token's lifetime after which the function is called for the next token, as in Kafka's clients."""
_RENEWAL_S: Final = 2.0
"""Time that a call waits for the function if there was a token before, in seconds."""
_PAUSE_S: Final = 0.1
"""Pause after the first failed call, in seconds. Each further failure doubles it."""
_PAUSE_MAX_S: Final = 10.0
"""Upper bound of this pause, in seconds (the default of Kafka's ``sasl.login.retry.backoff.max.ms``)."""


class KeptTokens:
    """A token source that survives failed and hanging calls of the user's function. Thread-safe.

    Args:
        source: Returns a token and its expiry in seconds since the epoch.
        patience_s: Time that one call waits for the function, in seconds.
        retries: Whether the first call repeats failed calls of the function within this time, and later calls return an
            expired token rather than none. A client of librdkafka cannot be created without a token. With an expired
            one, the broker refuses the login, which counts as an outage.
        now_s: Wall clock in seconds since the epoch.
        monotonic_s: Clock for pauses, in seconds.
        sleep: Waits for the given number of seconds.
    """

    def __init__(
        self,
        source: Callable[[], _Token],
        *,
        patience_s: float,
        retries: bool = False,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._patience_s = patience_s
        self._retries = retries
        self._now_s = now_s
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._kept: _Token | None = None
        self._renew_at_s = 0.0
        self._call: _Call | None = None
        """The running call of the function."""
        self._failures = 0
        self._retry_at_s = -math.inf
        self._problem = ""

    def __call__(self) -> _Token:
        """Return a valid token and when to renew it.

        Raises:
            BrokerUnavailableError: The function failed or has not answered, and no valid token is left.
        """
        is_first = self._kept is None
        ends_at_s = self._monotonic_s() + (self._patience_s if is_first else min(self._patience_s, _RENEWAL_S))
        while True:
            with self._lock:
                kept = self._valid()
                if kept is not None and self._now_s() < self._renew_at_s:
                    return kept
                pause_s = 0.0 if self._call is not None else self._retry_at_s - self._monotonic_s()
                if kept is not None and (self._call is not None or pause_s > 0):
                    return self._soon_renewed(kept)  # the caller that started the call waits for it
                call = None if pause_s > 0 else self._call or self._start()
            if call is not None:
                call.ended.wait(max(0.0, ends_at_s - self._monotonic_s()))
                if call.answer is not None:
                    return call.answer  # even if it has expired by this clock: the broker decides
            with self._lock:
                if call is not None and not call.ended.is_set():
                    self._note_failure("no answer yet")
                kept = self._valid()
                if kept is not None:
                    return self._soon_renewed(kept)
                if self._kept is not None and self._retries:
                    return self._kept[0], self._now_s() + _PAUSE_MAX_S
                pause_s = max(0.0, self._retry_at_s - self._monotonic_s())
            if not self._retries or self._monotonic_s() + pause_s >= ends_at_s:
                raise BrokerUnavailableError(
                    f"sasl.oauthbearer.token.source failed ({self._problem}), and no valid token is left"
                )
            self._sleep(pause_s)

    def _valid(self) -> _Token | None:
        return self._kept if self._kept is not None and self._kept[1] > self._now_s() else None

    def _soon_renewed(self, kept: _Token) -> _Token:
        token, expiry_s = kept
        return token, min(expiry_s, self._now_s() + _PAUSE_MAX_S)

    def _start(self) -> _Call:
        self._call = call = _Call()
        threading.Thread(target=self._run, args=(call,), name="token-source", daemon=True).start()
        return call

    def _run(self, call: _Call) -> None:
        problem = ""
        try:
            call.answer = _checked(self._source())
        except BaseException as error:  # the thread ends in any case
            problem = type(error).__name__
        with self._lock:
            self._call = None
            if call.answer is None:
                self._failures += 1
                self._retry_at_s = self._monotonic_s() + min(_PAUSE_S * 2 ** min(self._failures - 1, 20), _PAUSE_MAX_S)
                self._note_failure(problem)
            else:
                self._keep(call.answer)
        call.ended.set()

    def _keep(self, token: _Token) -> None:
        now_s = self._now_s()
        self._kept, self._renew_at_s = token, now_s + _RENEWED_AT * (token[1] - now_s)
        self._failures, self._retry_at_s = 0, -math.inf
        if self._problem:
            _log.info("sasl.oauthbearer.token.source works again")
        self._problem = ""

    def _note_failure(self, problem: str) -> None:
        """Log the first failure of an outage. The error's text is left out: it may contain a secret."""
        kept, now_s = self._valid(), self._now_s()
        left = (
            "no valid token is left" if kept is None else f"keeping the token that is valid for {kept[1] - now_s:.0f} s"
        )
        level = logging.DEBUG if self._problem else logging.WARNING
        _log.log(level, "sasl.oauthbearer.token.source failed (%s); %s; retrying", problem, left)
        self._problem = problem


class _Call:
    """One call of the user's function, on its own thread."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.answer: _Token | None = None


def _checked(answer: object) -> _Token:
    """Return the result of the user's function; TypeError unless it is a token and a number."""
    if isinstance(answer, tuple) and len(answer) == 2:
        token, expiry_s = answer
        if isinstance(token, str) and token and isinstance(expiry_s, (int, float)) and math.isfinite(expiry_s):
            return token, float(expiry_s)
    raise TypeError("expected (token, expiry in seconds since the epoch)")
