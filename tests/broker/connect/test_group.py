"""Workers of every mode in one group on a real broker: assigned jobs, fallback, and the way back."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from streams_protocol.connect import Assignment
from streams_py.adapters.kafka_python.connect_coordinator import ConnectCoordinator
from streams_py.connect.assignment.jobs import NOTHING, Jobs, union
from streams_py.connect.assignment.leader import ConfigSnapshot, GroupLeader
from streams_py.connect.assignment.modes import Mode
from streams_py.connect.group.member import GroupMember, MemberSettings
from streams_py.errors import ConfigError
from streams_py.testing.broker import Broker
from tests.support.connect.trace import jobs
from tests.support.waiting import until

pytestmark = pytest.mark.broker

CONFIG = ConfigSnapshot(4, {"a": 2, "b": 2})
ALL = CONFIG.jobs


class Worker:
    """A member with a thread that polls, like a worker's herder."""

    def __init__(self, broker: Broker, group: str, mode: Mode, lists: str | None = None) -> None:
        listed = None if lists is None else jobs(lists)
        settings = MemberSettings(
            url=f"http://{uuid.uuid4().hex[:8]}:8083/",
            mode=mode,
            static_connectors=None if listed is None else listed.connectors,
            static_tasks=None if listed is None else listed.tasks,
            heartbeat_interval_ms=300,
        )
        self.running = NOTHING
        self.failure: Exception | None = None
        self._ended = threading.Event()
        self.member = GroupMember(
            settings,
            lambda: CONFIG,
            self,
            GroupLeader(500, lambda: int(time.monotonic() * 1000) + 1),
            lambda handler: ConnectCoordinator(
                handler,
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                client_id="worker",
                rebalance_timeout_ms=60_000,
                config={"session.timeout.ms": 10_000, "heartbeat.interval.ms": 300},
            ),
        )
        self._rejoin_at = float("inf")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def on_revoked(self, revoked: Jobs) -> None:
        self.running -= revoked

    def on_assigned(self, held: Assignment, generation: int) -> None:
        self.running = Jobs.of(held.connectors, held.tasks)
        self._rejoin_at = time.monotonic() + held.delay_ms / 1000 if held.delay_ms else float("inf")
        if held.revoked_connectors or held.revoked_tasks:
            self.member.request_rejoin()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                if time.monotonic() >= self._rejoin_at:
                    self._rejoin_at = float("inf")
                    self.member.request_rejoin()
                self.member.poll(0.1)
        except Exception as error:
            self.failure = error
        finally:
            self.member.stop()

    def stop(self) -> None:
        self._ended.set()
        self.member.wakeup()
        self._thread.join(30)


@pytest.fixture
def group() -> str:
    return f"connect-{uuid.uuid4().hex}"


@pytest.fixture
def start(kafka_broker: Broker, group: str) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(mode: Mode, lists: str | None = None) -> Worker:
        started.append(Worker(kafka_broker, group, mode, lists))
        return started[-1]

    yield start
    for worker in started:
        with contextlib.suppress(Exception):
            worker.stop()


def complete(*workers: Worker, mode: Mode) -> Callable[[], bool]:
    """Check that all members use ``mode``, and every job runs once."""

    def check() -> bool:
        held = [worker.running for worker in workers]
        once = sum(len(part) for one in held for part in one) == 6
        return once and union(held) == ALL and {worker.member.mode for worker in workers} == {mode}

    return check


@pytest.mark.parametrize("mode", [Mode.EAGER, Mode.COMPATIBLE, Mode.SESSIONED])
def test_workers_of_every_mode_share_the_jobs(start: Callable[..., Worker], mode: Mode) -> None:
    one, two = start(mode), start(mode)
    until(complete(one, two, mode=mode), "every job runs once")
    until(lambda: len(one.running.tasks) == len(two.running.tasks) == 2, "tasks are even")


def test_lists_are_in_force_while_everybody_understands_them(start: Callable[..., Worker]) -> None:
    one, listing = start(Mode.STATIC), start(Mode.STATIC, "a a-0")
    until(complete(one, listing, mode=Mode.STATIC), "every job runs once")
    until(lambda: listing.running == jobs("a a-0"), "listed jobs run where they are listed")
    old = start(Mode.SESSIONED)
    until(complete(one, listing, old, mode=Mode.SESSIONED), "every job runs once")
    assert not listing.member.lists_are_in_force
    old.stop()
    until(complete(one, listing, mode=Mode.STATIC), "every job runs once")
    until(lambda: listing.running == jobs("a a-0"), "listed jobs run where they are listed")
    assert one.running == ALL - jobs("a a-0")


def test_a_worker_refuses_a_group_that_consumers_use(
    kafka_broker: Broker, group: str, start: Callable[..., Worker]
) -> None:
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": group})
    assigned = threading.Event()
    consumer.subscribe(["__consumer_offsets"], on_assign=lambda *_: assigned.set())
    try:
        until(lambda: consumer.poll(0.2) is None and assigned.is_set(), "the consumer is in its group")
        worker = start(Mode.STATIC)
        until(lambda: worker.failure, "the worker gives up")
        assert isinstance(worker.failure, ConfigError)
        assert "does not consist of Connect workers" in str(worker.failure)
    finally:
        consumer.close()
