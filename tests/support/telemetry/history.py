"""Histories of a group, as records of its events topic."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streams_protocol.types import TaskId
from streams_py.events.codec import decode_event, encode_event
from streams_py.events.model import Body, ClientPart, Envelope, Event, RebalanceHeader, Sample, TaskEvent, TasksPart
from streams_py.ports import MemberSubscription
from streams_py.telemetry.fold import GroupFold, Output, day_of
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.events.kit import Recorder
from tests.support.leader.kit import COUNT, FakeCluster, pid

START_MS = 1_700_006_400_000  # 2023-11-15T00:00:00Z
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


class Stored(NamedTuple):
    """A record in the topic."""

    append_ms: int
    offset: int
    value: bytes


def cluster(partitions: int = 4, end: int = 1_000) -> FakeCluster:
    return FakeCluster({"in": partitions, "app-counts-changelog": partitions}, end)


@dataclass
class History:
    """Writes events; ``now_ms`` is the broker's time, ``clock_off_ms`` how wrong each process's clock is."""

    recorder: Recorder = field(default_factory=lambda: Recorder(num_standby_replicas=0))
    now_ms: int = START_MS
    delay_ms: int = 20
    clock_off_ms: dict[str, int] = field(default_factory=dict)
    records: list[Stored] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    """Processes that were started again, how often."""

    def later(self, ms: int) -> None:
        self.now_ms += ms

    def envelope(self, process: int) -> Envelope:
        name = str(pid(process))
        seq = self.seqs[name] = self.seqs.get(name, -1) + 1
        sent_ms = self.now_ms - self.delay_ms
        return Envelope(
            group="app",
            process=name,
            run=f"run-{process}{'-again' * self.starts.get(process, 0)}",
            seq=seq,
            at_ms=sent_ms + self.clock_off_ms.get(name, 0),
            mono_us=(sent_ms - START_MS + 10_000_000) * 1_000,
            dropped=0,
        )

    def store(self, event: Event) -> None:
        offset = self.records[-1].offset + 1 if self.records else 0
        self.records.append(Stored(self.now_ms, offset, encode_event(event).value))

    def rebalance(
        self,
        members: Mapping[str, MemberSubscription],
        topology: TopologyMetadata = COUNT,
        on: FakeCluster | None = None,
        *,
        leader: int = 1,
    ) -> list[Event]:
        """An assign step; all of its records, appended at this moment."""
        self.recorder.assign(members, topology, on if on is not None else cluster())
        envelope = self.envelope(leader)
        events = []
        for record in self.recorder.drafts[-1].records(envelope):
            event = decode_event(record.value)
            assert isinstance(event, Event)
            events.append(event)
            self.store(event)
        return events

    def task(self, process: int, task: str, event: str, *, role: str = "active", **detail: Any) -> None:
        generation = self.recorder.generation - 1
        body = TaskEvent(
            task=TaskId.parse(task), role=role, member=f"m{process}", generation=generation, event=event, **detail
        )
        self.store(Event(self.envelope(process), body))

    def last_record(self, process: int, task: str, *, ago_ms: int = 0) -> None:
        envelope = self.envelope(process)
        self.seqs[envelope.process] -= 1
        self.task(process, task, "last_record", last_mono_us=envelope.mono_us - ago_ms * 1_000)

    def sample(self, process: int, **columns: Sequence[int | None]) -> None:
        tasks = [TaskId(0, number) for number in range(len(next(iter(columns.values()))))]
        none = [None] * len(tasks)
        given = dict.fromkeys(("input_lag", "records", "busy_us", "commit_age_ms"), none) | columns
        self.store(Event(self.envelope(process), Sample(tasks=tasks, **given)))


class Placed(NamedTuple):
    """A record in the order of the fold."""

    sort_ms: int
    sort_offset: int
    part: int
    offset: int
    append_ms: int
    value: bytes


def in_order(records: Iterable[Stored]) -> list[Placed]:
    """By offset; parts of a rebalance at the place of its header, the rest where it is."""
    parsed: list[tuple[Placed, Body | None]] = []
    headers: dict[str, Placed] = {}
    latest_ms = 0
    for record in sorted(records, key=lambda record: record.offset):
        latest_ms = max(latest_ms, record.append_ms)
        event = decode_event(record.value)
        body = event.body if isinstance(event, Event) else None
        placed = Placed(latest_ms, record.offset, 0, record.offset, record.append_ms, record.value)
        parsed.append((placed, body))
        if isinstance(body, RebalanceHeader):
            headers.setdefault(body.rebalance_id, placed)
    found = []
    for placed, body in parsed:
        if isinstance(body, RebalanceHeader | TasksPart | ClientPart):
            place = headers.get(body.rebalance_id, placed)
            found.append(placed._replace(sort_ms=place.sort_ms, sort_offset=place.sort_offset, part=body.part))
        else:
            found.append(placed)
    return sorted(found)


def fold(records: Iterable[Stored], state: str | None = None, *, from_day: int | None = None) -> list[Output]:
    """Everything in one pass, or the days from ``from_day`` on, starting from a state."""
    made = GroupFold(state)
    outputs: list[Output] = []
    for placed in in_order(records):
        if from_day is None or day_of(placed.sort_ms) >= from_day:
            outputs += made.feed(placed.value, placed.sort_ms, placed.append_ms)
    return outputs + list(made.finish())


def rows(outputs: Iterable[Output], table: str, **equal: Any) -> list[dict[str, Any]]:
    found = [output.row for output in outputs if output.table == table]
    return [row for row in found if all(row[key] == value for key, value in equal.items())]


def shuffled(records: Sequence[Stored], seed: int) -> list[Stored]:
    result = list(records)
    random.Random(seed).shuffle(result)
    return result


def moved(record: Stored, append_ms: int, offset: int) -> Stored:
    """The same record, appended at another time."""
    return record._replace(append_ms=append_ms, offset=offset)


def without_reasons(event: Event) -> Event:
    """A client part as a newer or older writer might send it."""
    assert isinstance(event.body, ClientPart)
    return replace(event, body=replace(event.body, reasons={}))
