"""Memory that was freed goes back to the system, where its allocator would keep it."""

from __future__ import annotations

import sys
import threading

import pytest

from streams_py.system.freed_memory import FreedMemory, allocator_trim


def test_memory_is_given_back_again_and_again_until_it_is_stopped() -> None:
    calls: list[int] = []
    twice = threading.Event()

    def trim(keep: int) -> None:
        calls.append(keep)
        if len(calls) == 2:
            twice.set()

    before = set(threading.enumerate())
    freed = FreedMemory(trim, interval_s=0.001)
    assert twice.wait(10)
    (thread,) = [one for one in threading.enumerate() if one.name == "freed-memory" and one not in before]
    freed.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert set(calls) == {0}  # nothing is kept back


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc_trim is glibc's, which is Linux's")
def test_allocator_gives_freed_memory_back() -> None:
    trim = allocator_trim()
    if trim is None:
        pytest.skip("this C library returns freed memory automatically: it has no malloc_trim")
    assert trim(0) in (0, 1)
