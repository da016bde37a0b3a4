"""Machines that share a place of snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import LockError
from streams_py.serdes import STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.snapshots.snapshots import ChangelogNow, Snapshots
from streams_py.state.snapshots.storage import open_storage
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import key_value_store
from tests.support.waiting import until

TASK = TaskId(0, 1)

HOUR_MS = 3_600_000

CHANGELOG = TopicPartition("app-names-changelog", 1)


class Machine:
    """An instance with its own disk, and the shared storage of all instances."""

    def __init__(
        self,
        folder: Path,
        *,
        cluster: str | None = "c",
        store: str = "names",
        end: int = 1 << 40,
        ttl: int | None = None,
        transactional: bool = False,
        source_topic: str | None = None,
    ) -> None:
        self.folder = folder
        self.place = folder.parent / "place"
        self.bounds = {CHANGELOG: ChangelogNow(0, end)}
        self.hour = 0.0
        """What the clock says."""
        self.now_ms: Callable[[], int] = lambda: round(self.hour * HOUR_MS)
        self.offsets: Callable[[object], Mapping[TopicPartition, ChangelogNow]] = lambda _: self.bounds
        self.storage, self.root = open_storage(self.place.as_uri())
        self.snapshots = Snapshots(
            (self.storage, self.root),
            "app",
            lambda: cluster,
            lambda changelogs: self.offsets(changelogs),  # noqa: PLW0108  # tests replace it
            interval_s=0,
            transactional=transactional,
            now_ms=lambda: self.now_ms(),  # noqa: PLW0108
        )
        self.directory = StateDirectory(str(folder), "app", warns_of_temporary=False)
        self.directory.open()
        builder = replace(key_value_store(store, key=STRING, value=STRING, ttl=ttl), source_topic=source_topic)
        self.state = TaskState(
            TASK, [builder], StoreEnvironment(self.directory, "thread", snapshots=self.snapshots), application_id="app"
        )

    def use(self, storage: Any) -> None:
        """Use another file system from now on, for example one that hangs."""
        self.snapshots._storage = (storage, self.root)  # in real life, the same one begins to hang
        self.storage = storage

    def at(self, hour: float) -> Machine:
        self.hour = hour
        return self

    def open(self) -> Machine:
        def opened() -> bool:
            try:
                self.state.open()
            except LockError:
                return False
            return True

        until(opened, "the snapshot to be fetched")
        self.state.attach(RecordContext(), lambda topic, partition: lambda *_: None)
        return self

    def restore(self, first: int, last: int) -> Machine:
        """Records from ``first`` to ``last`` of the changelog."""
        self.state.restore(
            CHANGELOG,
            [
                MemoryRecord(CHANGELOG.topic, 1, n, b"key-%d" % n, b"value-%d" % n, timestamp_ms=1)
                for n in range(first, last + 1)
            ],
        )
        return self

    def upload(self) -> Machine:
        assert self.snapshots.upload_all() == 1
        return self

    @property
    def position(self) -> int:
        return self.state.restore_position(CHANGELOG)

    def get(self, number: int) -> Any:
        return self.state.store("names").get(f"key-{number}")  # type: ignore[union-attr]

    def manifests(self) -> list[Path]:
        return sorted((self.place / "app" / "0_1" / "manifests").iterdir())

    def files(self) -> list[Path]:
        return sorted((self.place / "app" / "0_1" / "files").iterdir())

    def close(self) -> None:
        self.state.close()
        self.directory.close()
