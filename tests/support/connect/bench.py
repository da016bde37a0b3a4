"""A Connect worker without a cluster: memory instead of topics, and a fake group."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from streams_protocol.connect import TaskId
from streams_protocol.types import TopicPartition
from streams_py.connect.ports import Delivered
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import ConfigStore
from streams_py.connect.stores.offsets import OffsetStore
from streams_py.connect.stores.statuses import JobState, StatusStore
from streams_py.connect.worker.herder import Herder
from tests.support.connect.fake_group import FakeCoordinator, FakeGroup
from tests.support.connect.memory_log import MemoryLog
from tests.support.waiting import until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Sent:
    """A producer that acknowledges immediately, except records that ``refuse`` rejects."""

    def __init__(self, refuse: Callable[[bytes | None], Exception | None] = lambda value: None) -> None:
        self.values: list[bytes | None] = []
        self.is_closed = False
        self.holding = False
        self._refuse = refuse
        self._held: list[Callable[[], None]] = []

    def send(self, topic: str, key: bytes | None, value: bytes | None, on_delivery: Delivered, **more: Any) -> None:
        error = self._refuse(value)
        if error is None:
            self.values.append(value)
        self._held.append(lambda: on_delivery(error, T0))

    def poll(self, timeout_ms: int = 0) -> None:
        if not self.holding:
            self.flush(0)

    def flush(self, timeout_ms: int) -> int:
        held, self._held = self._held, []
        for report in held:
            report()
        return 0

    def close(self) -> None:
        self.is_closed = True


GIVEN = {
    "group.id": "g",
    "config.storage.topic": "c", "offset.storage.topic": "o", "status.storage.topic": "s",
    "key.converter": "json", "value.converter": "json", "plugin.modules": "tests",
}  # fmt: skip


SOURCE = {"connector.class": "tests.support.connect.plugins:CountingSource", "topic": "t"}


class Log(MemoryLog):
    """A log whose end cannot be read while ``is_away``."""

    is_away = False

    def read_to_end(self, timeout_s: float) -> bool:
        return not self.is_away


class Clients:
    """Coordinators of a group in memory, and producers that acknowledge."""

    def __init__(self, group: FakeGroup) -> None:
        self._group = group

    def coordinator(self, handler: Any) -> FakeCoordinator:
        return FakeCoordinator(self._group, handler)

    def producer(self, client_id: str, overrides: Any) -> Sent:
        return Sent()


class Stores:
    def __init__(self) -> None:
        self.log = Log()
        self.configs = ConfigStore(self.log)  # type: ignore[arg-type]
        self.offsets = OffsetStore(MemoryLog(), 1)  # type: ignore[arg-type]
        self.statuses = StatusStore(MemoryLog(), 1)  # type: ignore[arg-type]


class Bench:
    """One herder in a group, turned by hand."""

    def __init__(self, **settings: str) -> None:
        self.group = FakeGroup()
        self.stores = Stores()
        self.forwarded: list[tuple[str, str]] = []
        given = {
            "group.id": "g",
            "config.storage.topic": "c",
            "offset.storage.topic": "o",
            "status.storage.topic": "s",
            "key.converter": "json",
            "value.converter": "json",
            "plugin.modules": "tests",
            "scheduled.rebalance.max.delay.ms": "50",
            "retry.backoff.ms": "1",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }

        def forward(url: str, name: str, *_: object) -> None:
            self.forwarded.append((url, name))

        self.herder = Herder(WorkerSettings.of(given), Clients(self.group), self.stores, forward)  # type: ignore[arg-type]
        self.stores.configs.start(self.herder.on_change)

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.herder._turn()  # in place of the thread of the herder

    def until(self, condition: Any, what: str) -> None:
        def checked() -> bool:
            self.turn()
            return bool(condition())

        until(checked, what)

    def run(self, name: str = "a", **config: str) -> None:
        """A connector with its tasks, running."""
        self.stores.configs.put_connector(name, {**SOURCE, "name": name, **config})
        tasks = [TaskId(name, number) for number in range(int(config.get("tasks.max", "1")))]
        self.until(lambda: all(self.herder.jobs.runs(job) for job in [name, *tasks]), f"{name} runs")

    def states(self, job: str | TaskId) -> list[JobState]:
        """Return all written states, in order."""
        key = f"status-task-{job}" if isinstance(job, TaskId) else f"status-connector-{job}"
        return [JobState(state) for state in self._written(key)]

    def written_statuses(self) -> list[bytes]:
        return [value or b"" for _, value in self._status_records()]

    def _written(self, key: str) -> list[str]:
        return [json.loads(v)["state"] if v else "DESTROYED" for k, v in self._status_records() if k.decode() == key]

    def _status_records(self) -> list[tuple[bytes, bytes | None]]:
        log: MemoryLog = self.stores.statuses._log  # type: ignore[assignment]  # a store shows only the last ones
        return log.records
