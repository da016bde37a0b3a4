"""A topology that runs as one task per partition, whatever its sub-topologies are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.task import TaskNodes
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class WholeTopology:
    """All nodes and stores of a topology, as if they were one sub-topology."""

    nodes: Sequence[Node]
    stores: Sequence[StoreBuilder]
    is_global: bool = False

    @classmethod
    def units_of(cls, topology: Topology) -> list[TaskNodes]:
        """Return all sub-topologies with tasks as one unit, followed by the global ones."""
        subs = topology.subtopologies()
        with_tasks = [sub for sub in subs if not sub.is_global]
        whole = cls(
            [node for node in topology.nodes if any(node in sub.nodes for sub in with_tasks)],
            [store for sub in with_tasks for store in sub.stores],
        )
        return [whole, *(sub for sub in subs if sub.is_global)]
