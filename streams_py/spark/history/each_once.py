"""An offset is one record: what an archive has twice is taken once.

Archives are often written by jobs that write some files again after a crash, and a folder of them is read whole. To
count such records twice would be wrong, and nobody would see it. Two *different* records at one offset are of two
topics of that name, one after the other: there is no order of these, so they are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from streams_py.errors import StreamsError
from streams_py.spark.history.order import Ordered

__all__ = ["each_once"]


def each_once(parts: Iterable[Ordered]) -> Iterator[Ordered]:
    """Parts that are by offset, without repetitions. StreamsError names an offset with two different records."""
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
            "the topic deleted and created anew? Give the records of only one of them"
        )
