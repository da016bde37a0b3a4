"""The rebalances and the restore progress in a group's events topic.

Its memory is bounded for any topic content.

Java applications write no events. Python applications write them only if configured to. The page works without them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from streams_protocol import DecodeError
from streams_protocol.types import TopicPartition
from streams_py.errors import OffsetOutOfRangeError
from streams_py.events.codec import OtherVersion, decode_event
from streams_py.events.model import Event, Eviction, RebalanceHeader, TaskEvent
from streams_py.ports import BEGINNING, Admin, AdminError, RecordConsumer

_REBALANCES_MAX: Final = 60
_RESTORES_MAX: Final = 10_000
_RECORDS_BACK: Final = 5_000
_RECORDS_PER_READ: Final = 5_000
_FOLLOWS_MS: Final = 60_000
"""Maximum time from the removal of dead members to the end of the rebalance that it triggers, in ms."""
_PROBLEM_TEXT_MAX: Final = 300
_ENDS_RESTORE: Final = frozenset({"restored", "closed", "lost", "corrupted", "running", "revoked"})


class History:
    """The state of rebalances and restores after a sequence of events."""

    def __init__(self) -> None:
        self._rebalances: deque[dict[str, Any]] = deque(maxlen=_REBALANCES_MAX)
        self._evictions: deque[tuple[int, str]] = deque(maxlen=_REBALANCES_MAX)
        self._restores: dict[tuple[str, str], dict[str, Any]] = {}

    def take(self, value: bytes | None, group: str) -> None:
        """Process one record's value. Ignores values that are not events of the group."""
        try:
            event = decode_event(value)
        except DecodeError:
            return
        if isinstance(event, OtherVersion) or event.envelope.group != group:
            return
        match event.body:
            case RebalanceHeader():
                self._rebalances.append(_rebalance(event, event.body))
            case Eviction():
                self._evictions.append((event.envelope.at_ms, _eviction(event.body)))
            case TaskEvent():
                self._task(event.body)
            case _:
                return

    def _task(self, event: TaskEvent) -> None:
        at = (str(event.task), event.member)
        if event.event in ("restore_started", "restore_progress"):
            before = self._restores.get(at, {"done": 0, "total": None})
            if len(self._restores) < _RESTORES_MAX or at in self._restores:
                self._restores[at] = {
                    "done": event.records_done if event.records_done is not None else before["done"],
                    "total": event.records_total if event.records_total is not None else before["total"],
                }
        elif event.event in _ENDS_RESTORE:
            self._restores.pop(at, None)

    @property
    def rebalances(self) -> list[dict[str, Any]]:
        """The newest rebalances, newest first.

        The removal of dead members is a trigger of the next rebalance. The partitions of the topic may be read in any
        order, so the times decide.
        """
        ordered = sorted(self._rebalances, key=lambda rebalance: int(rebalance["at"]))
        times = [int(rebalance["at"]) for rebalance in ordered]
        removals: dict[int, list[str]] = {}
        for at, text in sorted(self._evictions):
            place = bisect_left(times, at)
            if place < len(times) and times[place] - at <= _FOLLOWS_MS:
                removals.setdefault(place, []).append(text)
        shown = [
            {**rebalance, "trigger": [*rebalance["trigger"], *removals.get(place, ())]}
            for place, rebalance in enumerate(ordered)
        ]
        return shown[::-1]

    def restores(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return running restores of present members, by task.

        ``labels`` are the names of these members.
        """
        return [
            {"task": task, "member": labels[member], **progress}
            for (task, member), progress in sorted(self._restores.items())
            if member in labels
        ]


def _eviction(body: Eviction) -> str:
    process = "a process" if body.pid is None else f"process {body.pid}"
    return f"removed dead members of {process}"


def _rebalance(event: Event, header: RebalanceHeader) -> dict[str, Any]:
    return {
        "at": event.envelope.at_ms,
        "generation": header.generation,
        "trigger": list(header.trigger),
        "assignor": header.assignor.name,
        "clients": header.counts.get("clients"),
        "moved": header.counts.get("moved"),
        "withheld": header.counts.get("withheld"),
        "warmup": header.counts.get("warmup"),
        "us": header.duration_us.get("total"),
        "outcome": header.outcome,
        "error": None if header.error is None else header.error.text[:_PROBLEM_TEXT_MAX],
    }


class EventTail:
    """Reads the newest records of the events topic, then new ones. Used by one thread only."""

    def __init__(self, topic: str, group: str, history: History) -> None:
        self.topic = topic
        self._group = group
        self._history = history
        self._consumer: RecordConsumer | None = None
        self._read: set[TopicPartition] = set()

    def follow(self, admin: Admin, make_consumer: Callable[[], RecordConsumer], partitions: int) -> None:
        """Also read these partitions from now on. Partitions that are read already continue.

        Does nothing without new partitions.
        """
        wanted = {TopicPartition(self.topic, number) for number in range(partitions)} - self._read
        if not wanted:
            return
        ends = admin.list_offsets(sorted(wanted))
        firsts = admin.list_offsets(sorted(wanted), earliest=True)
        positions: dict[TopicPartition, int | None] = dict.fromkeys(self._read)
        for at in wanted:
            end, first = ends[at], firsts[at]
            if isinstance(end, AdminError) or isinstance(first, AdminError):
                positions[at] = BEGINNING
            else:
                positions[at] = max(first, end - _RECORDS_BACK)
        if self._consumer is None:
            self._consumer = make_consumer()
        self._consumer.assign(positions)
        self._read |= wanted

    def read(self, seconds_max: float) -> None:
        """Process new records for at most ``seconds_max``."""
        if self._consumer is None:
            return
        until = time.monotonic() + seconds_max
        taken = 0
        while taken < _RECORDS_PER_READ and time.monotonic() < until:
            try:
                records = self._consumer.poll(500, 20)
            except OffsetOutOfRangeError:
                for at in self._read:
                    self._consumer.seek(at, BEGINNING)
                return
            if not records:
                return
            taken += len(records)
            for record in records:
                self._history.take(record.value(), self._group)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
