"""Cost and validity of a flow."""

from __future__ import annotations

from collections.abc import Sequence

from streams_py.assignment.rack.flow import Arc


def flow_cost(supply: Sequence[int], arcs: Sequence[Arc], flow: Sequence[int]) -> int:
    """Return the cost of a flow.

    Raises:
        ValueError: it exceeds a capacity, or a node does not pass on what it receives.
    """
    left = list(supply)
    for arc, units in zip(arcs, flow, strict=True):
        if not 0 <= units <= arc.capacity:
            raise ValueError(f"{arc} cannot carry {units}")
        left[arc.tail] -= units
        left[arc.head] += units
    if any(left):
        raise ValueError(f"node {next(node for node, units in enumerate(left) if units)} is not balanced")
    return sum(arc.cost * units for arc, units in zip(arcs, flow, strict=True))
