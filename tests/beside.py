"""Something that goes on beside a test: traffic, readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["beside"]


@contextmanager
def beside(run: Callable[[threading.Event], object], *, threads: int = 1) -> Iterator[None]:
    """Calls ``run`` on threads of their own while the block goes on; the event tells them when it has ended. What one
    of them raises is raised at the end of the block."""
    ended = threading.Event()
    problems: list[BaseException] = []

    def run_one() -> None:
        try:
            run(ended)
        except BaseException as error:
            problems.append(error)

    running = [threading.Thread(target=run_one, name=f"beside-{number}") for number in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in running:
            thread.join()
        if problems:
            raise problems[0]
