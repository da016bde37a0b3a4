"""Keeps a commit and a JoinGroup request of one member apart."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from streams_py.errors import BrokerUnavailableError


class JoinGate:
    """The stream thread of a member commits inside :meth:`committing`; its polling thread joins inside :meth:`joining`.

    A broker rejects a commit that arrives with an old generation. The next generation starts after all members have
    joined. So a member that joins waits until its commit in progress has finished, but not longer than ``wait_ms``.
    Then it joins nevertheless, and the broker may reject the commit.
    """

    def __init__(self) -> None:
        self.rebalancing = False
        """Whether a rebalance is running. Set by :meth:`joining`; the owner resets it at the end of the rebalance."""
        self._lock = threading.Lock()
        self._is_ending = False

    @contextlib.contextmanager
    def committing(self, *, although_rebalancing: bool) -> Iterator[None]:
        """Prevent this member from joining inside the context.

        Raises:
            BrokerUnavailableError: A rebalance has begun and ``although_rebalancing`` is False.
        """
        with self._lock:
            if self.rebalancing and not although_rebalancing:
                raise BrokerUnavailableError("the group is rebalancing")
            yield

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Prevent this member from joining inside the context, in which its thread commits for the last time."""
        with self._lock:
            self._is_ending = True
            yield

    @contextlib.contextmanager
    def joining(self, *, wait_ms: int) -> Iterator[bool]:
        """Build a JoinGroup request inside the context. The value is False if the stream thread is stopping.

        A thread stops before or after this context: once stopped, it would not release directories that are locked
        inside the context.

        Args:
            wait_ms: How long to wait for a commit in progress, in ms.

        Raises:
            BrokerUnavailableError: The thread is stopping, and its last commit is still in progress after ``wait_ms``.
        """
        is_locked = self._lock.acquire(timeout=wait_ms / 1000)
        try:
            self.rebalancing = True
            if self._is_ending and not is_locked:
                raise BrokerUnavailableError("the stream thread is stopping, and its last commit is still in progress")
            yield not self._is_ending
        finally:
            if is_locked:
                self._lock.release()
