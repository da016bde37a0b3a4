"""What a flow costs, and whether it is one."""

from __future__ import annotations

from collections.abc import Sequence

from streams_py.assignment.rack.flow import Arc


def flow_cost(supply: Sequence[int], arcs: Sequence[Arc], flow: Sequence[int]) -> int:
    """What a flow costs; ValueError when it is none: over capacity, or a node does not pass on what it gets."""
    left = list(supply)
    for arc, units in zip(arcs, flow, strict=True):
        if not 0 <= units <= arc.capacity:
            raise ValueError(f"{arc} cannot carry {units}")
        left[arc.tail] -= units
        left[arc.head] += units
    if any(left):
        raise ValueError(f"node {next(node for node, units in enumerate(left) if units)} is not balanced")
    return sum(arc.cost * units for arc, units in zip(arcs, flow, strict=True))
