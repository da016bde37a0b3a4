"""Stores read over HTTP while tasks move between processes: every answer is right, or says to ask again."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import httpx
import pytest

from tests.support.broker.kit import Application, Instance, text, true_counts

pytestmark = pytest.mark.broker

RETRIABLE = (503, 504)
"""What docs/queries.md says to ask again after."""


class Reader:
    """Queries words from the instances at ``ports`` repeatedly, on a separate thread, and records wrong or missing
    answers.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.ports: list[int] = []
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.counts = dict(counts)
        self._ended = threading.Event()

    def ask(self, http: httpx.Client, port: int, word: str) -> int:
        answer = http.get(f"http://127.0.0.1:{port}/stores/counts/keys/{word}")
        right = answer.json().get("value") == self.counts[word]
        if not (answer.status_code in RETRIABLE or (answer.status_code == 200 and right)):
            self.wrong.append(f"{word}, {self.counts[word]} times: {answer.status_code} {answer.text}")
        self.statuses[answer.status_code] += 1
        return answer.status_code

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _run(self) -> None:
        words = sorted(self.counts)
        with httpx.Client(timeout=60, trust_env=False) as http:
            while not self._ended.is_set():
                port = random.choice(self.ports)
                with contextlib.suppress(httpx.TransportError):  # it has just ended
                    self.ask(http, port, random.choice(words))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_reads_are_right_or_to_be_repeated_while_processes_come_leave_and_are_killed(
    application: Callable[..., Application], guarantee: str
) -> None:
    app = application(processing_guarantee=guarantee, num_standby_replicas=1)
    lines = text(4_000)
    counts = true_counts(lines)
    reader = Reader(counts)
    ports: dict[str, int] = {}

    def start(name: str) -> Instance:
        ports[name] = free_port()
        return app.start(name, config={"application.server": f"127.0.0.1:{ports[name]}"})

    def everything_is_there() -> bool:
        with httpx.Client(timeout=60, trust_env=False) as http:
            return all(reader.ask(http, port, word) == 200 for port in reader.ports for word in sorted(counts))

    a, b = start("a"), start("b")
    app.await_shared(a, b)
    app.feed(lines)
    app.await_caught_up()
    if guarantee == "at_least_once":  # a process that lost its session may have counted some twice
        reader.counts = {word: count for one in (a, b) for word, count in one.ask("store").items()}
        assert reader.counts.keys() == counts.keys()
    reader.ports = [ports["a"], ports["b"]]
    app.until(everything_is_there, "all words at both")
    with reader.reading():
        c = start("c")
        app.await_shared(a, b, c)
        reader.ports = [ports["a"], ports["c"]]
        assert b.ask("close", leave=True, timeout=60)
        app.await_shared(a, c)
        reader.ports = [ports["a"]]
        c.kill()
        app.await_shared(a)
        c = start("c")
        app.await_shared(a, c)
        reader.ports = [ports["a"], ports["c"]]
        app.until(everything_is_there, "all words at both again")
    assert not reader.wrong, reader.wrong[:5]
    assert reader.statuses[200] > len(counts)
