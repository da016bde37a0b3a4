"""The eager assignor: assigns all jobs again, round-robin, without memory.

Source: Kafka's ``EagerAssignor``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs


def assign_eagerly(configured: Jobs, members: Iterable[str]) -> dict[str, Jobs]:
    """Assign connectors round-robin to the members, and then tasks from the next member on.

    Connectors, tasks and members are in ascending order. Every member has an entry in the result.
    """
    names = sorted(members)
    connectors: dict[str, list[str]] = {name: [] for name in names}
    tasks: dict[str, list[TaskId]] = {name: [] for name in names}
    ring = cycle(names)
    for connector in sorted(configured.connectors):
        connectors[next(ring)].append(connector)
    for task in sorted(configured.tasks):
        tasks[next(ring)].append(task)
    return {name: Jobs.of(connectors[name], tasks[name]) for name in names}
