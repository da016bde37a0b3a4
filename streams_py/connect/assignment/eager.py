"""The eager assignor: everything is dealt anew, in turn; nothing is remembered. Kafka's ``EagerAssignor``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs

__all__ = ["assign_eagerly"]


def assign_eagerly(configured: Jobs, members: Iterable[str]) -> dict[str, Jobs]:
    """Connectors in order to the members in order, then tasks, going on behind them. Every member has an entry."""
    names = sorted(members)
    connectors: dict[str, list[str]] = {name: [] for name in names}
    tasks: dict[str, list[TaskId]] = {name: [] for name in names}
    ring = cycle(names)
    for connector in sorted(configured.connectors):
        connectors[next(ring)].append(connector)
    for task in sorted(configured.tasks):
        tasks[next(ring)].append(task)
    return {name: Jobs.of(connectors[name], tasks[name]) for name in names}
