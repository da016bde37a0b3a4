"""What became of every record: the judgement of a run, made while its output is read.

Written is a sequence 0, 1, 2, ... per key. Each stage of the application counts the records of a key, so a record with
number n comes out with the counts n + 1, written by whoever owned the task then: a name that no other owner has.
At-least-once allows repetition and counting too much; what must hold even then is that first appearances are in order.
A frozen process that wakes up still sends what was on its way, after its successor has begun. Nobody can prevent that
without transactions; but what was fed after the successor has opened the task it must not have read.
Numbers below 0 were written in transactions that were aborted: nobody may ever see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["Entry", "History", "Violation", "entry_bytes", "read_entry"]

_EVIDENCE_MAX: Final = 5


class Entry(NamedTuple):
    """The value of an output record."""

    number: int
    counts: tuple[int, ...]
    """By stage."""
    writer: str
    """Of the last stage: who had opened the task, different at each opening, ``@``, and when: ms since the epoch."""


def entry_bytes(entry: Entry) -> bytes:
    """``number|count,count|writer``."""
    return f"{entry.number}|{','.join(map(str, entry.counts))}|{entry.writer}".encode()


def read_entry(value: bytes) -> Entry:
    """The opposite of :func:`entry_bytes`; ValueError."""
    number, counts, writer = value.decode().split("|", 2)
    return Entry(int(number), tuple(map(int, counts.split(","))) if counts else (), writer)


def _opened_ms(writer: str) -> int:
    return int(writer.rpartition("@")[2])


class Violation(NamedTuple):
    """``kind``: lost, duplicated, reordered, invented, aborted read, miscounted, double ownership or wrong state."""

    kind: str
    times: int
    evidence: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {self.times} ({'; '.join(self.evidence)})"


@dataclass(slots=True)
class _Key:
    expected: int = 0
    """One above the highest number seen."""
    missing: set[int] = field(default_factory=set)
    last_counts: tuple[int, ...] = ()


class History:
    """Hears all committed output records, those of a partition in their order. ``exact``: exactly-once was promised."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._keys: dict[str, _Key] = {}
        self._writers: dict[int, str] = {}
        self._found: dict[str, list[str]] = {}
        self._times: dict[str, int] = {}
        self.seen = 0
        """Different records, so far."""
        self.repeated = 0
        """At-least-once: records that came out again."""

    def hear(self, partition: int, offset: int, key: str, entry: Entry, fed_ms: int) -> None:
        """One output record; ``fed_ms``: the time of its input record."""
        place = f"{key} number {entry.number} at {partition}:{offset}"
        if entry.number < 0:
            self._add("aborted read", place)
            return
        self._hear_writer(partition, entry.writer, fed_ms, place)
        known = self._keys.setdefault(key, _Key())
        number, expected = entry.number, known.expected
        if number < expected and number not in known.missing:
            self._repeat(known, entry, place)
            return
        self.seen += 1
        if number < expected:
            known.missing.discard(number)
            self._add("reordered", f"{place}, after {expected - 1}")
        else:
            known.missing.update(range(expected, number))
            known.expected = number + 1
        self._hear_counts(known, entry, place)

    def _repeat(self, known: _Key, entry: Entry, place: str) -> None:
        if self._exact:
            self._add("duplicated", f"{place} by {entry.writer}")
        else:
            self.repeated += 1
            known.last_counts = entry.counts

    def _hear_counts(self, known: _Key, entry: Entry, place: str) -> None:
        wrong = [n for n in entry.counts if n != entry.number + 1 and (self._exact or n < entry.number + 1)]
        if wrong:
            self._add("miscounted", f"{place}: {entry.counts}, before {known.last_counts}")
        known.last_counts = entry.counts

    def _hear_writer(self, partition: int, writer: str, fed_ms: int, place: str) -> None:
        now = self._writers.setdefault(partition, writer)
        if writer == now:
            return
        if _opened_ms(writer) >= _opened_ms(now):
            self._writers[partition] = writer
        elif self._exact or fed_ms > _opened_ms(now):
            self._add("double ownership", f"{place}: {writer} goes on, although {now} had taken over")

    def compare_state(self, stage: int, what: str, stored: Mapping[str, int]) -> None:
        """What the stores of a stage, or the fold of its changelog, say at the end: the last count of each key."""
        name = f"{what} of stage {stage}"
        for key, known in self._keys.items():
            last = known.last_counts[stage] if stage < len(known.last_counts) else 0
            if stored.get(key) != last and (self._exact or stored.get(key, 0) < last):
                self._add("wrong state", f"{name} has {stored.get(key)} for {key}, and the output {last}")
        for key in sorted(stored.keys() - self._keys.keys()):
            self._add("wrong state", f"{name} has {key}, which is in no output")

    def violations(self, written: Mapping[str, int]) -> list[Violation]:
        """What is wrong when ``written`` records of each key, numbers from 0 on, have been processed."""
        for key, count in written.items():
            known = self._keys.get(key, _Key())
            lost = sorted(n for n in known.missing if n < count) + list(range(known.expected, count))
            for number in lost:
                self._add("lost", f"{key} number {number}")
            if known.expected > count:
                self._add("invented", f"{key} number {known.expected - 1} of {count}")
        for key in self._keys.keys() - written.keys():
            self._add("invented", key)
        return [Violation(kind, self._times[kind], tuple(found)) for kind, found in sorted(self._found.items())]

    def _add(self, kind: str, evidence: str) -> None:
        self._times[kind] = self._times.get(kind, 0) + 1
        found = self._found.setdefault(kind, [])
        if len(found) < _EVIDENCE_MAX:
            found.append(evidence)
