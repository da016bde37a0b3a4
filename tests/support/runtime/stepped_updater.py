"""A state updater that the test moves step by step."""

from __future__ import annotations

from collections.abc import Callable

from streams_protocol.types import TaskId, TopicPartition
from streams_py.runtime.restore.listener import RestoreListener, StandbyUpdateListener, SuspendReason
from streams_py.runtime.restore.parallel_restore import ParallelRestore
from streams_py.runtime.restore.settings import RestoreListeners, RestoreSettings
from streams_py.runtime.restore.updater import StateUpdater
from tests.support.clocks import FakeClock
from tests.support.runtime.fakes import FakeAdmin, FakeConsumer, FakeLog, FakeTask

SETTINGS = RestoreSettings(
    group="app", poll_ms=0, commit_interval_ms=1000, retry_backoff_ms=100, task_timeout_ms=5000, acceptable_lag=4
)
LOG, OTHER = TopicPartition("app-a-changelog", 0), TopicPartition("app-b-changelog", 1)


class Listener(RestoreListener):
    """Records its calls."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        self.events.append(("start", changelog, start, end))

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        self.events.append(("batch", changelog, batch_end, count))

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        self.events.append(("end", changelog, total))

    def on_restore_suspended(self, changelog: TopicPartition, store: str, total: int) -> None:
        self.events.append(("suspended", changelog, total))


class StandbyListener(StandbyUpdateListener):
    """Records its calls."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def on_update_start(self, changelog: TopicPartition, store: str, start: int) -> None:
        self.events.append(("start", changelog, store, start))

    def on_batch_loaded(
        self, changelog: TopicPartition, store: str, task: TaskId, batch_end: int, count: int, end: int
    ) -> None:
        self.events.append(("batch", changelog, str(task), batch_end, count, end))

    def on_update_suspended(
        self, changelog: TopicPartition, store: str, position: int, end: int, reason: SuspendReason
    ) -> None:
        self.events.append(("suspended", changelog, position, end, reason))


class Stepped(StateUpdater):
    """A state updater without its thread; :meth:`turn` runs one round."""

    def __init__(
        self, log: FakeLog, parallel: Callable[[FakeClock], ParallelRestore] | None = None, **committed: int
    ) -> None:
        self.log, self.clock, self.listener = log, FakeClock(), Listener()
        self.standby_listener = StandbyListener()
        self.admin, self.consumer = FakeAdmin(log), FakeConsumer(log)
        self.warm: list[tuple[TaskId, int, int]] = []
        super().__init__(
            "updater",
            lambda: self.consumer,
            self.admin,
            self.clock,
            SETTINGS,
            RestoreListeners(self.listener, self.standby_listener, lambda *told: self.warm.append(told)),
            parallel=None if parallel is None else parallel(self.clock),
        )

    def _start_thread(self) -> None:
        pass

    def request_ends(self) -> None:
        """Run the first step of a round: it asks for the end offsets of the changelogs."""
        self._request_ends()

    def assign_changelogs(self) -> None:
        """Run the second step of a round: the consumer gets the changelogs."""
        self._assign(self.consumer)

    def find_corrupted(self, changelog: TopicPartition) -> None:
        """Do what the consumer's answer causes that a position does not exist."""
        self._corrupted({changelog})

    def call_listeners(self) -> None:
        """Make the calls that the updater's thread makes between two rounds."""
        self._listener_calls.deliver()

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self._round(self.consumer)


def active(*changelogs: TopicPartition, **options: object) -> FakeTask:
    return FakeTask(TaskId(0, 0), changelogs, is_active=True, **options)


def standby(*changelogs: TopicPartition, **options: object) -> FakeTask:
    return FakeTask(TaskId(1, 1), changelogs, is_active=False, **options)
