"""Adapters through which a transport reports to a stream thread and reads its offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streams_protocol.types import TaskId
from streams_py.errors import StreamsError
from streams_py.member.tasks import HostView, Progress
from streams_py.ports import RecordProducer
from streams_py.runtime.queries.hosts import StoreHosts
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.task_factory import offset_sums
from streams_py.runtime.tasks.task_table import TaskTable
from streams_py.runtime.thread.stream_thread import StreamThread
from streams_py.state.directory.state_directory import StateDirectory


@dataclass(frozen=True, slots=True)
class ThreadSignals:
    """Passes the messages of a transport to the producer, the hosts and the thread (``MemberSignals``)."""

    thread: StreamThread
    producer: RecordProducer
    store_hosts: StoreHosts

    def halt(self, reason: str) -> None:
        """Prevent the thread from writing anything, because it is stuck."""
        self.producer.halt(reason)

    def hold(self, reason: str | None) -> None:
        """Hold the thread's writes while the membership is unconfirmed."""
        self.producer.hold(reason)

    def hosts(self, hosts: HostView) -> None:
        """Use these locations for interactive queries."""
        self.store_hosts.show(hosts)

    def report(self, error: StreamsError) -> None:
        """Note an error that does not stop the thread."""
        self.thread.report(error)

    def stop_application(self) -> None:
        """Stop this instance, on the stream thread, because that may call the application's listeners."""
        self.thread.inbox.post(lambda _: self.thread.owner.stop_with_application())


@dataclass(frozen=True, slots=True)
class ThreadReport:
    """The offsets and the progress of a thread's tasks (``TaskReport``)."""

    thread: str
    table: TaskTable
    updater: StateUpdater
    directory: StateDirectory

    def offset_sums(self) -> Mapping[TaskId, int]:
        """Return the offset sums of the tasks, and of the task directories that it could lock."""
        return offset_sums(self.table.all(), self.directory, self.thread)

    def standby_progress(self) -> Mapping[TaskId, Progress]:
        """Return the last measurement of the state updater."""
        return self.updater.standbys
