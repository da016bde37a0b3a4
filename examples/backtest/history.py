"""A live group with a history: three application processes that join, leave, are killed and restart.

Every process runs the word count and has client tags (``zone``, ``size``). With ``assignment.events.level=tasks`` the
group records every rebalance, including the complete input of the assignor.
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.word_count.demo import DemoError, Worker
from streams_py import (
    BEGINNING,
    AdminError,
    KafkaClients,
    RawRecord,
    StreamsConfig,
    TopicPartition,
    TopicSpec,
    create_topics,
)

_PARTITIONS = 4
_LINES = 4_000
_WORDS = 5_000
_STEP_TIMEOUT_S = 120
_EVENTS_OUT_S = 2.0

_SETTINGS: dict[str, Any] = {
    "commit.interval.ms": 200,
    "num.standby.replicas": 1,
    "acceptable.recovery.lag": 100,  # a copy with a larger lag is first warmed up before it becomes active
    "probing.rebalance.interval.ms": 60_000,
    "rack.aware.assignment.tags": "zone",
    "assignment.events.level": "tasks",
    "assignment.events.sample.interval.ms": 2_000,
}
_TAGS = {
    "A": {"client.tag.zone": "a", "client.tag.size": "small"},
    "B": {"client.tag.zone": "b", "client.tag.size": "large"},
    "C": {"client.tag.zone": "a", "client.tag.size": "large"},
}


def _row(topic: str, record: RawRecord) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp_ms": record.timestamp()[1],
        "value": record.value(),
    }


class LiveGroup:
    """The processes of the group, on the embedded cluster or a broker. A context manager."""

    def __init__(self, bootstrap: str, folder: Path, say: Callable[[str], None]) -> None:
        suffix = uuid.uuid4().hex[:6]
        self.name = f"rebalance-backtest-{suffix}"
        self._say = say
        self._folder = folder
        self._input, self._output = f"{self.name}-lines", f"{self.name}-counts"
        where = {
            "application.id": self.name,
            "bootstrap.servers": f"embedded://{self.name}" if bootstrap == "embedded" else bootstrap,
        }
        self._where = where
        self._settings = _SETTINGS | where
        if bootstrap != "embedded":  # short sessions, so that a killed process is detected soon
            self._settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self._clients = KafkaClients(StreamsConfig.of(where))
        self._workers: dict[str, Worker] = {}
        self._source = random.Random(7)
        self._sent = 0

    def __enter__(self) -> LiveGroup:
        create_topics(self._where, *(TopicSpec(name, _PARTITIONS) for name in (self._input, self._output)))
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()
        self._clients.close()

    def play(self) -> None:
        """Run the history: about ten rebalances."""
        self._say("A starts, alone")
        self._start("A")
        self._await(lambda: len(self._active("A")) == 2 * _PARTITIONS, "A to run all tasks")
        self._feed()
        self._say("B joins, large and in another zone")
        self._start("B")
        self._await(lambda: self._is_busy("B"), "B to take over tasks")
        self._feed()
        self._say("C joins, large")
        self._start("C")
        self._await(lambda: self._is_busy("C"), "C to take over tasks")
        self._feed()
        self._say("C is killed (SIGKILL), and comes back with its state")
        self._workers["C"].kill()
        self._await(lambda: self._owned("A", "B") == 2 * _PARTITIONS, "A and B to take over")
        self._feed()
        self._start("C")
        self._await(lambda: self._is_busy("C"), "C to take over tasks again")
        self._say("A leaves")
        self._workers["A"].close()
        self._await(lambda: self._owned("B", "C") == 2 * _PARTITIONS, "B and C to take over")
        self._feed()
        self._say("A comes back")
        self._start("A")
        self._await(lambda: self._is_busy("A"), "A to take over tasks")

    def end_processes(self) -> None:
        """Close all processes."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def events(self) -> list[dict[str, Any]]:
        """Return all records of the events topic so far, with the columns that telemetry reads.

        Waits first, because processes send events after a second at most.
        """
        time.sleep(_EVENTS_OUT_S)
        topic = f"{self.name}-assignment-events"
        found = self._clients.admin().describe_topics([topic])[topic]
        if isinstance(found, AdminError):
            raise DemoError(f"no rebalance was recorded: {found.message}")
        partitions = [TopicPartition(topic, info.partition) for info in found]
        ends = self._clients.admin().list_offsets(partitions)
        left = sum(end for end in ends.values() if isinstance(end, int))
        rows: list[dict[str, Any]] = []
        consumer = self._clients.restore_consumer("rebalance-backtest")
        try:
            consumer.assign(dict.fromkeys(partitions, BEGINNING))
            limit = time.monotonic() + _STEP_TIMEOUT_S
            while len(rows) < left:
                if time.monotonic() > limit:
                    raise DemoError(f"{left - len(rows)} records of {topic} could not be read")
                rows += [_row(topic, record) for record in consumer.poll(1_000, 200)]
        finally:
            consumer.close()
        return rows

    # -- processes -----------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        if name in self._workers:
            self._workers[name].close()
        config = {**self._settings, **_TAGS[name], "state.dir": str(self._folder / name)}
        log = (self._folder / f"{name}.log").open("w+", encoding="utf-8")
        self._workers[name] = Worker(name, {"config": config, "input": self._input, "output": self._output}, log)

    def _active(self, name: str) -> set[str]:
        status = self._workers[name].status
        return set(status["active"]) if status["state"] == "RUNNING" else set()

    def _is_busy(self, name: str) -> bool:
        """Whether the process has active tasks, and every task is active on a process."""
        return bool(self._active(name)) and self._owned(*self._workers) == 2 * _PARTITIONS

    def _owned(self, *names: str) -> int:
        return len(set().union(*(self._active(name) for name in names)))

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + _STEP_TIMEOUT_S
        while not condition():
            for worker in self._workers.values():
                with contextlib.suppress(ValueError):  # its log is closed if this program closed the process
                    worker.check()
            if time.monotonic() > limit:
                states = {name: worker.status for name, worker in self._workers.items()}
                raise DemoError(f"waited {_STEP_TIMEOUT_S} s for {what}: {states}")
            time.sleep(0.1)

    # -- records -------------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Send lines of random words and wait until they are counted, so that stores and changelogs have content."""
        producer = self._clients.producer("rebalance-backtest")
        try:
            for number in range(_LINES):
                line = " ".join(f"w{self._source.randrange(_WORDS)}" for _ in range(8))
                producer.produce(self._input, line.encode(), None, number % _PARTITIONS, None, -1, None)
                if number % 1_000 == 0:
                    producer.poll(0)
            if producer.flush(60_000):
                raise DemoError("the input could not be written within 60 s")
        finally:
            producer.close()
        self._sent += _LINES
        self._await(self._is_counted, "the lines to be counted")

    def _is_counted(self) -> bool:
        admin = self._clients.admin()
        for topic in (self._input, f"{self.name}-counts-repartition"):  # records of the first go into the second
            partitions = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
            ends = admin.list_offsets(partitions)
            committed = admin.committed_offsets(self.name, partitions)
            for partition, end in ends.items():
                if isinstance(end, AdminError) or committed.get(partition) != end:
                    return False
        return True
