"""The tasks and changelogs of a test driver, whose public methods show topics without partitions."""

from __future__ import annotations

from collections.abc import Mapping

from streams_protocol.types import TopicPartition
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.testing.driver import TopologyTestDriver
from streams_py.testing.memory_clients import MemoryRecord


def tasks_of(driver: TopologyTestDriver) -> list[ActiveTask]:
    return list(driver._tasks.tasks.values())  # users of the driver have no use for tasks


def written_by(driver: TopologyTestDriver) -> Mapping[TopicPartition, list[MemoryRecord]]:
    """Return all records of all topics, changelogs included, by partition."""
    return driver._tasks.producer.records  # the driver shows the records of a topic without their partitions
