"""Groups with racks and costs, for comparisons with an independent implementation."""

from __future__ import annotations

from hypothesis import strategies as st

from streams_protocol.types import TaskId
from tests.support.assignment.racks import Placement

RACKS = st.frozensets(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=3)

COSTS = st.sampled_from([(10, 1), (1, 10), (1, 0), (7, 5), (10, 10), (1, 1), (0, 1)])


@st.composite
def groups(draw: st.DrawFn) -> tuple[Placement, dict[TaskId, list[frozenset[str]]], dict[str, str]]:
    """Clients in racks a to c with some tasks; partitions also have replicas in rack d, without clients."""
    clients = [f"P{number}" for number in range(1, draw(st.integers(1, 5)) + 1)]
    tasks = [TaskId(number % 3, number // 3) for number in range(draw(st.integers(1, 9)))]
    start: Placement = {client: [] for client in clients}
    for task in sorted(tasks):
        start[draw(st.sampled_from(clients))].append(str(task))
    partitions = {task: draw(st.lists(RACKS, min_size=1, max_size=3)) for task in tasks}
    return start, partitions, {client: draw(st.sampled_from("abc")) for client in clients}
