"""Instances that join, leave and are killed at random while words stream in: every one of them is counted."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.support.broker.kit import PYTHON, Application, Instance, text, true_counts

pytestmark = [pytest.mark.broker, pytest.mark.weekly, pytest.mark.timeout(1800)]

NAMES = ("a", "b", "c")
JAVA = "c"
SECONDS = float(os.environ.get("STREAMS_PY_STRESS_S", "90"))


class Chaos:
    """Acts on the instances of one application; every act is logged, and repeatable from the seed."""

    def __init__(
        self, app: Application, seed: int, *, threads: int, bounces: bool, java: tuple[str, ...] | None = None
    ) -> None:
        self.app = app
        self.random = random.Random(seed)
        self.live: dict[str, Instance] = {}
        self.log: list[str] = []
        self._threads = threads
        self._bounces = bounces
        self._commands = {JAVA: java} if java else {}

    def act(self) -> None:
        """Start, close or kill an instance (at least one is left), or make the broker unavailable for some time."""
        if self._bounces and self.random.random() < 0.15:
            self.bounce()
            return
        name = self.random.choice(NAMES)
        instance = self.live.get(name)
        if instance is None:
            self.note(f"start {name}")
            config = {"num.stream.threads": self.random.randint(1, self._threads)}
            self.live[name] = self.app.start(name, config=config, command=self._commands.get(name, PYTHON))
            return
        if len(self.live) == 1:
            return
        del self.live[name]
        ways = ("kill", "close") if name in self._commands else ("kill", "close", "close and leave", "terminate")
        how = self.random.choice(ways)
        self.note(f"{how} {name}")
        match how:
            case "kill":
                instance.kill()
            case "close":
                assert instance.close() == 0, instance.tail()
            case "close and leave":
                instance.ask("close", timeout=60, leave=True)
                assert instance.close() == 0, instance.tail()
            case "terminate":
                instance.signal(15)

    def bounce(self) -> None:
        """Stop or kill the broker, and restart it."""
        hard, away_s = self.random.random() < 0.5, self.random.uniform(0, 6)
        self.note(f"{'kill' if hard else 'stop'} the broker for {away_s:.1f} s")
        (self.app.broker.kill_node if hard else self.app.broker.stop_node)(1)
        time.sleep(away_s)
        self.app.broker.start_node(1)

    def is_settled(self) -> bool:
        """Whether every instance runs, and every task runs once."""
        live = list(self.live.values())
        with_tasks = [instance for instance in live if instance.running]
        return all(instance.state == "RUNNING" for instance in live) and self.app.shared(*with_tasks)

    def note(self, what: str) -> None:
        self.log.append(f"{time.strftime('%H:%M:%S')} {what}")


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("bounces", [False, True], ids=["steady broker", "bounced broker"])
def test_every_word_is_counted_while_instances_come_and_go(
    application: Callable[..., Application], seed: int, bounces: bool
) -> None:
    every_word_is_counted(application, seed, bounces=bounces)


@pytest.mark.parametrize("seed", [5, 6])
def test_every_word_is_counted_while_java_and_python_instances_come_and_go(
    application: Callable[..., Application], java: tuple[str, ...], seed: int
) -> None:
    every_word_is_counted(application, seed, bounces=False, java=java)


def every_word_is_counted(
    application: Callable[..., Application], seed: int, *, bounces: bool, java: tuple[str, ...] | None = None
) -> None:
    """Let chaos reign for a while; then nothing is missing, and the stores say what the output topic says."""
    app = application(
        partitions=4,
        num_standby_replicas=seed % 2,
        session_timeout_ms=3000,
        acceptable_recovery_lag=(0, 10_000)[seed % 2],
    )
    chaos = Chaos(app, seed, threads=2, bounces=bounces, java=java)
    lines: list[str] = []
    chaos.live["a"] = app.start("a")
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        batch = text(3_000, seed=seed * 1000 + len(lines))
        app.feed(batch)
        lines += batch
        chaos.act()
        failed = [one for one in chaos.live.values() if one.process.poll() is not None]
        assert not failed, "\n".join([*chaos.log, *(one.tail() for one in failed)])
        time.sleep(chaos.random.uniform(0, 3))
    try:
        app.until(chaos.is_settled, "all instances to run, and all tasks once")
        app.await_caught_up(timeout_s=120)
        app.until(chaos.is_settled, "all instances to run, and all tasks once")
    except AssertionError as error:
        raise AssertionError("\n".join([*chaos.log, str(error)])) from None
    expected, counted = true_counts(lines), app.counts()
    missing = {word: (counted[word], count) for word, count in expected.items() if counted[word] < count}
    assert not missing, "\n".join([*chaos.log, str(missing)])
    stores: dict[str, int] = {}
    for instance in chaos.live.values():
        if any(task.startswith("1_") for task in instance.running):
            stores |= instance.ask("store")
    assert stores == counted, "\n".join(chaos.log)
    print(f"seed {seed}: {len(chaos.log)} acts, {sum(expected.values())} words, {sum(counted.values())} counted")
