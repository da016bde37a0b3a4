"""Removes repeated records of an archive: each offset is one record.

Jobs that write archives often write some files again after a crash, and a folder is read as a whole. Counting such
records twice would be a silent error. Two *different* records at one offset come from two topics that had the same name
one after the other. Their order is undefined, so they are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from streams_py.errors import StreamsError
from streams_py.spark.history.order import Ordered


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
