"""The flow solver: scenarios with their ids, and proofs of optimality on random networks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.assignment.rack.flow import Arc, min_cost_flow
from tests.support.assignment.flow_cost import flow_cost

# id: arcs (tail, head, capacity, cost, given flow), cost before, cost after, arcs that must carry flow in the end
F1 = [(4, 0, 1, 0, 1), (4, 2, 1, 0, 1), (0, 1, 1, 3, 1), (0, 3, 1, 1, 0), (2, 1, 1, 1, 0), (2, 3, 1, 2, 1),
      (1, 5, 1, 0, 1), (3, 5, 1, 0, 1)]  # fmt: skip
F2 = [(5, 0, 1, 0, 1), (5, 1, 1, 0, 1), (0, 2, 1, 1, 0), (0, 3, 1, 1, 0), (0, 4, 1, 10, 1), (1, 2, 1, 1, 0),
      (1, 3, 1, 10, 1), (1, 4, 1, 1, 0), (2, 6, 0, 0, 0), (3, 6, 1, 0, 1), (4, 6, 1, 0, 1)]  # fmt: skip
F3 = [(0, 1, 1, 2, 1), (0, 2, 1, 1, 0), (0, 3, 1, 1, 0), (0, 4, 1, 1, 0), (1, 5, 1, 1, 1), (2, 5, 1, 1, 0),
      (3, 5, 1, 1, 0), (4, 5, 1, 1, 0)]  # fmt: skip
F7 = [(0, 1, 1, 1, 1)]


def supply_of(rows: list[tuple[int, int, int, int, int]]) -> list[int]:
    """Return the supplies that the given flow ships."""
    supply = [0] * (1 + max(max(row[:2]) for row in rows))
    for tail, head, _, _, flow in rows:
        supply[tail] += flow
        supply[head] -= flow
    return supply


def arcs_of(rows: list[tuple[int, int, int, int, int]]) -> list[Arc]:
    return [Arc(tail, head, cost, capacity) for tail, head, capacity, cost, _ in rows]


@pytest.mark.parametrize(
    ("rows", "before", "after", "used"),
    [
        pytest.param(F1, 5, 2, {(0, 3), (2, 1)}, id="F1"),
        pytest.param(F2, 20, 2, {(0, 3), (1, 4)}, id="F2"),
        pytest.param(F3, 3, 2, {(0, 2)}, id="F3"),
        pytest.param(F7, 1, 1, {(0, 1)}, id="F7"),
    ],
)
def test_flow_is_the_cheapest(
    rows: list[tuple[int, int, int, int, int]], before: int, after: int, used: set[tuple[int, int]]
) -> None:
    supply, arcs = supply_of(rows), arcs_of(rows)
    assert flow_cost(supply, arcs, [row[4] for row in rows]) == before
    flow = min_cost_flow(supply, arcs)
    assert flow_cost(supply, arcs, flow) == after
    assert used <= {(arc.tail, arc.head) for arc, units in zip(arcs, flow) if units}


def test_choice_does_not_depend_on_the_order_of_arcs() -> None:  # F3
    chance = random.Random(3)
    supply, arcs = supply_of(F3), arcs_of(F3)
    for _ in range(20):
        chance.shuffle(arcs)
        flow = min_cost_flow(supply, arcs)
        assert {(arc.tail, arc.head) for arc, units in zip(arcs, flow) if units} == {(0, 2), (2, 5)}


@pytest.mark.parametrize(
    ("capacities", "most"),
    [
        pytest.param([[100]], 100, id="F4"),
        pytest.param([[10, 5, 2]] * 3, 6, id="F5"),
        pytest.param([[1, 9], [2, 9], [3, 9]], 6, id="F6"),
    ],
)
def test_everything_that_fits_is_shipped_and_no_more(capacities: list[list[int]], most: int) -> None:  # F8
    arcs, nodes = [], 2  # from node 0 to node 1 along chains
    for chain in capacities:
        stops = [0, *range(nodes, nodes + len(chain) - 1), 1]
        nodes += len(chain) - 1
        arcs += [Arc(tail, head, 0, room) for tail, head, room in zip(stops, stops[1:], chain)]
    flow = min_cost_flow([most, -most] + [0] * (nodes - 2), arcs)
    assert flow_cost([most, -most] + [0] * (nodes - 2), arcs, flow) == 0
    with pytest.raises(ValueError, match="cannot be shipped"):
        min_cost_flow([most + 1, -most - 1] + [0] * (nodes - 2), arcs)


@pytest.mark.parametrize(
    ("supply", "arc", "message"),
    [
        ([1, -1], Arc(0, 1, 0, -1), "negative"),
        ([1, -1], Arc(0, 1, -1, 1), "negative"),
        ([1, -2], Arc(0, 1, 0, 1), "add up"),
    ],
)
def test_nonsense_is_refused(supply: list[int], arc: Arc, message: str) -> None:  # F9
    with pytest.raises(ValueError, match=message):
        min_cost_flow(supply, [arc])


@pytest.mark.parametrize("flow", [[2], [-1], [0]])
def test_cost_of_something_that_is_no_flow_is_refused(flow: list[int]) -> None:  # F9
    with pytest.raises(ValueError, match=r"carry|balanced"):
        flow_cost([1, -1], [Arc(0, 1, 0, 1)], flow)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[int], list[Arc]]:
    """Draw a network and supplies that a flow can ship."""
    nodes = draw(st.integers(2, 7))
    node = st.integers(0, nodes - 1)
    arcs = draw(st.lists(st.builds(Arc, node, node, st.integers(0, 9), st.integers(0, 4)), max_size=16))
    supply = [0] * nodes
    for arc in arcs:
        units = draw(st.integers(0, arc.capacity))
        supply[arc.tail] += units
        supply[arc.head] -= units
    return supply, arcs


@given(networks())
def test_no_cycle_of_negative_cost_is_left(network: tuple[list[int], list[Arc]]) -> None:
    supply, arcs = network
    flow = min_cost_flow(supply, arcs)
    flow_cost(supply, arcs, flow)  # it must be a valid flow
    residual = [(a.tail, a.head, a.cost) for a, units in zip(arcs, flow) if units < a.capacity]
    residual += [(a.head, a.tail, -a.cost) for a, units in zip(arcs, flow) if units]
    distance = [0] * len(supply)
    for _ in supply:
        for tail, head, cost in residual:
            distance[head] = min(distance[head], distance[tail] + cost)
    assert all(distance[head] <= distance[tail] + cost for tail, head, cost in residual)
