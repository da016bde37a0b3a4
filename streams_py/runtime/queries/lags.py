"""Lags of the local copies of stores behind their changelogs (KIP-535)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streams_protocol.types import TopicPartition
from streams_py.ports import Admin, AdminError
from streams_py.runtime.tasks.task import Task, TaskPhase

__all__ = ["LagInfo", "store_partition_lags"]


@dataclass(frozen=True, slots=True)
class LagInfo:
    """Offsets of a changelog partition: the next offset that the local copy lacks, and the end offset.

    Under exactly-once, transaction markers count as records.
    """

    position: int
    """The next offset that the local copy lacks."""
    end: int
    """The end offset of the changelog partition."""

    @property
    def lag(self) -> int:
        """Maximum number of records that the local copy lacks."""
        return max(0, self.end - self.position)


def store_partition_lags(tasks: Iterable[Task], admin: Admin) -> dict[str, dict[int, LagInfo]]:
    """Return store -> partition -> lag of every open store with a changelog.

    A running active task writes its changelog, so its lag is 0. Partitions without a known end offset are omitted.

    Raises:
        BrokerUnavailableError: The request failed as a whole.
    """
    found: dict[TopicPartition, tuple[str, Task]] = {
        changelog: (task.stores.store_of(changelog), task)
        for task in tasks
        if task.stores.is_open
        for changelog in task.stores.changelog_partitions
    }
    positions = {changelog: task.changelog_positions.get(changelog, 0) for changelog, (_, task) in found.items()}
    ends = admin.list_offsets(sorted(found)) if found else {}
    lags: dict[str, dict[int, LagInfo]] = {}
    for changelog, end in sorted(ends.items()):
        if isinstance(end, AdminError):
            continue
        store, task = found[changelog]
        runs = task.is_active and task.state is TaskPhase.RUNNING
        lags.setdefault(store, {})[changelog.partition] = LagInfo(end if runs else positions[changelog], end)
    return lags
