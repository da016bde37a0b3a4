"""Every record is followed through faults: none lost, none out of order, and no store starts empty."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams_py.testing.broker import Broker
from tests.support.background import in_background
from tests.support.broker.history import Verdict, judge
from tests.support.broker.kit import Application, Instance, text, true_counts

pytestmark = pytest.mark.broker

_BUSY = "while True: pass"


class Numbered:
    """Records 0, 1, 2, ... of one key per partition; afterwards the judgement of what came out."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._written = {f"k{partition}": 0 for partition in range(app.partitions)}
        self._producer = app.clients.producer("numbered")

    def write(self, count: int) -> None:
        """``count`` records per key; they are acknowledged."""
        for _ in range(count):
            for partition, key in enumerate(self._written):
                value = b"%d" % self._written[key]
                self._producer.produce(self._app.input, value, key.encode(), partition, None, -1, None)
                self._written[key] += 1
            self._producer.poll(0)
        assert self._producer.flush(60_000) == 0
        self._producer.check()

    def writing(self, *, spacing_s: float) -> contextlib.AbstractContextManager[None]:
        """Write a record per key each ``spacing_s``, on a separate thread."""

        def run(ended: threading.Event) -> None:
            while not ended.wait(spacing_s):
                self.write(1)

        return in_background(run)

    def verdict(self) -> Verdict:
        seen = [((r.key() or b"").decode(), int(r.value() or b"-1")) for r in self._app.read()]
        return judge(self._written, seen)

    def close(self) -> None:
        self._producer.close()


@contextlib.contextmanager
def overload(processes: int) -> Iterator[None]:
    """Processes that use up processor time, so that no thread runs immediately when it is ready."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def rounds(instance: Instance) -> list[int]:
    """The generations of its threads."""
    return sorted(instance.status.get("generations", {}).values())


@pytest.mark.parametrize("hogs", [0, pytest.param(5, marks=pytest.mark.weekly)], ids=["alone", "overloaded"])
def test_no_record_is_lost_or_out_of_order_while_instances_are_killed_and_come_back(
    application: Callable[..., Application], hogs: int
) -> None:
    app = application(app="trace")
    numbered = Numbered(app)
    instances = {"a": app.start("a"), "b": app.start("b")}
    app.await_shared(*instances.values())
    with overload(hogs), numbered.writing(spacing_s=0.01):
        for name in ("a", "b"):
            before = len(app.traces())
            app.until(lambda before=before: len(app.traces()) > before + 50, "records to flow")
            instances[name].kill()
            app.until(lambda before=before: len(app.traces()) > before + 100, "the other one to continue")
            instances[name] = app.start(name)
            app.until(lambda: app.shared(*instances.values()), "both to work")
    app.await_caught_up()
    numbered.close()
    verdict = numbered.verdict()
    assert verdict.is_at_least_once, f"{verdict}\n{app.tails()}"


def test_history_is_exact_while_instances_join_and_leave_in_order(application: Callable[..., Application]) -> None:
    app = application(app="trace")
    numbered = Numbered(app)
    a = app.start("a")
    app.await_shared(a)
    with numbered.writing(spacing_s=0.01):
        b = app.start("b")
        app.await_shared(a, b)
        assert a.ask("close", leave=True, timeout=60)
        app.await_shared(b)
        assert a.close() == 0
    app.await_caught_up()
    numbered.close()
    verdict = numbered.verdict()
    assert verdict.is_exact, f"{verdict}\n{app.tails()}"


@pytest.mark.parametrize(
    ("seed", "times"), [(1, 1), *(pytest.param(seed, 3, marks=pytest.mark.weekly) for seed in range(2, 7))]
)
def test_nothing_is_counted_from_zero_when_the_broker_is_killed_within_two_seconds_of_an_assignment(
    own_broker: Broker, tmp_path: Path, seed: int, times: int
) -> None:
    """The end of the changelog is asked for then, and an answer that never came is not "it is empty"."""
    instants = random.Random(seed)
    app = Application(own_broker, tmp_path)
    try:
        lines = text(60_000, seed=seed)
        portion = len(lines) // 4
        a, b = app.start("a"), app.start("b")
        app.await_shared(a, b)
        app.feed(lines[:portion])
        app.await_caught_up()
        fed = portion
        for _ in range(times):
            b.kill()
            shutil.rmtree(tmp_path / "b")  # its tasks have everything to restore
            before = rounds(a)
            b = app.start("b")
            app.until(lambda b=b: rounds(b) and max(rounds(b)) > 0, "b's assignment")
            time.sleep(instants.uniform(0, 1.5))
            own_broker.kill_node(1)
            own_broker.start_node(1)
            app.feed(lines[fed : fed + portion])
            fed += portion
            app.await_shared(a, b)
            app.await_caught_up()
            assert rounds(a) != before
        expected, counted = true_counts(lines[:fed]), app.counts()
        missing = {word: (counted[word], count) for word, count in expected.items() if counted[word] < count}
        assert not missing, f"{missing}\n{app.tails()}"
        assert a.ask("store") | b.ask("store") == counted, app.tails()
    finally:
        app.close()


@pytest.mark.weekly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hard", [False, True], ids=["stopped", "killed"])
def test_no_record_is_lost_or_out_of_order_when_the_broker_was_away_for_longer_than_any_request_waits(
    own_broker: Broker, tmp_path: Path, hard: bool
) -> None:
    app = Application(own_broker, tmp_path, app="trace")
    numbered = Numbered(app)
    try:
        a, b = app.start("a"), app.start("b")
        app.await_shared(a, b)
        numbered.write(2_000)
        (own_broker.kill_node if hard else own_broker.stop_node)(1)
        time.sleep(50)  # request.timeout.ms is 40 s, of a join as well
        own_broker.start_node(1)
        numbered.write(500)
        app.await_shared(a, b)
        app.await_caught_up(timeout_s=240)
        verdict = numbered.verdict()
        assert verdict.is_at_least_once, f"{verdict}\n{app.tails()}"
    finally:
        numbered.close()
        app.close()
