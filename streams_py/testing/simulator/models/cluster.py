"""A model of the brokers without the group coordinator: topics, racks and end offsets.

Offsets grow with time and are computed on request. A fault may affect each single request.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from streams_protocol.types import TaskId, TopicPartition
from streams_py.adapters.confluent.answers import offset_of
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicSpec
from streams_py.testing.simulator.faults.faults import Fault, OngoingFaults
from streams_py.testing.simulator.models.timeline import START_MS, Timeline
from streams_py.testing.simulator.shape import GroupShape

MADE_UP_OFFSETS: Final = (-1001, -1)
"""Offsets that a client library reports as a success when a broker fails during the request."""


class LibraryAnswer(NamedTuple):
    """An offset as the client library returns it."""

    offset: int


_TIMED_OUT = AdminError(AdminErrorKind.TIMED_OUT, "the request timed out (simulated)")
_UNKNOWN = AdminError(AdminErrorKind.UNKNOWN_TOPIC, "this topic does not exist")
_LEADERLESS = AdminError(AdminErrorKind.LEADER_NOT_AVAILABLE, "no leader yet (simulated)")
_EXISTS = AdminError(AdminErrorKind.ALREADY_EXISTS, "this topic exists already")
_FATAL = AdminError(AdminErrorKind.OTHER, "not authorised (simulated)")


class SimulatedCluster:
    """Topics and their offsets. ``occurred`` counts the requests that the simulator made fail."""

    def __init__(
        self, timeline: Timeline, rng: random.Random, shape: GroupShape, ongoing_faults: OngoingFaults
    ) -> None:
        self._timeline = timeline
        self._rng = rng
        self._shape = shape
        self._ongoing_faults = ongoing_faults
        self.partitions = dict(shape.partitions)
        self._infos: dict[str, tuple[PartitionInfo, ...]] = {}
        self._bulk: dict[TopicPartition, int] = {}
        self._base = {True: rng.choice((0, 1_000, 50_000)), False: 0}
        self.created: dict[str, int] = {}
        self.occurred = 0
        self._made_up = random.Random(f"made up {shape}")
        self._subtopology_of = {
            name: number for number, sub in shape.metadata.subtopologies.items() for name in sub.changelog_topics
        }

    # -- metadata ------------------------------------------------------------------------------------------------

    def metadata(self, names: Iterable[str]) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the existing topics among ``names``."""
        missing: Collection[str] = ()
        if self._ongoing_faults.occurs(Fault.SOURCE_MISSING):
            self.occurred += 1
            missing = sorted(self._shape.partitions)[:1]
        return {
            name: self._described(name) for name in sorted(names) if name in self.partitions and name not in missing
        }

    def add_partitions(self, topic: str, more: int) -> None:
        """Add ``more`` partitions to a topic."""
        self.partitions[topic] += more
        self._infos.pop(topic, None)

    def _described(self, name: str) -> tuple[PartitionInfo, ...]:
        known = self._infos.get(name)
        if known is None:
            racks = self._shape.broker_racks
            start = sum(name.encode()) % len(racks)
            known = tuple(
                PartitionInfo(
                    name,
                    p,
                    (start + p) % len(racks),
                    ((start + p) % len(racks),),
                    frozenset({racks[(start + p) % len(racks)]}),
                )
                for p in range(self.partitions[name])
            )
            self._infos[name] = known
        return known

    # -- offsets -------------------------------------------------------------------------------------------------

    def end_offset(self, tp: TopicPartition) -> int:
        """Return the current end offset of a changelog partition."""
        grown = (self._timeline.now_ms - START_MS) * self._shape.drift_records_per_s // 1000
        return self._base[tp.topic not in self.created] + grown + self._bulk.get(tp, 0)

    def end_of_task(self, task: TaskId) -> int:
        """Return the sum of the end offsets of a task's changelogs."""
        names = self._shape.metadata.subtopologies[task.subtopology].changelog_topics
        return sum(self.end_offset(TopicPartition(name, task.partition)) for name in names)

    def bulk(self, records: int, pick: int) -> None:
        """Append many records to one partition of one changelog."""
        changelogs = sorted(name for name in self._subtopology_of if name in self.partitions)
        if changelogs:
            name = changelogs[pick % len(changelogs)]
            tp = TopicPartition(name, pick // 7 % self.partitions[name])
            self._bulk[tp] = self._bulk.get(tp, 0) + records

    # -- administrative requests -----------------------------------------------------------------------------------

    def describe_topics(self, names: Collection[str]) -> dict[str, tuple[PartitionInfo, ...] | AdminError]:
        """Answer DescribeTopics."""
        if self._ongoing_faults.occurs(Fault.DESCRIBE_FAILS):
            self.occurred += 1
            error = self._rng.choice((_TIMED_OUT, _TIMED_OUT, _LEADERLESS, _LEADERLESS, _UNKNOWN, _FATAL))
            some = self._some(names)
            return {name: error if name in some else self._describe_one(name) for name in names}
        return {name: self._describe_one(name) for name in names}

    def _describe_one(self, name: str) -> tuple[PartitionInfo, ...] | AdminError:
        return self._described(name) if name in self.partitions else _UNKNOWN

    def create_topics(self, specs: Collection[TopicSpec]) -> dict[str, AdminError | None]:
        """Answer CreateTopics. After a timeout the topic may exist or not."""
        fails = self._ongoing_faults.occurs(Fault.CREATE_FAILS)
        some = self._some([spec.name for spec in specs]) if fails else ()
        results: dict[str, AdminError | None] = {}
        for spec in specs:
            if spec.name in some:
                self.occurred += 1
                error = self._rng.choice((_TIMED_OUT, _TIMED_OUT, _EXISTS, _FATAL))
                results[spec.name] = error
                if error is _TIMED_OUT and self._rng.random() < 0.5:
                    self._make(spec)
            elif spec.name in self.partitions:
                results[spec.name] = _EXISTS
            else:
                self._make(spec)
                results[spec.name] = None
        return results

    def _make(self, spec: TopicSpec) -> None:
        self.partitions.setdefault(spec.name, spec.partitions)
        self.created.setdefault(spec.name, self._timeline.now_ms)

    def list_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | AdminError]:
        """Answer a request for end offsets."""
        if self._ongoing_faults.occurs(Fault.OFFSETS_MADE_UP, self._made_up):
            self.occurred += 1
            half = set(self._made_up.sample(sorted(partitions), k=(len(partitions) + 1) // 2))
            made_up = self._made_up.choice(MADE_UP_OFFSETS)
            offsets = {tp: made_up if tp in half else self.end_offset(tp) for tp in partitions}
            if self._made_up.random() < 0.5:  # the leader itself must detect the invalid offsets
                return offsets
            return {tp: offset_of(LibraryAnswer(offset)) for tp, offset in offsets.items()}
        if self._ongoing_faults.occurs(Fault.OFFSETS_FAIL):
            self.occurred += 1
            if self._rng.random() < 0.5:
                raise BrokerUnavailableError(_TIMED_OUT.message)
            some = {str(tp) for tp in self._some([str(tp) for tp in partitions])}
            return {tp: _TIMED_OUT if str(tp) in some else self.end_offset(tp) for tp in partitions}
        return {tp: self.end_offset(tp) for tp in partitions}

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """Answer a request for committed offsets."""
        if self._ongoing_faults.occurs(Fault.COMMITTED_FAIL):
            self.occurred += 1
            raise BrokerUnavailableError(_TIMED_OUT.message)
        return {tp: self.end_offset(tp) for tp in partitions}

    def _some(self, names: Collection[str]) -> Collection[str]:
        if self._rng.random() < 0.5:
            return names
        return [name for name in names if self._rng.random() < 0.5] or names
