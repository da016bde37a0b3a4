"""Background work during a test, such as traffic or readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(run: Callable[[threading.Event], object], *, threads: int = 1) -> Iterator[None]:
    """Run functions on separate threads during the block.

    The event tells them to stop. An error of one of them is raised at the end of the block.
    """
    ended = threading.Event()
    problems: list[BaseException] = []

    def run_one() -> None:
        try:
            run(ended)
        except BaseException as error:
            problems.append(error)

    running = [threading.Thread(target=run_one, name=f"background-{number}") for number in range(threads)]
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
