"""Requests for the herder's thread, to run now or later."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from streams_py.connect.errors import EndedError

_Answer = TypeVar("_Answer")


class RequestQueue:
    """A queue of requests. Thread-safe. Calls ``wake`` when a request was added."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], Any], Future[Any]]] = []
        self._closed = False

    def add(self, request: Callable[[], _Answer], delay_s: float = 0.0) -> Future[_Answer]:
        """Run ``request`` on the herder's thread, after at least ``delay_s``."""
        answer: Future[_Answer] = Future()
        with self._lock:
            if self._closed:
                answer.set_exception(EndedError("the worker is stopping"))
                return answer
            heapq.heappush(self._waiting, (time.monotonic() + delay_s, next(self._numbers), request, answer))
        self._wake()
        return answer

    @property
    def next_s(self) -> float:
        """Time when the next request is due, on the monotonic clock."""
        with self._lock:
            return self._waiting[0][0] if self._waiting else float("inf")

    def run_due(self) -> None:
        """Run all requests that are due."""
        while True:
            with self._lock:
                if not self._waiting or self._waiting[0][0] > time.monotonic():
                    return
                _, _, request, answer = heapq.heappop(self._waiting)
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(request())
            except Exception as error:
                answer.set_exception(error)

    def close(self) -> None:
        """Fail waiting requests and all later ones."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, []
        for _, _, _, answer in waiting:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(EndedError("the worker is stopping"))
