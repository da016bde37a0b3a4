"""Restore of a store on an empty disk from a snapshot, compared with a replay of the same records.

    python -m benchmarks.snapshots RECORDS    (seconds: from the snapshot, replayed)

One task's store is on disk. The snapshot is in a local folder and lacks the last 1 % of the records, which are replayed
after it. It uses no broker: the records to replay are already in memory, so the replay is as fast as possible.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.own_process import numbers_of
from benchmarks.table import Goal, Row

_RECORDS = 2_000_000
_BATCH = 5_000


def snapshot_rows(runs: int, tick: Callable[[str], None]) -> Iterator[Row]:
    """Measure the seconds until the state is complete."""
    fetched: list[float] = []
    replayed: list[float] = []
    for run in range(runs):
        tick(f"state of {_RECORDS:,} records from a snapshot, run {run + 1}")
        from_snapshot, from_records = numbers_of("snapshots", str(_RECORDS), count=2)
        fetched.append(from_snapshot)
        replayed.append(from_records)
    work = f"empty disk, store of {_RECORDS:,} keys, from a snapshot"
    yield Row(work, "replayed", "s", tuple(fetched), tuple(replayed), Goal("<= 1/8", ratio_max=0.125))


def run(count: int, folder: str) -> tuple[float, float]:
    """Return (seconds from the snapshot, seconds of the replay)."""
    from streams_protocol.types import TaskId, TopicPartition
    from streams_py import serdes
    from streams_py.errors import LockError
    from streams_py.state.directory.state_directory import StateDirectory
    from streams_py.state.snapshots.snapshots import Snapshots
    from streams_py.state.snapshots.storage import open_storage
    from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
    from streams_py.testing.memory_clients import MemoryRecord
    from streams_py.topology.declare.nodes import RecordContext
    from streams_py.topology.declare.stores import key_value_store

    changelog = TopicPartition("app-names-changelog", 0)
    records = [
        MemoryRecord(changelog.topic, 0, n, b"key-%09d" % (n * 7919 % count), os.urandom(60), timestamp_ms=1)
        for n in range(count)
    ]

    def machine(name: str, *, with_snapshots: bool) -> tuple[TaskState, Snapshots]:
        place = open_storage((Path(folder) / "place").as_uri())
        snapshots = Snapshots(place, "app", lambda: None, lambda _: {}, interval_s=0)
        directory = StateDirectory(os.path.join(folder, name), "app")
        directory.open()
        state = TaskState(
            TaskId(0, 0),
            [key_value_store("names", key=serdes.STRING, value=serdes.BYTES)],
            StoreEnvironment(directory, "thread", snapshots=snapshots if with_snapshots else None),
            application_id="app",
        )
        return state, snapshots

    def fill(state: TaskState, up_to: int) -> None:
        while True:
            try:
                state.open()
                break
            except LockError:
                time.sleep(0.01)
        while (first := max(0, state.restore_position(changelog))) < up_to:
            state.restore(changelog, records[first : min(first + _BATCH, up_to)])

    maker, snapshots = machine("maker", with_snapshots=True)
    fill(maker, count * 99 // 100)
    maker.attach(RecordContext(), lambda topic, partition: lambda *_: None)
    if snapshots.upload_all() != 1:
        raise SystemExit("uploading the snapshot failed")
    maker.close()
    took = []
    for name, with_snapshots in (("fetched", True), ("replayed", False)):
        state, _ = machine(name, with_snapshots=with_snapshots)
        began = time.perf_counter()
        fill(state, count)
        took.append(time.perf_counter() - began)
        if state.restore_position(changelog) != count:
            raise SystemExit(f"{name}: not complete")
        state.close()
    return took[0], took[1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as made:
        print(*run(int(sys.argv[1]), made))
