"""The check of a run's output: what happened to every input record. Made while the output is read.

The input of each key is the sequence 0, 1, 2, ... Each stage of the application counts the records of a key. So the
record with number n must appear in the output with counts n + 1, together with the unique name of the task owner that
wrote it.

At-least-once allows repeated records and counts that are too high. But even then the first appearances must be in
order. A frozen process that resumes still sends records that it had already processed, after the new owner has started.
Without transactions that cannot be prevented. But it must not have read records that were written after the new owner
opened the task.

Records with numbers below 0 were written in aborted transactions, and must never appear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_EVIDENCE_MAX: Final = 5


class Entry(NamedTuple):
    """The value of an output record."""

    number: int
    counts: tuple[int, ...]
    """Count of each stage."""
    writer: str
    """Owner of the task of the last stage: a name that is unique for each opening, ``@``, its time in ms since 1970."""


def entry_bytes(entry: Entry) -> bytes:
    """Encode an entry as ``number|count,count|writer``."""
    return f"{entry.number}|{','.join(map(str, entry.counts))}|{entry.writer}".encode()


def read_entry(value: bytes) -> Entry:
    """Decode an entry of :func:`entry_bytes`. Raises ValueError."""
    number, counts, writer = value.decode().split("|", 2)
    return Entry(int(number), tuple(map(int, counts.split(","))) if counts else (), writer)


def _opened_ms(writer: str) -> int:
    return int(writer.rpartition("@")[2])


class Violation(NamedTuple):
    """A violation, with the number of its occurrences and some examples.

    ``kind``: lost, duplicated, reordered, invented, aborted read, miscounted, double ownership, wrong state or growth.
    """

    kind: str
    times: int
    evidence: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {self.times} ({'; '.join(self.evidence)})"


@dataclass(slots=True)
class _Key:
    expected: int = 0
    """One more than the highest number seen."""
    missing: set[int] = field(default_factory=set)
    last_counts: tuple[int, ...] = ()


class History:
    """Checks all committed output records, in order within a partition. ``exact``: check for exactly-once."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._keys: dict[str, _Key] = {}
        self._writers: dict[int, str] = {}
        self._found: dict[str, list[str]] = {}
        self._times: dict[str, int] = {}
        self.seen = 0
        """Number of different records so far."""
        self.repeated = 0
        """Number of repeated records, with at-least-once."""

    def add_record(self, partition: int, offset: int, key: str, entry: Entry, fed_ms: int) -> None:
        """Check one output record. ``fed_ms``: the time of its input record."""
        place = f"{key} number {entry.number} at {partition}:{offset}"
        if entry.number < 0:
            self._add("aborted read", place)
            return
        self._check_writer(partition, entry.writer, fed_ms, place)
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
        self._check_counts(known, entry, place)

    def _repeat(self, known: _Key, entry: Entry, place: str) -> None:
        if self._exact:
            self._add("duplicated", f"{place} by {entry.writer}")
        else:
            self.repeated += 1
            known.last_counts = entry.counts

    def _check_counts(self, known: _Key, entry: Entry, place: str) -> None:
        wrong = [n for n in entry.counts if n != entry.number + 1 and (self._exact or n < entry.number + 1)]
        if wrong:
            self._add("miscounted", f"{place}: {entry.counts}, before {known.last_counts}")
        known.last_counts = entry.counts

    def _check_writer(self, partition: int, writer: str, fed_ms: int, place: str) -> None:
        now = self._writers.setdefault(partition, writer)
        if writer == now:
            return
        if _opened_ms(writer) >= _opened_ms(now):
            self._writers[partition] = writer
        elif self._exact or fed_ms > _opened_ms(now):
            self._add("double ownership", f"{place}: {writer} continues, although {now} is the owner")

    def compare_state(self, stage: int, what: str, stored: Mapping[str, int]) -> None:
        """Compare the final counts in the stores of a stage, or in its changelog, with the output."""
        name = f"{what} of stage {stage}"
        for key, known in self._keys.items():
            last = known.last_counts[stage] if stage < len(known.last_counts) else 0
            if stored.get(key) != last and (self._exact or stored.get(key, 0) < last):
                self._add("wrong state", f"{name} has {stored.get(key)} for {key}, but the output has {last}")
        for key in sorted(stored.keys() - self._keys.keys()):
            self._add("wrong state", f"{name} has {key}, which is not in the output")

    def violations(self, written: Mapping[str, int]) -> list[Violation]:
        """Return all violations at the end. ``written``: number of input records of each key."""
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
