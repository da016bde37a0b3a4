"""Sorts the records of blocks into the order in which a task processes them.

**By offset**, if a task has one topic, which is an input.

**By time**, if blocks come from several sources: topics, or tasks of an earlier stage. A live task always processes the
record with the smallest timestamp among the heads of all sources. For equal timestamps, it takes the first topic and
source. This is the order of (``place``, topic, ``source``, ``seq``), where the *place* of a record is the largest
timestamp so far in its source. A record that the task cannot deserialize is never a head, so its timestamp does not
count.

Spark sorts blocks in the same way by their first records. So when the next block starts at a place, all records before
that place have arrived and can be returned. Blocks of a source arrive in order, so about one block of every source has
to wait. Blocks by offset contain rows in Spark's order, which may be any order, so all blocks of a task may have to
wait. Above a size limit, they are sorted and wait on disk.

An archive may have repeated records. Jobs that write archives often write some files again after a crash, and a folder
is read as a whole. Counting such records twice would be a silent error. Two *different* records at one offset come from
two topics that had the same name one after the other. Their order is undefined, so they are refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from streams_py.errors import StreamsError
from streams_py.spark.history.blocks import RECORDS, records_in

ORDER: Final = ("partition", "place", "topic", "source", "seq")
"""The columns by which Spark sorts block rows."""
_AT_ONCE_BYTES: Final = 4 << 20
_HELD_BYTES_MAX: Final = 64 << 20
_ON_DISK_BYTES: Final = 128 << 10


class Ordered(NamedTuple):
    """Records of one task, in order. ``codes`` has the index of each record's (topic, source) in ``names``."""

    task: int
    names: list[tuple[str, int]]
    codes: Any
    records: Any


class _Open(NamedTuple):
    """The remaining records of a block."""

    task: int
    place: int
    topic: str
    source: int
    seq: int
    places: Any
    records: Any

    def before(self, other: _Open) -> tuple[_Open, _Open]:
        """Split the block at the first record of ``other``."""
        side: Any = "right" if self[2:4] <= other[2:4] else "left"
        count = int(np.searchsorted(self.places, other.place, side))
        return self._cut(0, count), self._cut(count, len(self.places))

    def _cut(self, first: int, end: int) -> _Open:
        return self._replace(places=self.places[first:end], records=self.records.slice(first, end - first))


def in_order(
    batches: Iterable[Any],
    *,
    by_offset: bool = False,
    at_once_bytes: int = _AT_ONCE_BYTES,
    held_bytes_max: int = _HELD_BYTES_MAX,
) -> Iterator[Ordered]:
    """Yield the records of blocks in order. Blocks must be sorted by :data:`ORDER`. A partition is a task."""
    blocks = _Streams(_opened(batches))
    waiting: list[_Open] = []
    size = kept = 0
    for block in blocks:
        if waiting and block.task != waiting[0].task:
            yield from _together(waiting)
            waiting, size, kept = [], 0, 0
        elif size >= max(at_once_bytes, 2 * kept):
            cut = [found.before(block) for found in waiting]
            yield from _together([done for done, _ in cut])
            waiting = [rest for _, rest in cut if len(rest.places)]
            size = kept = sum(found.records.nbytes for found in waiting)
            if by_offset and kept > held_bytes_max:
                blocks.add(_on_disk(waiting))
                waiting, size, kept = [], 0, 0
        waiting.append(block)
        size += block.records.nbytes
    yield from _together(waiting)


def _opened(batches: Iterable[Any]) -> Iterator[_Open]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ORDER]
        for packed, (task, place, topic, source, seq) in zip(batch.column("records"), zip(*columns), strict=True):
            records = records_in(packed)
            yield _Open(task, place, topic, source, seq, records.column("place").to_numpy(), records)


class _Streams:
    """Merges several sorted streams of blocks."""

    def __init__(self, blocks: Iterator[_Open]) -> None:
        self._heads: list[tuple[_Open, Iterator[_Open]]] = []
        self.add(blocks)

    def add(self, blocks: Iterator[_Open]) -> None:
        """Add a stream."""
        head = next(blocks, None)
        if head is not None:
            self._heads.append((head, blocks))

    def __iter__(self) -> Iterator[_Open]:
        heads = self._heads
        while heads:
            first = min(range(len(heads)), key=lambda at: heads[at][0][:5])
            head, rest = heads.pop(first)
            self.add(rest)
            yield head


def _together(parts: list[_Open]) -> Iterator[Ordered]:
    parts = sorted((part for part in parts if len(part.places)), key=lambda part: part[2:5])
    if not parts:
        return
    names = sorted({part[2:4] for part in parts})
    numbers = {name: number for number, name in enumerate(names)}
    codes = np.repeat([numbers[part[2:4]] for part in parts], [len(part.places) for part in parts])
    records = pa.Table.from_batches([part.records for part in parts]).combine_chunks()
    places = np.concatenate([part.places for part in parts])
    if (places[:-1] > places[1:]).any():
        order = np.argsort(places, kind="stable")
        codes, records = codes[order], records.take(pa.array(order))
    yield Ordered(parts[0].task, names, codes, records)


def _on_disk(parts: list[_Open]) -> Iterator[_Open]:
    """Write blocks of one task and topic to an unnamed temporary file, and yield them sorted from there."""
    (ordered,) = _together(parts)
    topic, source = ordered.names[0]
    rows = max(1, _ON_DISK_BYTES * ordered.records.num_rows // max(1, ordered.records.nbytes))
    with tempfile.TemporaryFile() as file:
        with pa.ipc.new_stream(file, RECORDS) as stream:
            stream.write_table(ordered.records, max_chunksize=rows)
        file.seek(0)
        for records in pa.ipc.open_stream(file):
            places = records.column("place").to_numpy()
            yield _Open(ordered.task, int(places[0]), topic, source, int(places[0]), places, records)


def each_once(parts: Iterable[Ordered]) -> Iterator[Ordered]:
    """Yield parts that are sorted by offset, without repetitions.

    Raises:
        StreamsError: two different records have the same offset.
    """
    before: Ordered | None = None
    for part in parts:
        seqs = part.records.column("seq").to_numpy()
        is_repeated = np.zeros(len(seqs), bool)
        is_repeated[1:] = seqs[1:] == seqs[:-1]
        if before is not None and before.task == part.task:
            is_repeated[0] = before.records.column("seq")[-1].as_py() == seqs[0]
        for at in np.flatnonzero(is_repeated).tolist():
            earlier = before.records.slice(before.records.num_rows - 1) if at == 0 and before else part.records
            _check_same(part, at, earlier.slice(max(at - 1, 0), 1))
        before = part
        if is_repeated.any():
            kept = np.flatnonzero(~is_repeated)
            part = part._replace(codes=part.codes[kept], records=part.records.take(kept))
        if part.records.num_rows:
            yield part


def _check_same(part: Ordered, at: int, earlier: Any) -> None:
    (one,), (other,) = earlier.to_pylist(), part.records.slice(at, 1).to_pylist()
    if one != other:
        topic, _ = part.names[part.codes[at]]
        raise StreamsError(
            f"the input for topic {topic} has two different records at partition {part.task}, offset {one['seq']}: was "
            "the topic deleted and created again? Pass the records of only one of these topics"
        )
