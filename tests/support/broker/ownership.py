"""Checks of who owned a partition when, from the traces of instances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Trace = tuple[float, int, str, int, int, int]


def check_single_owner(traces: Sequence[Trace]) -> None:
    """No partition is read by two members in one generation, and nothing is read twice."""
    readers: dict[tuple[int, int], set[tuple[int, str]]] = defaultdict(set)
    for _, pid, thread, generation, partition, _ in traces:
        if generation >= 0:
            readers[generation, partition].add((pid, thread))
    twice = {where: who for where, who in readers.items() if len(who) > 1}
    assert not twice


def check_in_order(traces: Sequence[Trace], partitions: set[int]) -> None:
    """Every offset of every partition once, ascending: a clean hand-over loses and repeats nothing."""
    for partition in partitions:
        offsets = [trace[5] for trace in traces if trace[4] == partition]
        assert offsets == list(range(len(offsets)))
